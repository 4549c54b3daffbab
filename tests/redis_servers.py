"""Redis servers of the tests' own, which end with the tests."""

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import redis

PATIENCE_SECONDS = 20.0


def free_port():
    """A port that nobody listens on, nor on the one that a cluster adds to it."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            if port + 10_000 > 65_535:
                continue
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", port + 10_000))
                return port


class Server:
    """A redis-server in a directory of its own, whose files outlive its process."""

    def __init__(self, *options, port=None):
        self.port = port or free_port()
        self.options = options
        self.folder = Path(tempfile.mkdtemp(prefix="django-jobs-redis-"))
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        self.launch()
        self.until(lambda client: client.ping())
        return self

    def launch(self):
        """Start it, and wait for nothing."""
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        command = [
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
            "--save", "", "--appendonly", "yes", "--appendfsync", "always",
            "--logfile", str(self.folder / "log"), "--daemonize", "no", *self.options,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    @property
    def client(self):
        return redis.Redis(port=self.port, socket_timeout=5.0, protocol=2)

    def until(self, holds, patience=PATIENCE_SECONDS):
        """Wait until something holds of the server."""
        deadline = time.monotonic() + patience
        while True:
            try:
                with self.client as client:
                    if holds(client):
                        return
            except redis.RedisError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"it never came: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self):
        """As when the machine takes it away, without a chance to write anything."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def end(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def running(*options):
    server = Server(*options)
    try:
        yield server.start()
    finally:
        server.end()


@contextlib.contextmanager
def cluster(replicas=0):
    """Three masters, each with so many replicas; the URL of one, and the servers."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1500")
    servers = [Server(*options) for _ in range(3 * (1 + replicas))]
    try:
        for server in servers:
            server.start()
        addresses = [f"127.0.0.1:{server.port}" for server in servers]
        command = ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"]
        said = subprocess.run(
            [*command, "--cluster-replicas", str(replicas)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert said.returncode == 0, said.stdout + said.stderr
        for server in servers:
            server.until(_sees_all(len(servers)))
        yield servers
    finally:
        for server in servers:
            server.end()


def _sees_all(count):
    def holds(client):
        told = client.execute_command("CLUSTER INFO")
        text = (
            told
            if isinstance(told, dict)
            else dict(line.split(":", 1) for line in told.decode().split())
        )
        return text["cluster_state"] == "ok" and int(text["cluster_known_nodes"]) == count

    return holds
