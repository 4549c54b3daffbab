"""Which files of the package a job goes through, unfiltered, and the page that lists them.

    python -m tests.house.life_of_a_job            prints the tables
    python -m tests.house.life_of_a_job --write    writes them into the pages, between their markers

A file stands where it is entered first. It is traced as ``tests.house.measure`` traces: in a
process of its own, on a small site with SQLite.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.house.measure import PACKAGE, ROOT
from tests.house.measure_running import TRACE, Site, measure_pool

PAGES = ROOT / "docs" / "explanation"
LIFE = PAGES / "life-of-a-job.md"
POOL = PAGES / "the-pool.md"
BESIDE_A_FILE = re.compile(rf"`({PACKAGE}/[\w/]+\.py)`(?::| \|) ((?:`[\w.]+`(?:, )?)+)")
"""A file, and functions of it that are named beside it: after a colon, or in the next cell."""
FILE = re.compile(rf"^\| `({PACKAGE}/[\w/]+\.py)`", re.MULTILINE)
MANAGE_PY = "manage.py"

# After what all traces have in common: twice the same, first cold and then warm. What an import
# runs is no part of a job's path.
STEPS = """
from django_jobs.models import Job

counts = is_ours

def is_ours(frame):
    if not counts(frame):
        return False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return False
        frame = frame.f_back
    return True

steps = {
    "enqueue": lambda: add.enqueue(1, 2),
    "success": process_once,
    "enqueue with a retry": lambda: fail.using(max_retries=1).enqueue(),
    "retry": process_once,
    "enqueue without": fail.enqueue,
    "dead letter": process_once,
}
rounds = []
for _ in range(2):
    rounds.append({name: trace(step) for name, step in steps.items()})
    Job.objects.all().delete()
print("\\n" + json.dumps(rounds))
"""
ENDS = ("success", "retry", "dead letter")

# The functions with which the parts of ``process_once`` begin, in their order.
BEGINNINGS = {
    "Get ready": "process_once",
    "Claim": "Cycle.once",
    "Admit": "Gatekeeper.admit",
    "Run": "Attempt.run",
    "Settle": "Asker.settle",
    "Tell": "events_of",
}

THREADS = {
    "MainThread": "supervisor",
    "django_jobs-store": "keep and get, which are one thread on SQLite",
    "django_jobs-waiter": "wait",
    "django_jobs-log": "log",
    "look_at_what_waits": "a look at what waits, once, at the start",
}
"""What the page calls the threads of a worker's parent."""
AT_THE_END = "leave"
"""A thread that ends a process which does not end by itself in time."""


@dataclass(frozen=True)
class Part:
    """A part of the way, and the files that are new in it, in their order."""

    title: str
    files: list[str]


@dataclass(frozen=True)
class JobPath:
    """The way of a job."""

    parts: list[Part]
    steps: dict[str, set[str]]
    """The files that are entered for each, where it is not the first one of its process."""

    @property
    def files(self) -> set[str]:
        return {file for part in self.parts for file in part.files}


def shown(path: str) -> str:
    return Path(path).relative_to(ROOT).as_posix()


def traced(site: Site) -> list[dict[str, list[tuple[str, str]]]]:
    """Cold and warm: by step the (file, function) that were entered, in their order."""
    code = TRACE.partition("\nsteps = {")[0] + STEPS
    rounds = site.last_line(site.environment(), "-c", code)
    for steps in rounds:
        ends = {steps[name]["status"] for name in ENDS}
        if len(ends) != len(ENDS):
            raise RuntimeError(f"two jobs that were to end in different ways did not: {ends}")
    return [
        {
            name: [(shown(file), function) for file, function, _ in step["functions"]]
            for name, step in steps.items()
        }
        for steps in rounds
    ]


def path_of_a_job(site: Site) -> JobPath:
    cold, warm = traced(site)
    seen: set[str] = set()

    def new(entered: list[tuple[str, str]]) -> list[str]:
        files = list(dict.fromkeys(file for file, _ in entered if file not in seen))
        seen.update(files)
        return files

    parts = [Part("Enqueue", new(warm["enqueue"]))]
    parts += [Part(title, new(some)) for title, some in in_parts(warm["success"])]
    parts.append(Part("Only where it fails, to be run again", new(warm["retry"])))
    parts.append(Part("Only where it fails for good", new(warm["dead letter"])))
    rest = [*chain.from_iterable(warm.values()), *chain.from_iterable(cold.values())]
    parts.append(Part("Only for the first job of a process, or now and then", new(rest)))
    steps = {name: {file for file, _ in warm[name]} for name in ("enqueue", *ENDS)}
    return JobPath(parts, steps)


