"""Database servers of our own, to be frozen and killed: nobody else uses their port and folder."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.integration.worker.pool.conftest import children_of

PATIENCE_SECONDS = 60.0
DEBIAN = Path("/usr/lib/postgresql")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def binary(name):
    """Where a server's program is; Debian keeps PostgreSQL's out of the path."""
    found = shutil.which(name) or next(map(str, sorted(DEBIAN.glob(f"*/bin/{name}"))), None)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return found


class Server:
    """One server process, and those it starts."""

    user = ""

    def __init__(self):
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="django_jobs_chaos_"))
        self.as_user = {}
        if os.getuid() == 0:  # servers refuse to run as root
            owner = pwd.getpwnam(self.user)
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self.as_user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self.log = (self.folder / "server.log").open("ab")
        self._process = None
        try:
            self.create()
        except BaseException:
            print((self.folder / "server.log").read_text())
            self.close()
            raise

    def run(self, *command):
        subprocess.run(
            command,
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            **self.as_user,
        )

    def start(self):
        self._process = subprocess.Popen(
            self.command(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            **self.as_user,
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.answers():
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.02)

    def crash(self):
        """Let it end as after a power cut, as far as signals can do that."""
        family = [self._process.pid, *children_of(self._process.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def freeze(self):
        self._signal_all(signal.SIGSTOP)

    def thaw(self):
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number):
        for pid in [self._process.pid, *children_of(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self):
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self.crash()
        self.log.close()
        shutil.rmtree(self.folder)


class Postgres(Server):
    user = "postgres"

    def create(self):
        self.run(
            *(binary("initdb"), "-D", "data", "-U", "postgres", "-A", "trust"),
            *("-E", "UTF8", "--no-sync"),
        )

    def command(self):
        return [
            *(binary("postgres"), "-D", "data", "-p", str(self.port), "-k", str(self.folder)),
            *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=50"),
        ]

    def answers(self):
        import psycopg  # noqa: PLC0415 - only where it is asked for

        try:
            psycopg.connect(
                host="127.0.0.1", port=self.port, user="postgres", dbname="postgres"
            ).close()
        except psycopg.OperationalError:
            return False
        return True


class MariaDB(Server):
    user = "mysql"

    def create(self):
        self.run(
            *(binary("mariadb-install-db"), "--no-defaults", f"--datadir={self.folder}/data"),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
        )

    def command(self):
        return [
            *(
                binary("mariadbd"),
                "--no-defaults",
                f"--datadir={self.folder}/data",
                f"--port={self.port}",
            ),
            *("--bind-address=127.0.0.1", f"--socket={self.folder}/socket"),
            f"--pid-file={self.folder}/pid",
        ]

    def answers(self):
        import pymysql  # noqa: PLC0415 - only where it is asked for

        try:
            pymysql.connect(host="127.0.0.1", port=self.port, user="root").close()
        except pymysql.OperationalError:
            return False
        return True


SERVERS = {"postgres": Postgres, "mariadb": MariaDB}
