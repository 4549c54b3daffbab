"""What the package costs a site, and the path of one job, measured in processes of their own.

``python -m tests.house.measure`` runs it. The site is a small one, in a temporary folder, on
SQLite; the same without the app is what the costs are compared with.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 5
JOBS = 3
PATIENCE_SECONDS = 60.0
IDLE_SECONDS = 2.0

SETTINGS = """
import os

SECRET_KEY = "only-for-this-site-which-measures-and-is-then-deleted"
INSTALLED_APPS = os.environ["HOUSE_APPS"].split(",")
ROOT_URLCONF = "measured.urls"
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["HOUSE_DATABASE"]}
}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""

URLS = """
from django.apps import apps
from django.urls import path

urlpatterns = []
if apps.is_installed("django.contrib.admin"):
    from django.contrib import admin

    urlpatterns.append(path("admin/", admin.site.urls))
"""

JOBS_MODULE = """
import os

from django_jobs import job


@job
def add(first: int, second: int) -> int:
    return first + second


@job
def fail() -> None:
    raise ValueError("on purpose")


@job
def write_pid(path: str) -> None:
    with open(path + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".new", path)
"""

MANAGE = """
from django.core.management import execute_from_command_line
import sys

execute_from_command_line(["manage.py", *sys.argv[1:]])
"""

# The last line of what it prints: what the process holds by now.
WEIGH = """
import sys
modules = sorted(sys.modules)
import time
cpu = time.process_time()
try:
    with open("/proc/self/smaps_rollup") as file:
        memory = sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty"))
except OSError:
    memory = 0
import json
print("\\n" + json.dumps({"cpu": cpu, "memory": memory, "modules": modules}))
"""

WEB = """
import django
django.setup()
from django.core.wsgi import get_wsgi_application
get_wsgi_application()
from importlib import import_module
from django.conf import settings
import_module(settings.ROOT_URLCONF)
from django.db import connection
connection.cursor().execute("SELECT 1").fetchall()
if "django_jobs" in settings.INSTALLED_APPS:
    from shop.jobs import add
    add.enqueue(1, 2)
"""

# Calls of functions of the package, in the order of the steps; each step a second time, warm.
TRACE = """
import json, os, sys
import django
django.setup()
from django_jobs.worker import process_once
from shop.jobs import add, fail

PACKAGE = os.environ["HOUSE_PACKAGE"]

def is_ours(frame):
    return frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_name != "<module>"

def trace(step):
    seen, calls = {}, [0, 0, 0]

    def note(frame, event, argument):
        if event != "call" or not is_ours(frame):
            return
        code = frame.f_code
        seen[code.co_filename, code.co_qualname, code.co_firstlineno] = None
        callers, caller = [], frame.f_back
        while caller is not None:
            if is_ours(caller):
                callers.append(caller.f_code.co_filename)
            caller = caller.f_back
        calls[0] += 1
        calls[1] += bool(callers) and callers[0] != code.co_filename
        calls[2] = max(calls[2], 1 + len(callers))

    sys.setprofile(note)
    try:
        result = step()
    finally:
        sys.setprofile(None)
    return {"functions": list(seen), "calls": calls[0], "into another file": calls[1],
            "depth": calls[2], "status": getattr(result, "status", None)}

steps = {
    "enqueue": lambda: add.enqueue(1, 2),
    "run": process_once,
    "enqueue to fail": fail.enqueue,
    "fail": process_once,
}
for step in steps.values():
    step()
print("\\n" + json.dumps({name: trace(step) for name, step in steps.items()}))
"""

# Every Python process under a worker imports it, and forked ones have it from their parent. It
# writes at once, for a process may end by a signal. What an import, the start of the apps and the
# system checks run is no part of a job's path.
SITECUSTOMIZE = """
import json, os, sys, threading

PACKAGE = os.environ["HOUSE_PACKAGE"]
TRACE = os.environ["HOUSE_TRACE"]
STARTS = {("populate", "registry.py"), ("run_checks", "registry.py"), ("check", "base.py")}
seen = set()

def is_start(frame):
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            return True
        if (code.co_name, os.path.basename(code.co_filename)) in STARTS and (
            os.sep + "django" + os.sep in code.co_filename
        ):
            return True
        frame = frame.f_back
    return False

def note(frame, event, argument):
    if event != "call":
        return
    code = frame.f_code
    if not code.co_filename.startswith(PACKAGE) or code.co_name == "<module>":
        return
    key = (os.getpid(), threading.get_ident(), code)
    if key in seen or is_start(frame):
        return
    seen.add(key)
    place = [code.co_filename, code.co_qualname, code.co_firstlineno]
    line = json.dumps([os.getpid(), threading.current_thread().name, *place]) + "\\n"
    descriptor = os.open(TRACE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)

threading.setprofile(note)
sys.setprofile(note)
"""

ENQUEUE = """
import sys
import django
django.setup()
from shop import jobs
for _ in range({count}):
    jobs.{name}.enqueue(*sys.argv[1:])
"""

APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "shop"]
ADMIN_APPS = ["django.contrib.messages", "django.contrib.admin"]


