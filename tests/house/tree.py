"""The tree of the package, one line for each module, and the page that shows it.

python -m tests.house.tree            prints it
python -m tests.house.tree --write    writes it into the page, between its markers
"""

from __future__ import annotations

import argparse
import tomllib
from typing import TYPE_CHECKING

from tests.house.life_of_a_job import PAGES, first_sentence, write
from tests.house.measure import PACKAGE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

TREE = PAGES / "the-tree.md"
INIT = "__init__.py"
UNNAMED = ("migrations",)
"""What has neither a layer nor a reader of its code."""


CAPTIONS = {
    "apps": "Django's way in",
    "views": "probes and metrics over HTTP",
    "management": "what operators use",
    "checks": "what Django asks for, tests, and a job of our own",
    "operations": "what operators can do",
    "cron": "schedules",
    "worker": "running jobs",
    "decorators": "from your code ...",
    "enqueue": "... to a sealed message",
    "routes": "... on its way to a backend",
    "outbox": "... perhaps by this table",
    "execution": "one attempt",
    "backends": "where jobs are, and what runs them",
    "telemetry": "what is reported",
    "db": "transactions, the store's clock",
    "models": "tables, and their databases",
    "redaction": "what people may see",
    "conf": "settings",
    "definition": "what a job is",
    "wire": "what travels",
    "clock": "known to all, and knowing nothing",
}
"""What the layers are for, each by the first name in it."""


def layers() -> list[str]:
    """The layers of the package from the top to the bottom, as the import contract has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return next(some["layers"] for some in contracts if some.get("containers") == [PACKAGE])


def drawing() -> str:
    lines = [f" {CAPTIONS[line.split()[0]]:<52} {line}".rstrip() for line in layers()]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def tree() -> str:
    root = ROOT / PACKAGE
    order = [name for line in layers() for name in line.split()]
    modules = sorted(path for path in root.glob("*.py") if path.name != INIT)
    packages = [path.parent for path in root.glob(f"*/{INIT}") if path.parent.name not in UNNAMED]
    packages.sort(key=lambda path: order.index(path.name))
    lines = [f"{PACKAGE}/"]
    for path in modules:
        lines += entry(path, 1)
    for path in packages:
        lines += ["", *branch(path, 1)]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def branch(folder: Path, depth: int) -> list[str]:
    lines = entry(folder, depth)
    for path in sorted(folder.glob("*.py")):
        if path.name != INIT:
            lines += entry(path, depth + 1)
    for path in sorted(folder.glob(f"*/{INIT}")):
        lines += branch(path.parent, depth + 1)
    return lines


def entry(path: Path, depth: int) -> list[str]:
    module = path / INIT if path.is_dir() else path
    name = "  " * depth + path.name + "/" * path.is_dir()
    purpose = first_sentence(module.relative_to(ROOT).as_posix())
    return [f"{name:<32} {purpose}".rstrip()]


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--write", action="store_true", help="write the tree into its page")
    if parser.parse_args().write:
        write(TREE, "layers", drawing())
        write(TREE, "tree", tree())
    else:
        print(drawing(), tree(), sep="\n")


if __name__ == "__main__":
    main()
