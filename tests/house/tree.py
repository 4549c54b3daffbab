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


def layers() -> list[str]:
    """The modules and packages at the root, from the top layer to the bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    lines = next(some["layers"] for some in contracts if some.get("containers") == [PACKAGE])
    return [name.partition(".")[0] for line in lines for name in line.replace("|", " ").split()]


def tree() -> str:
    root = ROOT / PACKAGE
    order = layers()
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
        write(TREE, "tree", tree())
    else:
        print(tree())


if __name__ == "__main__":
    main()
