"""Frames between a parent and a child, over a socket pair.

Marshal is fast and takes plain values only; both ends are the same Python. A child sends
and waits. The parent posts: what does not fit into the socket is sent later.

User code in a child can write to the socket, for example through the number of a descriptor
that was closed. Marshal may crash on such bytes. So each frame begins with a random key that
the parent chose for this child: bytes without the key are never unmarshalled, and a frame that
announces more than a child may send is not waited for. Code that looks up the key in its own
process can send any frame; the parent bounds and checks frames, but cannot tell them apart.
"""

from __future__ import annotations

import marshal
import secrets
import socket
import struct
from typing import Any

_KEY = struct.Struct("<I")
_HEADER = struct.Struct("<II")
_header, _read_header, _HEADER_BYTES = _HEADER.pack, _HEADER.unpack_from, _HEADER.size
_KEY_BITS = 30  # small integers compare fastest
_CHUNK = 1 << 18
# The result, the output, the traceback and the message are each capped far below this.
MOST_BYTES = 8 << 20
_NO_LIMIT = (1 << 32) - 1
_NO_FRAME = "bytes that are no frame"


class Channel:
    """One end of a conversation in frames."""

    def __init__(self, sock: socket.socket, key: int = 0, most: int = _NO_LIMIT) -> None:
        sock.settimeout(None)  # whatever socket.setdefaulttimeout() says: it may be idle for hours
        self.sock = sock
        self.received = 0
        self.garbled = ""
        """Why received bytes cannot be read; nothing is read after them."""
        self.key = key
        self._most = most
        self._arrived = bytearray()
        self._outgoing = bytearray()

    @classmethod
    def for_parent(cls, sock: socket.socket) -> Channel:
        """The parent's end. It sends the key first, before the child exists."""
        key = secrets.randbits(_KEY_BITS)
        sock.sendall(_KEY.pack(key))
        return cls(sock, key, MOST_BYTES)

    @classmethod
    def for_child(cls, sock: socket.socket) -> Channel:
        """The child's end."""
        sock.settimeout(None)  # as below, before its first read
        key = sock.recv(_KEY.size, socket.MSG_WAITALL)
        # A short read means that the parent has gone; the next read shows it.
        return cls(sock, int.from_bytes(key, "little"))

    def send(self, frame: Any) -> None:
        """Send one frame, however long it takes; raises OSError when the other end is gone.

        Raises ValueError if the frame is not a plain value, or larger than the parent accepts.
        """
        data = marshal.dumps(frame)
        if len(data) > MOST_BYTES:
            raise ValueError(f"{len(data):,} bytes are more than {MOST_BYTES:,}")
        self.sock.sendall(_header(self.key, len(data)) + data)

    def post(self, frame: Any) -> None:
        """Send as much as fits without waiting; ``flush`` sends the rest."""
        data = marshal.dumps(frame)
        self._outgoing += _header(self.key, len(data)) + data
        self.flush()

    def flush(self) -> None:
        """Send more of what was posted; raises OSError when the other end is gone."""
        while self._outgoing:
            try:
                sent = self.sock.send(memoryview(self._outgoing)[:_CHUNK], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            del self._outgoing[:sent]

    @property
    def is_full(self) -> bool:
        """Whether posted frames still wait to be sent."""
        return bool(self._outgoing)

    def receive(self) -> Any:
        """The next frame; raises EOFError when the other end is gone."""
        while True:
            if frames := self._frames(limit=1):
                return frames[0]
            if self.garbled:
                raise ConnectionError(self.garbled)
            self._read(0)

    def receive_ready(self) -> list[Any]:
        """All frames that are complete after one read, without waiting; EOFError at the end.

        Frames before unreadable bytes count; ``garbled`` is set when there are such bytes.
        """
        try:
            self._read(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        return self._frames()

    def receive_rest(self) -> list[Any]:
        """The last frames of a process that has ended, even if another holds its end open."""
        frames: list[Any] = []
        most = self.received + 2 * MOST_BYTES  # a process it left behind may write on
        while self.received < most:
            try:
                self._read(socket.MSG_DONTWAIT)
            except (EOFError, OSError):
                break
            frames += self._frames()
        return frames

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame has begun to arrive and is not complete."""
        return bool(self._arrived)

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def _read(self, flags: int) -> None:
        data = self.sock.recv(_CHUNK, flags)
        if not data:
            raise EOFError
        self.received += len(data)
        if not self.garbled:
            self._arrived += data

    def _frames(self, limit: int | None = None) -> list[Any]:
        frames: list[Any] = []
        start, arrived, key, most = 0, len(self._arrived), self.key, self._most
        # Local names, because this loop reads thousands of frames a second.
        loads, read_header = marshal.loads, _read_header
        with memoryview(self._arrived) as view:
            while limit is None or len(frames) < limit:
                body = start + _HEADER_BYTES
                if arrived < body:
                    self._check_key(view[start : start + _KEY.size])
                    break
                frame_key, length = read_header(view, start)
                if frame_key != key or length > most:
                    self.garbled = f"a frame of {length:,} bytes" if frame_key == key else _NO_FRAME
                    break
                if arrived < body + length:
                    break
                start = body + length
                try:
                    frames.append(loads(view[body:start]))
                except Exception as error:  # noqa: BLE001 - marshal raises one of many
                    self.garbled = f"a frame that cannot be read: {error!r}"
                    break
        del self._arrived[: arrived if self.garbled else start]
        return frames

    def _check_key(self, start: memoryview) -> None:
        """Check the start of an incomplete header: the rest may never come."""
        if not _KEY.pack(self.key).startswith(start):
            self.garbled = _NO_FRAME
