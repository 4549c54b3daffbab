"""The house rules that a reader would otherwise have to check by eye."""

import ast
import io
import re
import tokenize
from pathlib import Path

from tests.house.findings import listed

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


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


TREES = {path: tree_of(path) for path in package_files()}


def comments_of(path: Path) -> list[tuple[int, str]]:
    source = io.StringIO(path.read_text(encoding="utf-8"))
    tokens = tokenize.generate_tokens(source.readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def nodes(*kinds: type) -> list[tuple[str, ast.AST]]:
    """Every node of such a kind in the package, and where it is."""
    return [
        (f"{shown(path)}:{node.lineno}", node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    ]


def length_of(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def has_a_reason(comment: str) -> bool:
    return WITH_REASON.search(comment) is not None


def test_there_is_a_package_to_look_at():
    assert len(TREES) > 100


def test_a_function_fits_on_a_screen():
    too_long = [
        f"{where} {node.name}: {length_of(node)} lines"
        for where, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)
        if length_of(node) > FUNCTION_LIMIT
    ]
    assert not too_long, listed(too_long)


def test_every_module_is_named_after_something():
    unnamed = [
        shown(path)
        for path in TREES
        if NAMES_WITHOUT_A_NOUN & set(path.relative_to(ROOT).with_suffix("").parts)
    ]
    assert not unnamed, listed(unnamed)


def test_only_commands_print():
    commands = shown(COMMANDS)
    prints = [
        where
        for where, node in nodes(ast.Call)
        if isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and not where.startswith(commands)
    ]
    assert not prints, listed(prints)


def test_no_except_is_bare():
    bare = [where for where, node in nodes(ast.ExceptHandler) if node.type is None]
    assert not bare, listed(bare)


def test_a_suppressed_rule_says_why():
    silent = [
        f"{shown(path)}:{line} {comment}"
        for path in TREES
        for line, comment in comments_of(path)
        if SUPPRESSION.search(comment) and not has_a_reason(comment)
    ]
    assert not silent, listed(silent)


def test_a_reason_is_recognised():
    comments = [
        "# noqa: S608 - the table name comes from the model",
        "# noqa: F401, PLC0415 - registers them",
        "# noqa: PLC0415  the driver may be absent",
        "# type: ignore[attr-defined]  # Django sets it at run time",
        "# pragma: no cover - only on Windows",
    ]
    unrecognised = [comment for comment in comments if not has_a_reason(comment)]
    assert not unrecognised, listed(unrecognised)


def test_a_missing_reason_is_noticed():
    comments = [
        "# noqa",
        "# noqa: S608",
        "# noqa: F401, PLC0415",
        "# noqa: whatever it complains about",
        "# type: ignore",
        "# type: ignore[attr-defined]",
        "# type: ignore  # no code",
        "# pragma: no cover",
    ]
    unnoticed = [
        comment for comment in comments if not SUPPRESSION.search(comment) or has_a_reason(comment)
    ]
    assert not unnoticed, listed(unnoticed)
