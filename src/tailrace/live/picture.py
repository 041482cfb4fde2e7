"""The current picture of one result topic: the latest row per key, bounded, and what changed since when."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

Key = tuple[Any, ...]

REMEMBERED_REMOVALS = 8_192
REMEMBERED_IDS = 65_536


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a result topic, decoded. `value` None removes the row.

    `life` counts how often the pipeline began anew (its checkpoint was given up): revisions compare within one life.
    """

    key: Key
    value: dict[str, Any] | None
    revision: int | None = None
    event_id: str | None = None
    life: int = 0


@dataclass(slots=True)
class Row:
    body: bytes  # the row as it goes over the wire: {"key": …, "value": …, "revision": …}
    revision: int | None
    life: int
    seq: int
    window: str | None


def is_time(value: object) -> bool:
    """Whether this is a time as Tailrace writes it: 27 characters, UTC, microseconds."""
    return isinstance(value, str) and len(value) == 27 and value[10] == "T" and value[26] == "Z"


def window_of(key: Key) -> str | None:
    """The window a row belongs to: the first time in its key."""
    return next((part for part in key if is_time(part)), None)


class Picture:
    """Guarantees: at most `max_rows` rows; `since(n)` leads from the picture as it was at sequence number `n` to the
    present one, removals included, or says that it cannot. Not safe for use from several threads.

    Repeats are dropped: a record whose revision is not above its row's (in the same life), or, without revision,
    whose event_id was seen.
    """

    def __init__(self, max_rows: int = 10_000) -> None:
        self.max_rows = max_rows
        self.seq = 0
        self.duplicates = 0
        self._rows: OrderedDict[Key, Row] = OrderedDict()  # ordered by the sequence number of the last change
        self._by_first: dict[Any, dict[Key, None]] = {}
        self._windows: dict[str, dict[Key, None]] = {}
        self._window_order: list[str] = []
        self._gone: deque[tuple[int, Key]] = deque()
        self._gone_from = 0  # removals up to this sequence number are no longer remembered
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def apply(self, records: Iterable[Record]) -> list[tuple[Key, bytes]]:
        """Take in records in log order; the changes that they made, as (key, wire form), evictions included."""
        self.seq += 1
        changes: dict[Key, bytes] = {}
        for record in records:
            if self._is_repeat(record):
                self.duplicates += 1
            elif record.value is None:
                if record.key in self._rows:
                    changes[record.key] = self._remove(record.key)
            elif (body := self._put(record, record.value)) is not None:
                changes[record.key] = body
        while len(self._rows) > self.max_rows:
            key = self._oldest()
            changes[key] = self._remove(key)
        if not changes:
            self.seq -= 1
        return list(changes.items())

    def forget_before(self, moment: str) -> list[tuple[Key, bytes]]:
        """Remove the rows whose window is before this time; the removals as changes."""
        cut = bisect_left(self._window_order, moment)
        if cut == 0:
            return []
        self.seq += 1
        keys = [key for window in self._window_order[:cut] for key in self._windows[window]]
        return [(key, self._remove(key)) for key in keys]

    def clear(self) -> list[tuple[Key, bytes]]:
        """Remove everything; the removals as changes."""
        if not self._rows:
            return []
        self.seq += 1
        return [(key, self._remove(key)) for key in list(self._rows)]

    def rows(self, prefix: Key = ()) -> list[bytes]:
        """The wire forms of the rows whose key begins with this prefix, longest untouched first."""
        return [row.body for _, row in self._matching(prefix)]

    def since(self, seq: int, prefix: Key = ()) -> list[bytes] | None:
        """The changes after `seq`, latest value per key; None when too much was removed since to say."""
        if seq < self._gone_from or seq > self.seq:
            return None
        size = len(prefix)
        changed: list[bytes] = []
        for key in reversed(self._rows):
            row = self._rows[key]
            if row.seq <= seq:
                break
            if key[:size] == prefix:
                changed.append(row.body)
        removed = {key for at, key in self._gone if at > seq and key[:size] == prefix and key not in self._rows}
        return [_body(key, None, None) for key in removed] + changed[::-1]

    def _matching(self, prefix: Key) -> Iterator[tuple[Key, Row]]:
        if not prefix:
            yield from self._rows.items()
            return
        size = len(prefix)
        for key in self._by_first.get(prefix[0], ()):
            if key[:size] == prefix:
                yield key, self._rows[key]

    def _is_repeat(self, record: Record) -> bool:
        if record.revision is not None:
            row = self._rows.get(record.key)
            if row is None or row.revision is None:
                return False
            return (record.life, record.revision) <= (row.life, row.revision)
        if record.event_id is None:
            return False
        if record.event_id in self._ids:
            return True
        self._ids[record.event_id] = None
        if len(self._ids) > REMEMBERED_IDS:
            self._ids.popitem(last=False)
        return False

    def _put(self, record: Record, value: dict[str, Any]) -> bytes | None:
        key = record.key
        window = window_of(key)
        row = self._rows.get(key)
        if row is None:
            # A row of a window that was already evicted would only push itself out again.
            if window and len(self._rows) >= self.max_rows and self._window_order and window < self._window_order[0]:
                return None
            self._enter(key, window)
        body = _body(key, value, record.revision)
        self._rows[key] = Row(body, record.revision, record.life, self.seq, window)
        self._rows.move_to_end(key)
        return body

    def _enter(self, key: Key, window: str | None) -> None:
        if key:
            self._by_first.setdefault(key[0], {})[key] = None
        if window is not None:
            if window not in self._windows:
                insort(self._window_order, window)
                self._windows[window] = {}
            self._windows[window][key] = None

    def _oldest(self) -> Key:
        if self._window_order:
            return next(iter(self._windows[self._window_order[0]]))
        return next(iter(self._rows))

    def _remove(self, key: Key) -> bytes:
        row = self._rows.pop(key)
        if key:
            _discard(self._by_first, key[0], key)
        if row.window is not None and _discard(self._windows, row.window, key):
            self._window_order.remove(row.window)
        self._gone.append((self.seq, key))
        if len(self._gone) > REMEMBERED_REMOVALS:
            self._gone_from = self._gone.popleft()[0]
        return _body(key, None, None)


def _discard(index: dict[Any, dict[Key, None]], name: Any, key: Key) -> bool:
    """Take the key out of the index; True when nothing is left under the name."""
    keys = index[name]
    del keys[key]
    if not keys:
        del index[name]
    return not keys


def _body(key: Key, value: dict[str, Any] | None, revision: int | None) -> bytes:
    return orjson.dumps({"key": list(key), "value": value, "revision": revision})
