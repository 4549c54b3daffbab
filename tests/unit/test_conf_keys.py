"""Signing keys: where they come from, what is refused, and that no message shows one."""

import hashlib
import hmac

import pytest

from django_jobs.conf import ProblemKind, read

SECRET = "S3cret-that-must-never-be-shown-anywhere-0123456789"


def only_problem(raw, **around):
    _, problems = read(raw, **{"secret_key": SECRET, **around})
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def test_signing_keys_come_first_then_the_environment_then_the_secret_key():
    around = {"secret_key": SECRET, "fallbacks": ["old"], "environment_key": "from-environment"}
    settings, _ = read({"SIGNING_KEYS": ["one", ("k2", "two")]}, **around)
    assert [key.secret for key in settings.signing_keys] == [b"one", b"two"]
    assert settings.signing_keys[1].key_id == "k2"
    settings, _ = read({"SIGNING_KEYS": None}, **around)
    assert [key.secret for key in settings.signing_keys] == [b"from-environment"]
    settings, _ = read({}, secret_key=SECRET, fallbacks=["old"])
    expected = [
        hmac.new(secret, b"django_jobs.signing_key.v1", hashlib.sha256).digest()
        for secret in (SECRET.encode(), b"old")
    ]
    assert [key.secret for key in settings.signing_keys] == expected


def test_a_secret_key_among_its_own_fallbacks_signs_and_is_listed_once():
    settings, problems = read({}, secret_key="b", fallbacks=["b", "a", b"a", ""])
    alone, _ = read({}, secret_key="b")
    assert problems == []
    assert len(settings.signing_keys) == 2
    assert settings.signing_keys[0] == alone.signing_keys[0]


@pytest.mark.parametrize(
    ("raw", "around", "kind", "path"),
    [
        ({"SIGNING_KEYS": SECRET}, {}, ProblemKind.INVALID_VALUE, "SIGNING_KEYS"),
        ({"SIGNING_KEYS": [5]}, {}, ProblemKind.INVALID_VALUE, "SIGNING_KEYS[0]"),
        ({"SIGNING_KEYS": [(SECRET, "k1")]}, {}, ProblemKind.INVALID_VALUE, "SIGNING_KEYS[0]"),
        (
            {"SIGNING_KEYS": [(f"{SECRET}!", SECRET)]},
            {},
            ProblemKind.INVALID_VALUE,
            "SIGNING_KEYS[0]",
        ),
        ({"SIGNING_KEYS": [("k", SECRET, "x")]}, {}, ProblemKind.INVALID_VALUE, "SIGNING_KEYS[0]"),
        ({"SIGNING_KEYS": [("k", 5)]}, {}, ProblemKind.INVALID_VALUE, "SIGNING_KEYS[0]"),
        ({"SIGNING_KEYS": []}, {}, ProblemKind.NO_KEY, "SIGNING_KEYS"),
        ({"SIGNING_KEYS": ["ok-key", ""]}, {}, ProblemKind.NO_KEY, "SIGNING_KEYS[1]"),
        ({"SIGNING_KEYS": [SECRET, SECRET]}, {}, ProblemKind.DUPLICATE_KEY, "SIGNING_KEYS"),
        (
            {"SIGNING_KEYS": [("k", SECRET), ("k", "x")]},
            {},
            ProblemKind.DUPLICATE_KEY,
            "SIGNING_KEYS",
        ),
        ({}, {"environment_key": " "}, ProblemKind.NO_KEY, "JOBS_SIGNING_KEY"),
        ({}, {"secret_key": ""}, ProblemKind.NO_KEY, "SECRET_KEY"),
    ],
)
def test_a_key_problem_is_told_without_the_key(raw, around, kind, path):
    problem = only_problem(raw, **around)
    assert (problem.kind, problem.subject) == (kind, path)
    assert SECRET not in repr(problem)
    assert problem.hint


def test_refused_keys_are_not_replaced_by_others():
    settings, _ = read({"SIGNING_KEYS": []}, secret_key=SECRET, environment_key="other")
    assert settings.signing_keys == ()


def test_no_secret_is_in_the_repr():
    settings, problems = read(
        {
            "SIGNING_KEYS": [("k1", SECRET)],
            "BACKENDS": {"database": {"BACKEND": "a.B", "OPTIONS": {"URL": SECRET}}},
        },
        secret_key=SECRET,
    )
    assert problems == []
    assert SECRET not in repr(settings)
    assert "k1" in repr(settings)


def test_a_url_with_a_password_is_refused_and_not_shown():
    problem = only_problem({"ALLOWED_URLS": [f"https://me:{SECRET}@host/"]})
    assert SECRET not in str(problem)
