"""What worker and companion say to each other: frames over a socket that neither of them ever waits for."""

from __future__ import annotations

import contextlib
import socket
import struct

HEAD = struct.Struct(">I")  # length of the body


class Wire:
    """One end of the socket pair. OSError from `tell` and `flush` means that the other end is gone."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.ended = False  # the other end has closed, or died
        self._heard = bytearray()
        self._out = bytearray()

    @property
    def waiting(self) -> bool:
        """Whether something that was told has not left yet."""
        return bool(self._out)

    def tell(self, body: bytes) -> None:
        self._out += HEAD.pack(len(body)) + body
        self.flush()

    def flush(self) -> None:
        """Sends what the socket takes now."""
        if self._out:
            with contextlib.suppress(BlockingIOError):
                del self._out[: self.socket.send(self._out)]

    def hear(self) -> list[bytes]:
        """The bodies of the frames that are whole now."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.ended = not data
        self._heard += data
        found, at = [], 0
        while len(self._heard) - at >= HEAD.size:
            (length,) = HEAD.unpack_from(self._heard, at)
            end = at + HEAD.size + length
            if end > len(self._heard):
                break
            found.append(bytes(self._heard[at + HEAD.size : end]))
            at = end
        del self._heard[:at]
        return found
