"""Every record has a stable key: formats may name it, and alerts rely on it."""

import ast
import re
from pathlib import Path

from django_jobs.telemetry import logs
from tests.house.findings import listed

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "django_jobs").rglob("*.py"))
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def all_records():
    """Where each record of the package is written, and the call that writes it."""
    for path in FILES:
        for call in records(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{path.relative_to(ROOT)}:{call.lineno}", call


def records(tree):
    """The calls that write to a logger."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = ast.unparse(node.func.value)
            if node.func.attr in LEVELS and (called == "logger" or "getLogger" in called):
                yield node


def is_keyed(call):
    extra = next((word.value for word in call.keywords if word.arg == "extra"), None)
    return isinstance(extra, ast.Dict) and "'key'" in map(ast.unparse, filter(None, extra.keys))


def test_there_are_records_to_look_at():
    assert any(all_records())


def test_no_record_is_without_its_key():
    keyless = [where for where, call in all_records() if not is_keyed(call)]
    assert not keyless, listed(keyless)


def test_a_record_without_a_key_would_be_noticed():
    code = "logger.info('a'); logging.getLogger('b').error('c', extra={'key': 'd'})"
    assert [is_keyed(call) for call in records(ast.parse(code))] == [False, True]


def test_the_reference_lists_every_key_with_its_level():
    page = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `([\w.]+)` \| (\w+) \| `(\w+)` \|", page, re.MULTILINE))
    level = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}
    known = {
        (key, level[number], kind.__name__) for kind, (key, number, _) in logs.SENTENCES.items()
    }
    assert told == known


def test_no_record_gets_an_exception_as_it_was_raised():
    raw = [
        f"{where} {ast.unparse(call)}"
        for where, call in all_records()
        if not all(ast.unparse(error).startswith("cleaned(") for error in errors_of(call))
    ]
    assert not raw, listed(raw)


def errors_of(call):
    found = [word.value for word in call.keywords if word.arg == "exc_info"]
    return found or ([ast.Constant(True)] if call.func.attr == "exception" else [])
