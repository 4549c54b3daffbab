"""ALLOWED_COMMANDS, ALLOWED_SHELL_COMMANDS, ALLOWED_EVENTS and SHELL."""

import pytest

from django_jobs.conf import read
from django_jobs.conf.model import ANY, Arguments, ShellConfig

SECRET = "x" * 40
ONE_FORM = {"x": Arguments((("--all",), ()))}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("ALLOWED_COMMANDS", {"x": [["--all"], []]}, ONE_FORM),
        ("ALLOWED_COMMANDS", {"x": (("--all",), ())}, ONE_FORM),
        ("ALLOWED_COMMANDS", {"x": None}, {"x": ANY}),
        ("ALLOWED_SHELL_COMMANDS", {"/bin/x": None}, {"/bin/x": ANY}),
        ("ALLOWED_SHELL_COMMANDS", {"/bin/x": ()}, {"/bin/x": Arguments(())}),
        ("ALLOWED_SHELL_COMMANDS", {"/y", "/x"}, {"/x": ANY, "/y": ANY}),
        ("ALLOWED_EVENTS", {"shop.b", "shop.a"}, {"shop.a": "shop.a", "shop.b": "shop.b"}),
        ("ALLOWED_EVENTS", {"paid": "shop.signals.paid"}, {"paid": "shop.signals.paid"}),
        ("SHELL", {"OPEN_FILES": 9, "PATH": ["/b"]}, ShellConfig(open_files=9, path=("/b",))),
        ("SHELL", {"MEMORY_BYTES": None, "CPU_SECONDS": 5},
         ShellConfig(memory_bytes=None, cpu_seconds=5)),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_is_read(key, value, expected):
    settings, problems = read({key: value}, secret_key=SECRET)
    assert problems == []
    assert getattr(settings, key.lower()) == expected


