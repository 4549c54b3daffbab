"""Frames between a parent and a child, over a socket pair.

Marshal is fast and knows plain values only; both ends are the same Python. A child sends
and waits; the parent posts, and what the child has no room for yet is sent later.

User code in a child can write to the socket, as code does that uses the number of a
descriptor that was closed. Marshal may crash on such bytes. So each frame begins with a
key that the parent has drawn for this child: what has no key is never unmarshalled, and
what announces more than a child can have to say is not waited for. Code that looks for
the key in its own process can send what it likes; that is bounded and checked, no more.
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
_KEY_BITS = 30  # what Python compares fastest
_CHUNK = 1 << 18
# The result, the output, the traceback and the message are each capped far below it.
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
        """Why what came cannot be read; from there on nothing is."""
        self.key = key
        self._most = most
        self._arrived = bytearray()
        self._outgoing = bytearray()

    @classmethod
    def for_parent(cls, sock: socket.socket) -> Channel:
        """The parent's end. The first that it sends is the key, before there is a child."""
        key = secrets.randbits(_KEY_BITS)
        sock.sendall(_KEY.pack(key))
        return cls(sock, key, MOST_BYTES)

    @classmethod
    def for_child(cls, sock: socket.socket) -> Channel:
        """The child's end."""
        sock.settimeout(None)  # as below, before its first read
        found = sock.recv(_KEY.size, socket.MSG_WAITALL)
        # Less than a key is the end of the parent, which shows when it is listened to.
        return cls(sock, int.from_bytes(found, "little"))

    def send(self, frame: Any) -> None:
        """Send one frame, however long it takes; raises OSError when nobody is there any more.

        ValueError: it is no plain value, or larger than the parent would take.
        """
        data = marshal.dumps(frame)
        if len(data) > MOST_BYTES:
            raise ValueError(f"{len(data):,} bytes are more than {MOST_BYTES:,}")
        self.sock.sendall(_header(self.key, len(data)) + data)

    def post(self, frame: Any) -> None:
        """Send as much as there is room for; the rest goes with ``flush``. Never waits."""
        data = marshal.dumps(frame)
        self._outgoing += _header(self.key, len(data)) + data
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
            if self.garbled:
                raise ConnectionError(self.garbled)
            self._read(0)

    def receive_ready(self) -> list[Any]:
        """All frames that are complete after one read, without waiting; EOFError at the end.

        Those before something that cannot be read count; ``garbled`` says that there was such.
        """
        try:
            self._read(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        return self._frames()

    def receive_rest(self) -> list[Any]:
        """What a process that has ended said last. Who else holds its end is not waited for."""
        frames: list[Any] = []
        most = self.received + 2 * MOST_BYTES  # nor read for ever
        while self.received < most:
            try:
                self._read(socket.MSG_DONTWAIT)
            except (EOFError, OSError):
                break
            frames += self._frames()
        return frames

    @property
    def is_amid(self) -> bool:
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
        loads, read_header = marshal.loads, _read_header  # thousands in a second come this way
        with memoryview(self._arrived) as view:
            while limit is None or len(frames) < limit:
                body = start + _HEADER_BYTES
                if arrived < body:
                    self._look_at_key(view[start : start + _KEY.size])
                    break
                found, length = read_header(view, start)
                if found != key or length > most:
                    self.garbled = f"a frame of {length:,} bytes" if found == key else _NO_FRAME
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

    def _look_at_key(self, begun: memoryview) -> None:
        """Of less than a header, too: nothing may follow that shows what it is."""
        if not _KEY.pack(self.key).startswith(begun):
            self.garbled = _NO_FRAME
