"""Real ``jobs_work`` processes that know the tasks of this folder."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.worker.pool.conftest import PATIENCE_SECONDS, Diary, children_of, is_alive
from tests.integration.worker.pool.conftest import until as wait_until

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {"POLL_INTERVAL": 0.05, "LEASE_SECONDS": 3, "KILL_GRACE": 0.3, "UNKNOWN_HANDLER": "fail"}
until = wait_until


@pytest.fixture(autouse=True)
def tasks_of_tests(settings):
    """Tasks that tests declare where they stand; a worker would have to import them there."""
    settings.DJANGO_JOBS = {"TASK_MODULES": ["tests"]}


class TaskDiary(Diary):
    @property
    def words(self):
        return [word for _, word in self.lines]

    @property
    def pids(self):
        return [int(pid) for pid, _ in self.lines]


@pytest.fixture
def diary(tmp_path):
    return TaskDiary(tmp_path)


@pytest.fixture
def start(site_environment, tmp_path):
    """Starts workers; at the end nothing of them may be left."""
    started = []

    def start(*options, processes=1, tasks=None, **settings):
        environment = {
            **site_environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.tasks.chores.settings",
            "CHORES_JOBS": json.dumps({**SETTINGS, **settings}),
            **({"CHORES_TASKS": json.dumps(tasks)} if tasks else {}),
        }
        command = [sys.executable, "testproject/manage.py", "jobs_work"]
        # A file, not a pipe: what a child left behind would hold a pipe open.
        log = (tmp_path / f"worker-{len(started)}.log").open("w+")
        worker = subprocess.Popen(
            [*command, "--processes", str(processes), *options],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        started.append((worker, log))
        return worker

    yield start
    families = [pid for worker, _ in started for pid in children_of(worker.pid)]
    families += [pid for server in families for pid in children_of(server)]
    for worker, log in started:
        if worker.poll() is None:
            worker.send_signal(signal.SIGKILL)
        worker.wait(PATIENCE_SECONDS)
        log.seek(0)
        print(log.read()[-6000:])
        log.close()
    until(lambda: not any(is_alive(pid) for pid in families))
