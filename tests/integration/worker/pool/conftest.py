"""Real ``jobs_work --processes`` processes, and the diary their handlers write to."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
PATIENCE_SECONDS = 20.0
SETTINGS = {"POLL_INTERVAL": 0.05, "LEASE_SECONDS": 3, "KILL_GRACE": 0.3, "TIMEOUT": 20}


def until(condition, patience=PATIENCE_SECONDS):
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited too long for {condition}"
        time.sleep(0.01)
    return found


def is_alive(pid):
    """Whether a process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children_of(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


class Diary:
    """The file that handlers write to, and the gate that holding ones wait for."""

    def __init__(self, folder):
        self.path, self.gate = folder / "diary", folder / "gate"

    def __str__(self):
        return str(self.path)

    @property
    def lines(self):
        text = self.path.read_text() if self.path.exists() else ""
        return [line.split() for line in text.splitlines()]

    @property
    def words(self):
        return [word for _, word, _ in self.lines]

    def pid(self, word):
        return next(int(pid) for pid, found, _ in self.lines if found == word)

    def moment(self, word):
        return next(float(at) for _, found, at in self.lines if found == word)


class Pool:
    """A worker with children, as an operating system sees it."""

    def __init__(self, process, log):
        self.process, self.pid, self._log = process, process.pid, log

    @property
    def said(self):
        return self._log.read_text()

    @property
    def fork_server(self):
        return until(lambda: children_of(self.pid))[0]

    @property
    def family(self):
        return [self.fork_server, *children_of(self.fork_server)]

    def sleeps(self):
        """Whether each of its threads waits for something, at this moment."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/stat")
        return all(task.read_text().rpartition(")")[2].split()[0] == "S" for task in tasks)

    def signal(self, number):
        self.process.send_signal(number)

    def stop_at_once(self):
        """Ask until it has ended: two signals may be seen as one, and then it waits for jobs."""
        while True:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(0.5)

    def ended(self):
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def diary(tmp_path):
    return Diary(tmp_path)


@pytest.fixture
def start(site_environment, tmp_path):
    """Starts workers; at the end nothing of them may be left."""
    started = []

    def start(*options, processes=2, environment=None, output=None, **settings):
        log = tmp_path / f"worker-{len(started)}.log"
        environment = {
            **site_environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.worker.pool.gang.settings",
            "GANG_JOBS": json.dumps({**SETTINGS, **settings}),
            **(environment or {}),
        }
        command = [sys.executable, "testproject/manage.py", "jobs_work"]
        asked = [] if processes is None else ["--processes", str(processes)]
        # A file, not a pipe: what a child left behind would hold a pipe open.
        with log.open("w") as file:
            process = subprocess.Popen(
                [*command, *asked, *options],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output or file,
                stderr=output or file,
            )
        pool = Pool(process, log)
        started.append(pool)
        return pool

    yield start
    families = [pid for pool in started for pid in [*children_of(pool.pid)]]
    families += [pid for server in families for pid in children_of(server)]
    for pool in started:
        with contextlib.suppress(ProcessLookupError):
            pool.process.send_signal(signal.SIGKILL)
        pool.process.wait()
        print(pool.said[-6000:])
    until(lambda: not any(is_alive(pid) for pid in families))
    assert os.getpid()