class Site:
    """A small site with one app that has jobs, in a folder of its own."""

    def __init__(self, folder: Path, root: Path, package: str) -> None:
        self.folder = folder
        self.root = root
        self.package = package
        files = {
            "measured/__init__.py": "",
            "measured/settings.py": SETTINGS,
            "measured/urls.py": URLS,
            "shop/__init__.py": "",
            "shop/jobs.py": JOBS_MODULE,
            "manage.py": MANAGE,
            "trace/sitecustomize.py": SITECUSTOMIZE,
        }
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def environment(self, *, admin: bool = False, package: bool = True) -> dict[str, str]:
        apps = [*APPS, *(ADMIN_APPS if admin else []), *([self.package] if package else [])]
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "measured.settings",
            "HOUSE_APPS": ",".join(apps),
            "HOUSE_DATABASE": str(self.folder / f"{admin:d}{package:d}.sqlite3"),
            "HOUSE_PACKAGE": str(self.root / self.package) + os.sep,
            "HOUSE_TRACE": str(self.folder / "trace.jsonl"),
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(self.root)]),
        }

    def run(self, environment: dict[str, str], *command: str) -> str:
        """What such a Python prints; an error with all it said if it fails."""
        process = subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        if process.returncode:
            raise RuntimeError(f"{command[0]}: {process.stdout}\n{process.stderr}")
        return process.stdout

    def last_line(self, environment: dict[str, str], *command: str) -> Any:
        return json.loads(self.run(environment, *command).splitlines()[-1])


# ------------------------------------------------------------------------------------- weight


def weigh(site: Site) -> dict[tuple[str, bool, bool], dict[str, Any]]:
    """By (what the process does, with the admin, with the app)."""
    check = f"{MANAGE.replace('*sys.argv[1:]', repr('check'))}\n{WEIGH}"
    probes = {"check": check, "web": f"{WEB}\n{WEIGH}"}
    runs: dict[tuple[str, bool, bool], list[dict[str, Any]]] = defaultdict(list)
    for number in range(1 + ROUNDS):
        for what, code in probes.items():
            for admin in (False, True):
                for package in (False, True):
                    environment = site.environment(admin=admin, package=package)
                    begin = time.perf_counter()
                    run = site.last_line(environment, "-c", code)
                    run["wall"] = time.perf_counter() - begin
                    if number:  # the first one compiles
                        runs[what, admin, package].append(run)
    return {
        key: {
            **{name: statistics.median(run[name] for run in same) for name in MEASURES},
            "modules": same[0]["modules"],
        }
        for key, same in runs.items()
    }


MEASURES = {"cpu": 1000.0, "wall": 1000.0, "memory": 1 / 1024}
UNITS = {"cpu": "ms of processor", "wall": "ms of time", "memory": "MB of memory written"}


def measure_weight(add: Callable[..., None], site: Site) -> None:
    weights = weigh(site)
    for what, admin in (("check", False), ("check", True), ("web", False), ("web", True)):
        section = f"Weight: {'manage.py check' if what == 'check' else 'a web process'}, "
        section += "with the admin" if admin else "without the admin"
        ours, bare = weights[what, admin, True], weights[what, admin, False]
        for name, factor in MEASURES.items():
            more = round((ours[name] - bare[name]) * factor, 1)
            add(section, f"{UNITS[name]} added", more)
            add(section, f"{UNITS[name]} of the site without it", round(bare[name] * factor, 1))
        more_modules = sorted(set(ours["modules"]) - set(bare["modules"]))
        package = [name for name in more_modules if name.split(".")[0] == site.package]
        add(section, f"modules added of {site.package}", len(package))
        others = [name for name in more_modules if name not in package]
        add(section, "modules added in all", len(more_modules))
        add(section, "modules added of others", len(others), others)


def memory_of(pid: int) -> dict[str, float]:
    """Megabytes, by the names of smaps_rollup; empty where the system has none."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
    except OSError:
        return {}
    rows = (line.split() for line in text.splitlines()[1:])
    return {row[0].rstrip(":"): int(row[1]) / 1024 for row in rows}


def processes_under(pid: int) -> list[int]:
    """The process and all that descend from it."""
    children = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = path.read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        children[int(after_name[1])].append(int(path.parent.name))
    pids = [pid]
    for parent in pids:
        pids += children[parent]
    return pids


@contextmanager
def worker(site: Site, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "jobs_work", "--processes", "1"],
        cwd=site.folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def content_of(path: Path) -> str:
    """What is in a file, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no job wrote {path}")
        time.sleep(0.05)
    return path.read_text("utf-8")


