"""Frames between a parent and a child, over a socket pair.

Marshal is fast and knows plain values only; both ends are the same Python.
"""

from __future__ import annotations

import marshal
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 18


class Channel:
    """One end of a conversation in frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def send(self, frame: Any) -> None:
        """Send one frame; raises OSError when nobody is there any more."""
        data = marshal.dumps(frame)
        self.sock.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> Any:
        """The next frame; raises EOFError when the other end is gone."""
        while True:
            if frames := self._frames(limit=1):
                return frames[0]
            self._read()

    def receive_ready(self) -> list[Any]:
        """All frames that are complete after one read; raises EOFError at the end."""
        self._read()
        return self._frames()

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def _read(self) -> None:
        data = self.sock.recv(_CHUNK)
        if not data:
            raise EOFError
        self._buffer += data

    def _frames(self, limit: int | None = None) -> list[Any]:
        frames: list[Any] = []
        start = 0
        while limit is None or len(frames) < limit:
            if len(self._buffer) - start < _LENGTH.size:
                break
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            body = start + _LENGTH.size
            if len(self._buffer) < body + length:
                break
            start = body + length
            frames.append(marshal.loads(bytes(self._buffer[body:start])))  # noqa: S302 - from our own process
        del self._buffer[:start]
        return frames
