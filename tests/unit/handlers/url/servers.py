"""Real servers for the handler to call: HTTP over sockets, a canary, and a nameserver."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import struct
import threading

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each connection with what ``script(connection, head)`` sends."""

    def __init__(self, script=OK, *, host="127.0.0.1", context=None):
        self.script = script
        self.context = context
        self.requests = []
        self.names = []
        self.stopping = threading.Event()
        self.socket = socket.create_server((host, 0))
        self.host, self.port = self.socket.getsockname()[:2]
        if context is not None:
            context.sni_callback = lambda _sock, name, _context: self.names.append(name)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.stopping.set()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(10)

    def serve(self):
        while not self.stopping.is_set():
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                connection.settimeout(10)
                if self.context is None:
                    self.answer(connection)
                    continue
                with self.context.wrap_socket(connection, server_side=True) as wrapped:
                    self.answer(wrapped)

    def answer(self, connection):
        head, body = read_request(connection)
        self.requests.append((head, body))
        if isinstance(self.script, bytes):
            connection.sendall(self.script)
        else:
            self.script(connection, head)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        connection.close()

    def drip(self, connection, data, pause=0.02):
        """Send byte by byte, until all is sent or nobody listens."""
        for byte in data:
            connection.sendall(bytes([byte]))
            if self.stopping.wait(pause):
                return


def read_request(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            while len(body) < int(line.split(b":")[1]):
                body += connection.recv(65536)
    return head.decode("latin-1"), body


class Canary:
    """Listens on an address, or every one of the machine, and counts whoever connects."""

    def __init__(self, host="", port=0):
        self.connections = 0
        dual = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self.socket = socket.create_server((host, port), family=family, dualstack_ipv6=dual)
        self.port = self.socket.getsockname()[1]
        self.socket.setblocking(False)

    def heard(self):
        """How many connections were made since the canary was set up."""
        while True:
            try:
                connection, _ = self.socket.accept()
            except BlockingIOError:
                return self.connections
            connection.close()
            self.connections += 1

    def close(self):
        self.socket.close()


class Nameserver:
    """Answers A queries over UDP; ``answers(n)`` says with which addresses the n-th one."""

    def __init__(self, answers):
        self.answers = answers
        self.queries = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.where = self.socket.getsockname()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.where)
        self.thread.join(10)
        self.socket.close()

    def serve(self):
        while True:
            query, client = self.socket.recvfrom(512)
            if not query:
                return
            self.queries.append(asked_name(query))
            addresses = self.answers(len(self.queries))
            header = query[:2] + struct.pack("!HHHHH", 0x8180, 1, len(addresses), 0, 0)
            records = b"".join(
                b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + ipaddress.IPv4Address(one).packed
                for one in addresses
            )
            self.socket.sendto(header + query[12:] + records, client)

    def resolve(self, name):
        """What a resolver does that asks this server: one query, no cache."""
        labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
        query = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(10)
            client.sendto(query, self.where)
            answer = client.recv(512)
        count = struct.unpack("!H", answer[6:8])[0]
        records = answer[len(query) :]
        return [
            str(ipaddress.IPv4Address(records[16 * place + 12 : 16 * place + 16]))
            for place in range(count)
        ]


def asked_name(query):
    labels, place = [], 12
    while query[place]:
        labels.append(query[place + 1 : place + 1 + query[place]].decode())
        place += 1 + query[place]
    return ".".join(labels)


def server_context(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
