"""What the documentation lists is what the code has: no more, no less."""

import ast
import re
from pathlib import Path

from django_jobs import exceptions
from django_jobs.wire.envelope import WIRE_NAMES
from tests.house.findings import listed

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ELSEWHERE_IN_A_BODY = {"v", "identifier", "payload", "enqueuedAt", "traceParent"}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def section(page: str, title: str) -> str:
    """A page's text under one of its headings, up to the next heading of the same depth."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title}"
    return found.group(1)


def first_column(text: str) -> list[str]:
    """The names in backquotes that stand in the first cell of each row of the tables."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [name for cell in cells for name in re.findall(r"`(\w+)[^`]*`", cell)]


def test_the_wire_format_lists_every_field_of_a_body():
    fields = first_column(section("reference/wire-format.md", "Body"))
    assert sorted(fields) == sorted({*WIRE_NAMES.values(), *ELSEWHERE_IN_A_BODY})


def test_the_exceptions_page_lists_every_exception():
    text = (DOCS / "reference/exceptions.md").read_text(encoding="utf-8").split("\n## ")[0]
    assert sorted(first_column(text)) == sorted(exceptions.__all__)


def test_the_exceptions_page_names_the_bases():
    text = (DOCS / "reference/exceptions.md").read_text(encoding="utf-8")
    wrong = []
    for name in exceptions.__all__:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        bases = [base.__name__ for base in getattr(exceptions, name).__bases__]
        if re.findall(r"`(\w+)`", row.split("|")[2]) != bases:
            wrong.append(f"{name} derives from {', '.join(bases)}")
    assert not wrong, listed(wrong)


def test_every_python_example_parses():
    broken = []
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        for example in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            try:
                ast.parse(example)
            except SyntaxError as error:
                broken.append(f"{shown(page)}: {error}: {error.text}")
    assert not broken, listed(broken)
