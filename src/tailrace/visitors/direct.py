"""Events straight to the log: seeded, with chosen disorder, fast enough for benches.

stream = generate(seed=1, count=100_000, start=now(), rate=2_000, disorder=Disorder(duplicates=0.02))
for key, value in stream:
    ...
stream.account      # exactly what was made
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import accumulate, count
from random import Random

import orjson

from tailrace.errors import SettingsError
from tailrace.visitors.disorder import Account, Disorder
from tailrace.visitors.malformed import SPOILERS
from tailrace.visitors.people import draw_person
from tailrace.visitors.site import HOST, requests

Record = tuple[bytes, bytes]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_VISIT_ENDS = 1 / 8  # after each request, so a visit has eight on average
_AT_A_TIME = 400  # visits that go on at the same time
_HEX4 = [b"%04x" % n for n in range(65_536)]
_DEC3 = [b"%03d" % n for n in range(1000)]
_DURATIONS = [b"%.2f" % (1.5 + 400 * (n / 1024) ** 6 + n / 300) for n in range(1024)]
_REMEMBERED = 50_000  # visitors kept ready-made; one that was forgotten is made again, the same


class Stream:
    """An iterator over (key, value) records, with the account of what it made so far.

    The same arguments give the same bytes, on every machine and Python; another `start` moves only the times.
    """

    def __init__(self, account: Account, records: Iterator[Record]) -> None:
        self.account = account
        self._records = records

    def __iter__(self) -> Iterator[Record]:
        return self._records

    def __next__(self) -> Record:
        return next(self._records)


def generate(
    seed: int,
    count: int | None,
    start: datetime,
    rate: float,
    disorder: Disorder | None = None,
    *,
    visitors: int = 20_000,
    products: int | None = None,
    host: str = HOST,
) -> Stream:
    """`count` records (endless when None) as the shop's interceptor would write them, `rate` a second by event time.

    The key is the visitor, who is one of `visitors`; `products` sets the number of product pages (the shop's own 24
    when None). Nothing waits: how fast the records are taken is the caller's affair.
    """
    amounts = {"rate": rate, "visitors": visitors, "products": 1 if products is None else products}
    for name, amount in amounts.items():
        if not amount > 0:
            raise SettingsError(f"{name} must be above 0; it is {amount}.", f"Give a larger --{name}.")
    account = Account()
    random = Random(f"tailrace:{seed}")
    make = _maker(random, seed, visitors, products, host)
    return Stream(account, _records(random, make, account, disorder or Disorder(), count, _micros(start), rate))


def _micros(moment: datetime) -> int:
    delta = moment.astimezone(timezone.utc) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _records(
    source: Random,
    make: Callable[[int], Record],
    account: Account,
    disorder: Disorder,
    total: int | None,
    start: int,
    rate: float,
) -> Iterator[Record]:
    random, bits = source.random, source.getrandbits
    steps = (disorder.duplicates, disorder.malformed, disorder.late, disorder.out_of_order, disorder.ahead)
    duplicate, malformed, late, out_of_order, ahead = accumulate(steps)
    recent: list[Record] = []
    step = 1_000_000 / rate
    for n in count() if total is None else range(total):
        at = start + int(n * step)
        fate = random()
        if fate >= ahead:
            record = make(at)
        elif fate < duplicate and recent:
            account.duplicates += 1
            yield recent[bits(32) % len(recent)]
            continue
        elif duplicate <= fate < malformed:
            reason, spoil = SPOILERS[bits(32) % len(SPOILERS)]
            account.malformed += 1
            account.reasons[reason] += 1
            key, value = make(at)
            yield key, spoil(value)
            continue
        elif malformed <= fate < late:
            account.late += 1
            record = make(at - _span(disorder.late_by, random()))
        elif late <= fate < out_of_order:
            account.out_of_order += 1
            record = make(at - _span((0.0, disorder.out_of_order_by), random()))
        elif out_of_order <= fate:
            account.ahead += 1
            record = make(at + _span(disorder.ahead_by, random()))
        else:  # a duplicate before there is anything to repeat
            record = make(at)
        account.events += 1
        if duplicate:
            if len(recent) < disorder.duplicate_within:
                recent.append(record)
            else:
                recent[account.events % disorder.duplicate_within] = record
        yield record


def _span(bounds: tuple[float, float], share: float) -> int:
    return int((bounds[0] + (bounds[1] - bounds[0]) * share) * 1_000_000)


class _Visitor:
    """The parts of a visitor's events that stay the same, encoded once."""

    __slots__ = ("first", "key", "landing", "middle", "tail")

    def __init__(self, seed: int, index: int, host: str) -> None:
        random = Random(f"tailrace:{seed}:{index}")
        person = draw_person(random)
        visitor_id = f"{random.getrandbits(128):032x}"
        self.key = visitor_id.encode()
        self.tail = b',"visitor_id":"' + self.key + b'"}'
        self.landing = person.arrival.query.encode()
        headers = {"accept-language": person.country.language}
        about = {"host": host, "ip": person.address, "referrer": person.arrival.referrer}
        about |= {"user_agent": person.device.user_agent}
        self.first = b'",' + orjson.dumps({**about, "headers": headers})[1:-1]
        inside = None if person.is_bot else f"https://{host}/products"
        self.middle = b'",' + orjson.dumps({**about, "referrer": inside, "headers": headers})[1:-1]