def in_parts(entered: list[tuple[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """What was entered, cut where the next part begins."""
    functions = [function for _, function in entered]
    missing = [name for name in BEGINNINGS.values() if name not in functions]
    if missing:
        raise RuntimeError(
            f"no job came through {', '.join(missing)}: say in BEGINNINGS of {__name__} what "
            "that part of process_once begins with"
        )
    starts = [functions.index(name) for name in BEGINNINGS.values()]
    if starts != sorted(starts):
        raise RuntimeError(f"the parts of process_once begin in another order: {starts}")
    ends = [*starts[1:], len(entered)]
    return [
        (title, entered[start:end])
        for title, start, end in zip(BEGINNINGS, [0, *starts[1:]], ends, strict=True)
    ]


def entered_in_the_pool(site: Site) -> list[tuple[str, str, str]]:
    """(thread or process, file, function) of a worker with one child that runs three jobs."""
    measure_pool(lambda *_: None, site)
    trace = Path(site.environment()["HOUSE_TRACE"])
    lines = [json.loads(line) for line in trace.read_text("utf-8").splitlines()]
    parent = next(pid for pid, _, file, *_ in lines if file.endswith("/worker/pool/supervisor.py"))
    children = {pid for pid, _, file, *_ in lines if file.endswith("/execution/attempt.py")}
    entered = []
    for pid, thread, file, function, _ in lines:
        if pid == parent:
            name = re.sub(r"^Thread-\d+ \(_?(\w+)\)$", r"\1", thread)
            name = THREADS.get(name, name)
        else:
            name = "child" if pid in children else "fork server"
        if name != AT_THE_END:
            entered.append((name, shown(file), function))
    return entered


# ------------------------------------------------------------------------------------- the pages


def first_sentence(file: str) -> str:
    text = ast.get_docstring(ast.parse((ROOT / file).read_text("utf-8"))) or ""
    sentence = re.split(r"(?<=[.!?])\s", " ".join(text.split()))[0]
    return sentence.replace("``", "`").replace("|", "\\|")


def lines_in(files: set[str]) -> int:
    return sum(len((ROOT / file).read_text("utf-8").splitlines()) for file in files)


def summary(files: set[str]) -> str:
    return f"{len(files)} files of {round(lines_in(files), -2):,} lines"


def tables(path: JobPath) -> str:
    enqueue, success, retry, dead_letter = (summary(files) for files in path.steps.values())
    text = (
        f"An enqueue enters {enqueue};\n`process_once()` {success} for a success, {retry} for a "
        f"failure that is retried,\n{dead_letter} for one that is not. With what only the first "
        f"job of a process enters, it is\n{summary(path.files)}, each counted once.\n"
    )
    for part in path.parts:
        text += f"\n### {part.title}: {len(part.files)} new\n"
        if part.files:
            text += "\n| File | What is in it |\n|---|---|\n"
        for file in part.files:
            text += f"| `{file}` | {first_sentence(file)} |\n"
    return text


def table_of_threads(entered: list[tuple[str, str, str]]) -> str:
    files: dict[str, set[str]] = {}
    for name, file, _ in entered:
        files.setdefault(name, set()).add(file)
    together = set().union(*files.values())
    text = "| Where | Files entered |\n|---|---:|\n"
    for name, some in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
        text += f"| {name} | {len(some)} |\n"
    return f"{text}\nTogether {summary(together)}, each counted once.\n"


def between(page: Path, name: str) -> str:
    """What stands between the markers of a name."""
    begin, end = markers(name)
    return page.read_text("utf-8").partition(begin)[2].partition(end)[0]


def stated_lines(text: str) -> int:
    """How many lines the page says that all files have together."""
    return int(re.findall(r"files of ([\d,]+) lines, each counted once", text)[0].replace(",", ""))


def write(page: Path, name: str, text: str) -> None:
    begin, end = markers(name)
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise RuntimeError(f"{page} has no {begin} … {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{after}", encoding="utf-8")


def markers(name: str) -> tuple[str, str]:
    return f"<!-- begin: {name} -->", f"<!-- end: {name} -->"


def listed_in(text: str) -> list[str]:
    """The files of the package that tables list in their first column."""
    return FILE.findall(text)


def functions_named_in(text: str) -> list[tuple[str, str]]:
    """(file, function) of each function that is named beside its file."""
    return [
        (file, name)
        for file, names in BESIDE_A_FILE.findall(text)
        for name in re.findall(r"`([\w.]+)`", names)
    ]


def small_site(folder: str) -> Site:
    site = Site(Path(folder), ROOT, PACKAGE)
    site.run(site.environment(), MANAGE_PY, "migrate", "--verbosity", "0")
    return site


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        site = small_site(folder)
        path, pool = tables(path_of_a_job(site)), table_of_threads(entered_in_the_pool(site))
    if options.write:
        write(LIFE, "path", path)
        write(POOL, "threads", pool)
    else:
        print(path, pool, sep="\n")


if __name__ == "__main__":
    main()
