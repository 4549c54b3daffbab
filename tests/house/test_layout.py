"""The house rules that a reader would otherwise have to check by eye."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "django_jobs"

FUNCTION_LIMIT = 50
NAMES_WITHOUT_A_NOUN = {"util", "utils", "helper", "helpers", "common", "misc", "support"}
COMMANDS = PACKAGE / "management" / "commands"
SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:\s*ignore|pragma:\s*no cover)")
WITH_REASON = re.compile(
    r"#\s*(?:noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*"
    r"|(?:type|pyright):\s*ignore\[[\w\-, ]+\]"
    r"|pragma:\s*no cover)"
    r"\s*(?:#|-|–|:)?\s*(?P<reason>[A-Za-z].{4,})"
)


def package_files() -> list[Path]:
    return sorted(
        path
        for path in PACKAGE.rglob("*.py")
        if "migrations" not in path.relative_to(PACKAGE).parts
    )


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_package_file = pytest.mark.parametrize("path", package_files(), ids=shown)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def comments_of(path: Path) -> list[tuple[int, str]]:
    source = io.StringIO(path.read_text(encoding="utf-8"))
    tokens = tokenize.generate_tokens(source.readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def length_of(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def has_a_reason(comment: str) -> bool:
    return WITH_REASON.search(comment) is not None


def test_there_is_a_package_to_look_at():
    assert package_files()


@every_package_file
def test_a_function_fits_on_a_screen(path):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    too_long = {
        node.name: length_of(node)
        for node in ast.walk(tree_of(path))
        if isinstance(node, functions) and length_of(node) > FUNCTION_LIMIT
    }
    assert not too_long


@every_package_file
def test_every_module_is_named_after_something(path):
    assert not NAMES_WITHOUT_A_NOUN & set(path.relative_to(ROOT).with_suffix("").parts)


@every_package_file
def test_only_commands_print(path):
    if path.is_relative_to(COMMANDS):
        return
    prints = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert not prints


@every_package_file
def test_no_except_is_bare(path):
    bare = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not bare


@every_package_file
def test_a_suppressed_rule_says_why(path):
    silent = [
        (line, comment)
        for line, comment in comments_of(path)
        if SUPPRESSION.search(comment) and not has_a_reason(comment)
    ]
    assert not silent


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: S608 - the table name comes from the model",
        "# noqa: F401, PLC0415 - registers them",
        "# noqa: PLC0415  the driver may be absent",
        "# type: ignore[attr-defined]  # Django sets it at run time",
        "# pragma: no cover - only on Windows",
    ],
)
def test_a_reason_is_recognised(comment):
    assert has_a_reason(comment)


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: S608",
        "# noqa: F401, PLC0415",
        "# noqa: whatever it complains about",
        "# type: ignore",
        "# type: ignore[attr-defined]",
        "# type: ignore  # no code",
        "# pragma: no cover",
    ],
)
def test_a_missing_reason_is_noticed(comment):
    assert SUPPRESSION.search(comment)
    assert not has_a_reason(comment)