def measure_worker(add: Callable[..., None], site: Site) -> None:
    """The memory of an idle worker with one child, after a job."""
    section = "Weight: a worker with 1 child, idle after a job"
    environment = site.environment()
    path = site.folder / "pid"
    site.run(environment, "-c", ENQUEUE.format(count=1, name="write_pid"), str(path))
    with worker(site, environment) as process:
        child = int(content_of(path))
        time.sleep(IDLE_SECONDS)
        pids = processes_under(process.pid)
        memory = {pid: memory_of(pid) for pid in pids}
    if not memory.get(child):
        return
    add(section, "MB of the child alone, written (Private_Dirty)", private(memory[child], "Dirty"))
    add(section, "MB of the child alone (USS)", private(memory[child]))
    add(section, "MB of the child, what it shares included (RSS)", round(memory[child]["Rss"], 1))
    add(section, "processes", len(pids))
    together = sum(private(held) for held in memory.values() if held)
    add(section, "MB of all of them, each alone (USS)", round(together, 1))
    fair = sum(held["Pss"] for held in memory.values() if held)
    add(section, "MB of all of them, what is shared split (PSS)", round(fair, 1))


def private(memory: dict[str, float], kind: str = "") -> float:
    names = [f"Private_{kind}"] if kind else ["Private_Dirty", "Private_Clean"]
    return round(sum(memory[name] for name in names), 1)


# --------------------------------------------------------------------------------------- path


Function = tuple[str, str, int]
"""File, name and first line."""


def measure_steps(add: Callable[..., None], site: Site) -> None:
    """Enqueueing and running in one process, each step for the second time."""
    steps = site.last_line(site.environment(), "-c", TRACE)
    functions = {
        name: {tuple(entry) for entry in step["functions"]} for name, step in steps.items()
    }
    add_step(add, site, "enqueue", steps["enqueue"], functions["enqueue"])
    add_step(add, site, "process_once, success", steps["run"], functions["run"])
    add_step(add, site, "process_once, dead letter", steps["fail"], functions["fail"])
    ends = {name: steps[name]["status"] for name in ("run", "fail")}
    if ends["run"] == ends["fail"]:
        raise RuntimeError(f"the job that fails ended as the other did: {ends}")
    section = "Path of one job in one process, warm"
    add_files(add, site, section, "enqueue, run", functions["enqueue"] | functions["run"])
    together = functions["enqueue"] | functions["run"] | functions["fail"]
    add_files(add, site, section, "enqueue, run, fail", together)


def add_step(
    add: Callable[..., None], site: Site, name: str, step: dict[str, Any], functions: set[Function]
) -> None:
    section = "Path of one job in one process, warm"
    add_files(add, site, section, name, functions)
    add(section, f"{name}: calls", step["calls"])
    add(section, f"{name}: calls into another file", step["into another file"])
    add(section, f"{name}: calls deep", step["depth"])


def add_files(
    add: Callable[..., None], site: Site, section: str, name: str, functions: set[Function]
) -> None:
    files = sorted({file for file, _, _ in functions})
    lines = {file: len(Path(file).read_text("utf-8").splitlines()) for file in files}
    listed = [f"{Path(file).relative_to(site.root)} {lines[file]}" for file in files]
    add(section, f"{name}: files", len(files), listed)
    add(section, f"{name}: lines in them", sum(lines.values()))
    called = sorted(f"{Path(file).relative_to(site.root)}: {name}" for file, name, _ in functions)
    add(section, f"{name}: functions", len(functions), called)


def measure_pool(add: Callable[..., None], site: Site) -> None:
    """A worker with one child that runs some jobs and ends when nothing is due.

    Its own start and end are part of it; those of Django and the system checks are not.
    """
    environment = site.environment()
    site.run(environment, "-c", ENQUEUE.format(count=JOBS, name="add"), "1", "2")
    trace = Path(environment["HOUSE_TRACE"])
    path = os.pathsep.join([str(site.folder / "trace"), environment["PYTHONPATH"]])
    command = ("manage.py", "jobs_work", "--processes", "1", "--until-empty")
    output = site.run({**environment, "PYTHONPATH": path}, *command)
    if f"{JOBS} jobs processed" not in output:
        raise RuntimeError(f"the worker did not run {JOBS} jobs: {output}")
    threads: dict[tuple[int, str], set[Function]] = defaultdict(set)
    for line in trace.read_text("utf-8").splitlines():
        pid, thread, *function = json.loads(line)
        threads[pid, thread].add(tuple(function))
    section = f"Path of {JOBS} jobs in a worker with 1 child"
    add_files(add, site, section, "worker", set().union(*threads.values()))
    add(section, "worker: processes", len({pid for pid, _ in threads}))
    numbers = {pid: number for number, pid in enumerate(sorted({pid for pid, _ in threads}), 1)}
    listed = [
        f"process {numbers[pid]}, {thread}: {len(functions)} functions, "
        f"{len({file for file, _, _ in functions})} files"
        for (pid, thread), functions in sorted(threads.items())
    ]
    add(section, "worker: threads", len(threads), listed)


# ---------------------------------------------------------------------------------------- run


def measure(add: Callable[..., None], root: Path, package: str) -> None:
    """Add all figures: ``add(section, label, value, names of what was counted)``."""
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        site = Site(Path(folder), root, package)
        for admin in (False, True):
            environment = site.environment(admin=admin)
            site.run(environment, "manage.py", "migrate", "--verbosity", "0")
        measure_steps(add, site)
        measure_pool(add, site)
        measure_weight(add, site)
        measure_worker(add, site)