class _Visits:
    """Who is on the site: a seat for each visit, and the visitors that have been made so far."""

    def __init__(self, random: Random, seed: int, visitors: int, host: str) -> None:
        self._random, self._seed, self._visitors, self._host = random, seed, visitors, host
        self._ready: dict[int, _Visitor] = {}
        self.seats = [(self.arrive(), True) for _ in range(min(_AT_A_TIME, visitors))]

    def arrive(self) -> _Visitor:
        index = int(self._random.random() ** 2 * self._visitors)  # squared: some come far more often than others
        visitor = self._ready.get(index)
        if visitor is None:
            if len(self._ready) >= _REMEMBERED:
                self._ready.clear()
            visitor = self._ready[index] = _Visitor(self._seed, index, self._host)
        return visitor


class _Digits:
    """Random hexadecimal digits, eighteen at a time, made by the thousand."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left: list[bytes] = []

    def next(self) -> bytes:
        if not self._left:
            text = b"%018000x" % self._random.getrandbits(4 * 18_000)
            self._left = [text[n : n + 18] for n in range(0, 18_000, 18)]
        return self._left.pop()


class _Clock(dict[int, bytes]):
    """A second after 1970 -> its text up to the point. Remembers the last ones."""

    def __missing__(self, second: int) -> bytes:
        if len(self) > 20_000:
            self.clear()
        text = self[second] = time.strftime('","event_time":"%Y-%m-%dT%H:%M:%S.', time.gmtime(second)).encode()
        return text


def _maker(random: Random, seed: int, visitors: int, products: int | None, host: str) -> Callable[[int], Record]:
    """A function that makes one event at so many microseconds after 1970. Every choice comes from `random`.

    Written for speed: nothing is encoded twice, and the digits of ids and times are looked up, not computed.
    """
    visits = _Visits(random, seed, visitors, host)
    seats, chance, bits = visits.seats, random.random, random.getrandbits
    kinds = requests(products)
    bounds = list(accumulate(kind.weight for kind in kinds))
    total, last = bounds[-1], len(kinds) - 1
    fronts = [f'Z","method":"{kind.method}","url":"{kind.url}'.encode() for kind in kinds]
    backs = [f',"status":{kind.status},"duration_ms":'.encode() for kind in kinds]
    landings = [(b"&" if "?" in kind.url else b"?") if kind.method == "GET" else b"" for kind in kinds]
    seconds = _Clock()
    ids = _Digits(random)

    def make(at: int) -> Record:
        seat = int(chance() * len(seats))
        visitor, is_first = seats[seat]
        kind = min(bisect_right(bounds, chance() * total), last)
        query = landings[kind] + visitor.landing if is_first and visitor.landing and landings[kind] else b""
        if chance() < _VISIT_ENDS:
            seats[seat] = (visits.arrive(), True)
        elif is_first:
            seats[seat] = (visitor, False)
        second, micros = divmod(at, 1_000_000)
        millis = at // 1000
        digits = ids.next()
        parts = (
            b'{"event_id":"%08x-' % (millis >> 16),
            _HEX4[millis & 0xFFFF],
            b"-7",
            digits[:3],
            b"-8",
            digits[3:6],
            b"-",
            digits[6:],
            seconds[second],
            _DEC3[micros // 1000],
            _DEC3[micros % 1000],
            fronts[kind],
            query,
            visitor.first if is_first else visitor.middle,
            backs[kind],
            _DURATIONS[bits(10)],
            visitor.tail,
        )
        return visitor.key, b"".join(parts)

    return make
