"""What a backend has to be, and that nothing asks it for more than it declares."""

import ast
import inspect
from pathlib import Path

from django_jobs.backends import base
from django_jobs.backends.base import Backend

PACKAGE = Path(base.__file__).resolve().parents[1]
CONCRETE = {"DatabaseBackend", "RedisBackend", "MemoryBackend", "SyncBackend"}
MOST_VERBS = 10
MOST_OF_A_PART = 8
DECLARED = {"home", "runs_at_enqueue", "runs_delayed", "database", "clock"}


def verbs_of(kind):
    """The public methods that a class itself adds; facts are no verbs."""
    return {name for name, member in vars(kind).items() if inspect.isfunction(member)} - {
        name for name in vars(kind) if name.startswith("_")
    }


def parts():
    return [
        kind
        for kind in vars(base).values()
        if isinstance(kind, type) and issubclass(kind, Backend) and kind is not Backend
    ]


def test_a_backend_has_few_verbs_and_each_part_beside_it_fewer():
    counts = {kind.__name__: len(verbs_of(kind)) for kind in (Backend, *parts())}
    assert counts.pop("Backend") <= MOST_VERBS
    assert {name: count for name, count in counts.items() if count > MOST_OF_A_PART} == {}


def test_no_verb_belongs_to_two_parts():
    verbs = [verb for kind in (Backend, *parts()) for verb in verbs_of(kind)]
    assert sorted(verbs) == sorted(set(verbs))


def test_every_part_is_public_and_says_in_a_sentence_what_it_is():
    for kind in parts():
        assert kind.__name__ in base.__all__
        assert len(inspect.getdoc(kind)) > len(kind.__name__), kind


def questions(path):
    """Where a module asks which backend it has, instead of what that can do."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "django_jobs.backends"
        ):
            yield from (f"{where} imports {x.name}" for x in node.names if x.name in CONCRETE)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id in {"getattr", "hasattr"} and len(node.args) > 1:
            asked = node.args[1]
            of = ast.unparse(node.args[0]).lower()
            if isinstance(asked, ast.Constant) and (asked.value in DECLARED or "backend" in of):
                yield f"{where} asks a backend by {ast.unparse(node)}"
        if node.func.id in {"isinstance", "issubclass"}:
            kinds = {x.id for x in ast.walk(node.args[1]) if isinstance(x, ast.Name)}
            yield from (f"{where} asks for {name}" for name in sorted(kinds & CONCRETE))


def test_nothing_outside_the_backends_asks_which_one_it_has():
    modules = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "backends"
    ]
    assert [question for path in modules for question in questions(path)] == []
