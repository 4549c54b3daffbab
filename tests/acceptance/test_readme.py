"""What README, tutorial and how-to guides tell a reader to do is done here, step by step.

A page is played in a project of its own, with the package as it is installed:

- `sh`: each line is run in the project's folder. Installing the package is left out, and what
  runs ``# until Ctrl-C`` is interrupted once it has said something.
- `text` after it: those lines must be among what was printed, in this order; … stands for anything.
- `python` that begins with a comment that names a file: added to that file.
- other `python`: typed into one Python shell. ``# -> 'this'`` behind an expression is its value.
- `ini` and `crontab`: must be readable.
"""

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from croniter import croniter

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
TUTORIAL = DOCS / "tutorial" / "first-job.md"
NOT_PLAYED = {
    "separate-database.md",
    "use-redis.md",
    "write-a-backend.md",
}  # they need another server, or your code
HOWTOS = [path for path in sorted((DOCS / "howto").glob("*.md")) if path.name not in NOT_PLAYED]
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.py)\n")
PATIENCE = 60
QUICK_START_LINES = 20

SHELL = """
import ast, json, sys
import django
django.setup()
names = {"__name__": "shell"}
for order in sys.stdin:
    code = json.loads(order)
    lines = code.splitlines()
    try:
        for node in ast.parse(code).body:
            said = lines[node.end_lineno - 1].partition("  # -> ")[2]
            if said:
                value = repr(eval(compile(ast.Expression(node.value), "page", "eval"), names))
                if value != said:
                    raise AssertionError(f"{ast.unparse(node)} is {value}, the page says {said}")
            else:
                exec(compile(ast.Module([node], []), "page", "exec"), names)
    except BaseException as error:
        import traceback
        print(json.dumps("".join(traceback.format_exception(error))), flush=True)
    else:
        print(json.dumps(""), flush=True)
"""

pytestmark = pytest.mark.only_on("sqlite")  # a new project has SQLite


@dataclass(frozen=True)
class Block:
    language: str
    text: str

    @property
    def file(self):
        found = FILE.match(self.text) if self.language == "python" else None
        return found and found.group(1)


def blocks_of(page):
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(language, textwrap.dedent(text)) for _, language, text in found]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """What PYTHONPATH has to be: nothing where the package is installed, as `make setup` does."""
    here = tmp_path_factory.mktemp("package")
    look = [sys.executable, "-c", "import django_jobs"]
    if subprocess.run(look, cwd=here, env=outside(""), capture_output=True, check=False).returncode:
        (here / "django_jobs").symlink_to(ROOT / "django_jobs")  # what an editable install does
        return str(here)
    return ""


def outside(python_path):
    """An environment that knows nothing of this repository."""
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": python_path,
        "DJANGO_SETTINGS_MODULE": "mysite.settings",
    }


class Project:
    """A folder in which a reader follows a page."""

    def __init__(self, folder, python_path):
        self.folder = folder
        self.printed = ""
        self.shell = None
        self.environment = outside(python_path)

    def follow(self, blocks):
        try:
            for block in blocks:
                if block.file:
                    self.write(block)
                else:
                    getattr(self, f"do_{block.language}")(block.text)
        finally:
            self.close()

    def write(self, block):
        path = self.folder / block.file
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n\n{block.text}")
        self.close()  # who changes code starts the shell again

    def do_sh(self, text):
        self.printed = ""
        for line in text.splitlines():
            if "pip install" in line or not line.strip():
                continue
            if line.endswith("# until Ctrl-C"):
                self.interrupted(line)
                continue
            done = subprocess.run(
                ["sh", "-c", line], cwd=self.folder, env=self.environment, timeout=PATIENCE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}"
            self.printed += done.stdout

    def interrupted(self, line):
        with subprocess.Popen(
            ["sh", "-c", f"exec {line}"], cwd=self.folder, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as begun:  # fmt: skip
            late = threading.Timer(PATIENCE, begun.kill)
            late.start()
            self.printed += begun.stdout.readline()
            begun.send_signal(signal.SIGINT)
            self.printed += begun.communicate()[0]
            late.cancel()
        assert begun.returncode in {0, 130}, f"{line}\n{self.printed}"

    def do_text(self, text):
        rest = self.printed
        for line in filter(None, map(str.split, text.splitlines())):
            pattern = r"\s+".join(re.escape(word).replace("…", ".*?") for word in line)
            found = re.search(pattern, rest)
            assert found, f"the page shows {' '.join(line)!r}; printed was:\n{self.printed}"
            rest = rest[found.end() :]

    def do_python(self, text):
        if self.shell is None:
            self.shell = subprocess.Popen(
                [sys.executable, "-c", SHELL], cwd=self.folder, env=self.environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        self.shell.stdin.write(json.dumps(text) + "\n")
        self.shell.stdin.flush()
        answer = ""
        while not answer.startswith('"'):  # what the code itself prints comes before
            answer = self.shell.stdout.readline()
            assert answer, f"the shell ended while it ran:\n{text}"
        assert not json.loads(answer), f"{text}\n{json.loads(answer)}"

    def do_ini(self, text):
        assert configparser.RawConfigParser(strict=False).read_string(text) is None

    def do_crontab(self, text):
        assert all(croniter.is_valid(" ".join(line.split()[:5])) for line in text.splitlines())

    def close(self):
        if self.shell is not None:
            with self.shell:
                self.shell.kill()
            self.shell = None


@pytest.fixture
def project(tmp_path, package):
    return Project(tmp_path, package)


@pytest.fixture(scope="module")
def shop(tmp_path_factory, package):
    """The project that the tutorial makes, without what happens in it."""
    folder = tmp_path_factory.mktemp("shop")
    project = Project(folder, package)
    blocks = blocks_of(TUTORIAL)
    until = next(place for place, block in enumerate(blocks) if "migrate" in block.text)
    project.follow(blocks[: until + 1])
    project.follow([block for block in blocks[until + 1 :] if block.file])
    return folder


def quick_start():
    """The code blocks of the README's quick start."""
    text = README.read_text(encoding="utf-8")
    part = text.split("\n## Quick start\n")[1].split("\n## ")[0]
    return [Block(language, code) for _, language, code in BLOCK.findall(part)]


def test_the_quick_start_has_twenty_lines():
    lines = [line for block in quick_start() for line in block.text.splitlines() if line.strip()]
    assert len(lines) <= QUICK_START_LINES


def test_the_quick_start_works_in_a_new_project(project):
    project.follow(quick_start())
    assert "acked" in project.printed
    where = "import django_jobs; print(django_jobs.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", where],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stdout.startswith(str(project.folder))


def test_the_tutorial_works_in_a_new_project(project):
    project.follow(blocks_of(TUTORIAL))


@pytest.mark.parametrize("page", HOWTOS, ids=lambda page: page.stem)
def test_a_how_to_guide_works_in_the_project_of_the_tutorial(page, shop, package, tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(shop, folder)
    Project(folder, package).follow(blocks_of(page))


@pytest.mark.parametrize("page", [README, TUTORIAL, *HOWTOS], ids=lambda page: page.stem)
def test_every_block_of_a_page_is_of_a_kind_that_is_tried(page):
    kinds = {"sh", "text", "python", "ini", "crontab"}
    assert {block.language for block in blocks_of(page)} <= kinds
