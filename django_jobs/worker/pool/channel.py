"""Frames between a parent and a child, over a socket pair.

Marshal is fast and knows plain values only; both ends are the same Python. A child sends
and waits; the parent posts, and what the child has no room for yet is sent later.
"""

from __future__ import annotations

import marshal
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 18


class Channel:
    """One end of a conversation in frames."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)  # whatever socket.setdefaulttimeout() says: it may be idle for hours
        self.sock = sock
        self._arrived = bytearray()
        self._outgoing = bytearray()

    def send(self, frame: Any) -> None:
        """Send one frame, however long it takes; raises OSError when nobody is there any more."""
        self.sock.sendall(_packed(frame))

    def post(self, frame: Any) -> None:
        """Send as much as there is room for; the rest goes with ``flush``. Never waits."""
        self._outgoing += _packed(frame)
        self.flush()

    def flush(self) -> None:
        """Send more of what was posted; raises OSError when nobody is there any more."""
        while self._outgoing:
            try:
                sent = self.sock.send(memoryview(self._outgoing)[:_CHUNK], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            del self._outgoing[:sent]

    @property
    def is_full(self) -> bool:
        """Whether something posted has not been sent."""
        return bool(self._outgoing)

    def receive(self) -> Any:
        """The next frame; raises EOFError when the other end is gone."""
        while True:
            if frames := self._frames(limit=1):
                return frames[0]
            self._read(0)

    def receive_ready(self) -> list[Any]:
        """All frames that are complete after one read, without waiting; EOFError at the end."""
        try:
            self._read(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        return self._frames()

    def receive_rest(self) -> list[Any]:
        """What a process that has ended said last. Who else holds its end is not waited for."""
        frames: list[Any] = []
        while True:
            try:
                self._read(socket.MSG_DONTWAIT)
            except (EOFError, OSError):
                return frames
            frames += self._frames()

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def _read(self, flags: int) -> None:
        data = self.sock.recv(_CHUNK, flags)
        if not data:
            raise EOFError
        self._arrived += data

    def _frames(self, limit: int | None = None) -> list[Any]:
        frames: list[Any] = []
        start, arrived = 0, len(self._arrived)
        with memoryview(self._arrived) as view:
            while limit is None or len(frames) < limit:
                body = start + _LENGTH.size
                if arrived < body:
                    break
                (length,) = _LENGTH.unpack_from(view, start)
                if arrived < body + length:
                    break
                start = body + length
                frames.append(marshal.loads(view[body:start]))  # noqa: S302 - from our own process
        del self._arrived[:start]
        return frames


def _packed(frame: Any) -> bytes:
    data = marshal.dumps(frame)
    return _LENGTH.pack(len(data)) + data
