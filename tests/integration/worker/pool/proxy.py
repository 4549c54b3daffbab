"""A TCP proxy that can stop to forward without saying so, as a broken network does."""

import contextlib
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field

CHUNK = 65536
QUIET_SECONDS = 0.1
PATIENCE_SECONDS = 10.0


@dataclass(eq=False)
class Link:
    """One connection: the worker's side and the server's."""

    client: socket.socket
    server: socket.socket
    dead: bool = False
    waiting_for: list[bytes] = field(default_factory=list)

    def other(self, end):
        return self.server if end is self.client else self.client

    def watch(self, data):
        """Once what it waits for has been asked in order, no answer comes any more."""
        while self.waiting_for and self.waiting_for[0] in data:
            del self.waiting_for[0]
            self.dead = not self.waiting_for


class Proxy:
    """Forwards to a server until told to swallow; a thread of its own does the work.

    What was connected during the silence stays dead after it, though nobody closes it: so
    does a connection that a firewall or an address translation has forgotten.
    """

    def __init__(self, host, port):
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._links = []
        self._silent = self._away = self._ends = False
        self._pattern = []
        self._moved_at = time.monotonic()
        self.refused = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def swallow(self):
        """Fall silent, at a moment at which nothing is on its way."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() - self._moved_at < QUIET_SECONDS:
            assert time.monotonic() < deadline, "it is never quiet"
            time.sleep(0.01)
        self._silent = True
        for link in list(self._links):
            link.dead = True

    def go_away(self):
        """Hang up on everybody, and on whoever comes: a server that is being restarted."""
        self._away = True
        for link in list(self._links):
            for end in (link.client, link.server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def forward(self):
        """Serve new connections again."""
        self._silent = self._away = False

    def lose_the_answer_to(self, *pattern):
        """Let the one connection on which these are asked, one after the other, die unanswered."""
        self._pattern = list(pattern)
        for link in list(self._links):
            link.waiting_for = list(pattern)

    @property
    def answer_was_lost(self):
        return bool(self._pattern) and any(link.dead for link in self._links)

    def close(self):
        self._ends = True
        self._thread.join(PATIENCE_SECONDS)
        for link in self._links:
            link.client.close()
            link.server.close()
        self._listening.close()
        self._selector.close()

    def _run(self):
        while not self._ends:
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listening:
                    self._accept()
                else:
                    self._move(key.data, key.fileobj)

    def _accept(self):
        client, _ = self._listening.accept()
        if self._away:
            self.refused += 1
            client.close()
            return
        try:
            server = socket.create_connection(self._target)
        except OSError:  # the server is not there: the worker is refused as well
            client.close()
            return
        waiting_for = [] if any(link.dead for link in self._links) else list(self._pattern)
        link = Link(client, server, dead=self._silent, waiting_for=waiting_for)
        self._links.append(link)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(end, selectors.EVENT_READ, link)

    def _move(self, link, end):
        try:
            data = end.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            self._hang_up(link, end)
            return
        self._moved_at = time.monotonic()
        if link.dead:
            return
        with contextlib.suppress(OSError):  # its end is told to the other side next
            link.other(end).sendall(data)
        if end is link.client:
            link.watch(data)

    def _hang_up(self, link, end):
        """Pass the end on. From a dead link nobody hears it, not even the server."""
        self._selector.unregister(end)
        if not link.dead:
            with contextlib.suppress(OSError):
                link.other(end).shutdown(socket.SHUT_WR)
