"""``jobs_work --reload`` in a project of its own, whose files are edited while it runs."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.integration.worker.pool.conftest import children_of, is_alive, until

pytestmark = pytest.mark.only_on("sqlite")  # the project has a database of its own
ROOT = Path(__file__).resolve().parents[3]
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
SECRET_KEY = "only for this test"
INSTALLED_APPS = ["django_jobs", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
USE_TZ = True
DJANGO_JOBS = {"POLL_INTERVAL": 0.05}
"""
JOBS = """
import os, time
from pathlib import Path
from django_jobs import job

@job(key="shop.tell")
def tell():
    from shop import prices
    with open("diary", "a") as diary:
        diary.write(f"WORD {prices.PRICE}\\n")

@job(key="shop.hold")
def hold():
    Path("diary").open("a").write("begins\\n")
    while not Path("gate").exists():
        time.sleep(0.01)
    Path("diary").open("a").write("ends\\n")
"""

ON_A_TERMINAL = """
import os, sys
_, terminal, *command = sys.argv
os.login_tty(os.open(terminal, os.O_RDWR))
os.execv(command[0], command)
"""


class Project:
    """A small Django project, and the watched worker in it."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",  # two edits within a second are two edits
        }
        self.environment.pop("DJANGO_SETTINGS_MODULE", None)
        (folder / "shop").mkdir()
        self.write("manage.py", MANAGE)
        self.write("shop/__init__.py", "")
        self.write("shop/settings.py", SETTINGS)
        self.write("shop/prices.py", "PRICE = 1")
        self.word("first")
        assert self.manage("migrate", "-v0").wait() == 0

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def word(self, word):
        self.write("shop/jobs.py", JOBS.replace("WORD", word))

    def manage(self, *arguments, terminal=""):
        command = [sys.executable, "manage.py", *arguments]
        if terminal:
            command = [sys.executable, "-c", ON_A_TERMINAL, terminal, *command]
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=bool(terminal),
            )  # fmt: skip

    def enqueue(self, handler):
        assert self.manage("jobs_enqueue", handler).wait() == 0

    @property
    def diary(self):
        path = self.folder / "diary"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def said(self):
        return (self.folder / "log").read_text()


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture
def work(project):
    started = []

    def work(*options, **how):
        watcher = project.manage("jobs_work", "--reload", *options, **how)
        started.append(watcher)
        return watcher

    yield work
    families = [pid for watcher in started for pid in children_of(watcher.pid)]
    families += [pid for worker in families for pid in children_of(worker)]
    for pid in [*(watcher.pid for watcher in started), *families]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for watcher in started:
        watcher.wait()
    print(project.said[-4000:])


def worker_of(watcher):
    return until(lambda: children_of(watcher.pid))[0]


def another_worker(watcher, worker):
    return next((pid for pid in children_of(watcher.pid) if pid != worker), None)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_an_edited_handler_is_what_runs_next(project, work, processes):
    watcher = work("--processes", processes)
    project.enqueue("shop.tell")
    until(lambda: project.diary == ["first 1"])
    worker = worker_of(watcher)
    project.word("second")
    worker = until(lambda: another_worker(watcher, worker))
    project.enqueue("shop.tell")
    until(lambda: project.diary == ["first 1", "second 1"])
    project.write("shop/prices.py", "PRICE = 2000")  # a module that handlers alone have imported
    until(lambda: another_worker(watcher, worker))
    project.enqueue("shop.tell")
    until(lambda: project.diary == ["first 1", "second 1", "second 2000"])
    assert project.said.count("has changed") == 2
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(20) == 0
    assert not children_of(watcher.pid)


def test_a_running_job_may_end_before_the_worker_starts_anew(project, work):
    watcher = work("--processes", "1")
    project.enqueue("shop.hold")
    until(lambda: project.diary == ["begins"])
    worker = worker_of(watcher)
    project.word("second")
    until(lambda: "has changed" in project.said)
    assert is_alive(worker)
    (project.folder / "gate").touch()
    until(lambda: not is_alive(worker))
    assert project.diary == ["begins", "ends"]


def test_a_job_that_takes_long_is_interrupted_and_runs_again_with_the_new_code(project, work):
    work("--processes", "1")
    project.enqueue("shop.hold")
    until(lambda: project.diary == ["begins"])
    project.word("second")
    until(lambda: project.diary == ["begins", "begins"])
    assert "has changed" in project.said
    assert "crashed" not in project.said


def test_an_error_in_the_code_is_shown_and_the_next_change_tries_again(project, work):
    watcher = work("--processes", "1")
    project.enqueue("shop.tell")
    until(lambda: project.diary == ["first 1"])
    project.write("shop/jobs.py", "def broken(:\n")
    until(lambda: "waiting for a change" in project.said)
    assert "SyntaxError" in project.said
    assert watcher.poll() is None
    project.word("mended")
    project.enqueue("shop.tell")
    until(lambda: project.diary == ["first 1", "mended 1"])
    assert project.said.count("waiting for a change") == 1


def test_told_to_stop_while_the_code_is_broken_it_ends(project, work):
    watcher = work()
    worker_of(watcher)
    project.enqueue("shop.tell")
    until(lambda: project.diary)
    project.write("shop/jobs.py", "def broken(:\n")
    until(lambda: "waiting for a change" in project.said)
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(20) == 0


def test_it_ends_with_its_worker_and_with_its_exit_code(project, work):
    project.enqueue("shop.tell")
    assert work("--until-empty").wait(20) == 0
    assert project.diary == ["first 1"]
    assert work("--processes", "0", "--child-max-jobs", "1").wait(20) == 2


def test_a_second_signal_reaches_the_worker_too(project, work):
    watcher = work("--processes", "1")
    project.enqueue("shop.hold")
    until(lambda: project.diary == ["begins"])
    for _ in range(4):  # two that come too close together are one
        with contextlib.suppress(subprocess.TimeoutExpired):
            watcher.send_signal(signal.SIGINT)
            watcher.wait(3)
            break
    assert watcher.returncode == 130


def test_one_ctrl_c_at_a_terminal_is_one_signal_for_the_worker(project, work):
    master, slave = os.openpty()
    watcher = work("--processes", "0", terminal=os.ttyname(slave))
    project.enqueue("shop.hold")
    until(lambda: project.diary == ["begins"])
    os.write(master, b"\x03")
    drain = threading.Thread(target=read_all, args=(master,), daemon=True)
    drain.start()
    with pytest.raises(subprocess.TimeoutExpired):
        watcher.wait(2.5)  # the running job may end
    (project.folder / "gate").touch()
    assert watcher.wait(20) == 0
    assert project.diary == ["begins", "ends"]
    os.close(slave)
    drain.join(5)
    os.close(master)


def read_all(descriptor):
    with contextlib.suppress(OSError):
        while os.read(descriptor, 4096):
            pass


def test_a_killed_watcher_takes_its_worker_along(project, work):
    watcher = work("--processes", "1")
    project.enqueue("shop.tell")
    until(lambda: project.diary)
    worker = worker_of(watcher)
    family = [worker, *children_of(worker)]
    watcher.send_signal(signal.SIGKILL)
    watcher.wait()
    until(lambda: not any(is_alive(pid) for pid in family))
