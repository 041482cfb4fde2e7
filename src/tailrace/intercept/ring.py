"""Memory that a site's worker and its companion have in common.

It belongs to no file system and lives until both have closed it: what a killed worker had written, its companion still
reads, and what a killed companion had not yet made safe, the next one finds. Writing never waits for anybody.
"""

from __future__ import annotations

import os
import tempfile

_WORTH_FREEING = 1 << 20


class Ring:
    """Bytes by position. Positions only grow; only the newest `size` bytes are there."""

    def __init__(self, size: int, fd: int | None = None) -> None:
        self.size = size
        self.fd = _anonymous() if fd is None else fd

    def write(self, position: int, data: bytes) -> None:
        at = position % self.size
        until_end = self.size - at
        self._put(data[:until_end], at)
        if len(data) > until_end:
            self._put(data[until_end:], 0)

    def read(self, position: int, length: int) -> bytes:
        at = position % self.size
        until_end = self.size - at
        if length <= until_end:
            return os.pread(self.fd, length, at)
        return os.pread(self.fd, until_end, at) + os.pread(self.fd, length - until_end, 0)

    def rewound(self, position: int) -> int:
        """The position to go on at when nothing in here is needed any more: the next one at the front, so that a calm
        site touches the same few pages again and again. What a busy hour has used is given back."""
        at = position % self.size
        if at == 0:
            return position
        if at > _WORTH_FREEING:
            os.ftruncate(self.fd, 0)
        return position - at + self.size

    def close(self) -> None:
        os.close(self.fd)

    def _put(self, data: bytes, at: int) -> None:
        if os.pwrite(self.fd, data, at) != len(data):
            raise OSError("the memory between the site and its companion takes no more")


def _anonymous() -> int:
    """A file without a name, closed to programs that are started without being given it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tailrace-outbox")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