@pytest.mark.parametrize(
    ("key", "value", "place", "says"),
    [
        ("ALLOWED_COMMANDS", {"a": "--all"}, "['a']", "'--all'"),
        ("ALLOWED_COMMANDS", {"a": ["--all"]}, "['a'][0]", "not a list"),
        ("ALLOWED_COMMANDS", {"a": [["["]]}, "['a'][0][0]", "no regular expression"),
        ("ALLOWED_COMMANDS", {"a": [[5]]}, "['a'][0][0]", "not a pattern"),
        ("ALLOWED_COMMANDS", {"a": [[r"(?u)\d"]]}, "['a'][0][0]", "ASCII and UNICODE flags"),
        ("ALLOWED_COMMANDS", {"*": None}, "['*']", "'*'"),
        ("ALLOWED_SHELL_COMMANDS", ["date"], "[0]", "absolute path"),
        ("ALLOWED_SHELL_COMMANDS", ["/bin/../x"], "[0]", "absolute path"),
        ("ALLOWED_SHELL_COMMANDS", ["/bin/./x"], "[0]", "absolute path"),
        ("ALLOWED_SHELL_COMMANDS", ["//bin/x"], "[0]", "absolute path"),
        ("ALLOWED_SHELL_COMMANDS", {"x": None}, "['x']", "absolute path"),
        ("ALLOWED_SHELL_COMMANDS", ["/bin/*"], "[0]", "'/bin/*'"),
        ("ALLOWED_SHELL_COMMANDS", "all", "", "not a list"),
        ("ALLOWED_SHELL_COMMANDS", True, "", "not a list"),
        ("ALLOWED_EVENTS", ["paid"], "[0]", "not a dotted path"),
        ("ALLOWED_EVENTS", {"paid": 5}, "['paid']", "not a dotted path"),
        ("SHELL", {"DIRECTORY": "tmp"}, "['DIRECTORY']", "absolute path"),
        ("SHELL", {"PATH": "/usr/bin:/bin"}, "['PATH']", "not a list"),
        ("SHELL", {"ENVIRONMENT": ["A=B"]}, "['ENVIRONMENT'][0]", "not the name of a variable"),
        ("SHELL", {"OPEN_FILES": 1}, "['OPEN_FILES']", "1"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_with_its_place_and_allows_nothing(key, value, place, says):
    settings, problems = read({key: value}, secret_key=SECRET)
    (problem,) = problems
    assert problem.subject == f"{key}{place}"
    assert says in problem.message
    assert problem.hint
    allowed = getattr(settings, key.lower())
    if key == "SHELL":
        assert allowed == ShellConfig()
    elif allowed:  # the name is there, but fits no arguments
        assert not any(allowed["a"].fit(given) for given in ([], ["x"], ["--all"], ["["], ["5"]))


def test_there_is_no_switch_that_allows_everything():
    for key in ("ALLOW_ALL_SHELL_COMMANDS", "ALLOW_ALL_COMMANDS"):
        _, (problem,) = read({key: True}, secret_key=SECRET)
        assert "unknown key" in problem.message


@pytest.mark.parametrize(
    ("forms", "given", "fits"),
    [
        (None, ["anything", ""], True),
        ((), [], False),
        (((),), [], True),
        (((),), ["x"], False),
        ((("a.", "b"),), ["ax", "b"], True),
        ((("a.", "b"),), ["a\n", "b"], False),
        ((("a.", "b"),), ["ax", "b", ""], False),
        ((("a.", "b"),), ["axx", "b"], False),
        ((("a|b",), ("c",)), ["b"], True),
        ((("a|b",), ("c",)), ["bx"], False),
        ((("a$",),), ["a\n"], False),
        (((r"\d+",),), ["19"], True),
        (((r"\d+",),), ["١٩"], False),
        (((r"\w+",),), ["é"], False),
        ((("(?i)k",),), ["\u212a"], False),
        (((r"(?u:\w)+|é",),), ["é"], True),
    ],
    ids=str,
)
def test_a_form_fits_all_arguments_each_in_full(forms, given, fits):
    assert Arguments(forms).fit(given) == fits


def test_what_shell_does_without_settings():
    assert ShellConfig() == ShellConfig(
        directory="/",
        path=("/usr/local/bin", "/usr/bin", "/bin"),
        environment=(),
        cpu_seconds=None,
        memory_bytes=4_294_967_296,
        file_bytes=10_737_418_240,
        open_files=1024,
        processes=None,
        core_bytes=0,
    )


LARGEST_COUNT, LARGEST_SIZE = 2**31 - 1, 2**53
BOUNDS = {
    "CPU_SECONDS": (1, LARGEST_COUNT),
    "MEMORY_BYTES": (0, LARGEST_SIZE),
    "FILE_BYTES": (0, LARGEST_SIZE),
    "OPEN_FILES": (8, LARGEST_COUNT),
    "PROCESSES": (1, LARGEST_COUNT),
    "CORE_BYTES": (0, LARGEST_SIZE),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_limit_of_programs_has_bounds_and_may_be_none(name):
    for value in (*BOUNDS[name], None):
        settings, problems = read({"SHELL": {name: value}}, secret_key=SECRET)
        assert problems == []
        assert getattr(settings.shell, name.lower()) == value
    low, high = BOUNDS[name]
    for value in (low - 1, high + 1):
        _, (problem,) = read({"SHELL": {name: value}}, secret_key=SECRET)
        assert problem.subject == f"SHELL['{name}']"


def test_names_of_variables():
    names = ("PGPASSFILE", "_a1", "Z")
    settings, problems = read({"SHELL": {"ENVIRONMENT": list(names)}}, secret_key=SECRET)
    assert (problems, settings.shell.environment) == ([], names)
    for name in ("1A", "A B", "", "A\n", 5, None):
        _, (problem,) = read({"SHELL": {"ENVIRONMENT": [name]}}, secret_key=SECRET)
        assert problem.hint == 'Give names such as "PGPASSFILE".'


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * 5000 + ")" * 5000, "a**"])
def test_a_pattern_that_is_too_much_is_none(pattern):
    _, (problem,) = read({"ALLOWED_COMMANDS": {"a": [[pattern]]}}, secret_key=SECRET)
    assert "no regular expression" in problem.message


@pytest.mark.parametrize(
    ("raw", "example"),
    [
        ({"ALLOWED_COMMANDS": "x"}, "['clearsessions']"),
        ({"ALLOWED_SHELL_COMMANDS": "x"}, "['/usr/bin/pg_dump']"),
        ({"ALLOWED_EVENTS": "x"}, "['shop.signals.order_paid']"),
        ({"SHELL": {"PATH": "x"}}, "['/usr/bin']"),
        ({"SHELL": {"ENVIRONMENT": "x"}}, "['PGPASSFILE']"),
    ],
    ids=str,
)
def test_a_hint_has_an_example(raw, example):
    _, (problem,) = read(raw, secret_key=SECRET)
    assert example in problem.hint
