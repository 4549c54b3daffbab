"""Secrets in payloads and in messages are put out of sight, and nothing else is."""

import time

import pytest

from django_jobs.redaction import HIDDEN, redacted, scrubbed


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"password": "x", "user": "ada"}, {"password": HIDDEN, "user": "ada"}),
        ({"a": [{"API_KEY": 5}]}, {"a": [{"API_KEY": HIDDEN}]}),
        (["pg_dump", "--password", "x", "shop"], ["pg_dump", "--password", HIDDEN, "shop"]),
        (["curl", "--api-key=x", "-v"], ["curl", f"--api-key={HIDDEN}", "-v"]),
        (["env", "PGPASSWORD=x y"], ["env", f"PGPASSWORD={HIDDEN}"]),
        (["--secret", "--verbose"], ["--secret", "--verbose"]),
        (["the", "password", "is", "asked"], ["the", "password", "is", "asked"]),
        (["--token", 5, None, ["--token", "x"]], ["--token", 5, None, ["--token", HIDDEN]]),
        ({"args": ["--token", "x"], "kwargs": {}}, {"args": ["--token", HIDDEN], "kwargs": {}}),
        ([], []),
    ],
    ids=str,
)
def test_payloads(payload, shown):
    assert redacted(payload) == shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("password=x", f"password={HIDDEN}"),
        ("wrong Password: 'a b', sorry", f"wrong Password: {HIDDEN}, sorry"),
        ('{"api_key": "a b", "n": 1}', f'{{"api_key": {HIDDEN}, "n": 1}}'),
        ("Authorization: Bearer abc.def ok", f"Authorization: {HIDDEN} ok"),
        ("unknown --db-password x -v", f"unknown --db-password {HIDDEN} -v"),
        ("unknown --password=x", f"unknown --password={HIDDEN}"),
        ("DB_PASSWORD=x&token=y", f"DB_PASSWORD={HIDDEN}&token={HIDDEN}"),
        ("the password is wrong", "the password is wrong"),
        ("tokens: none", f"tokens: {HIDDEN}"),
        ("--password --verbose", "--password --verbose"),
        (
            "ValueError: invalid literal for int(): 'x'",
            "ValueError: invalid literal for int(): 'x'",
        ),
        ("", ""),
    ],
)
def test_messages(message, shown):
    assert scrubbed(message) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000, "-" * 100_000, "password" * 12_000, "password " * 12_000,
        "password='" * 10_000, " -password" * 10_000, "-a" * 50_000, "password=" * 10_000,
        "password" + " " * 100_000, "-password" + " " * 100_000, "token: bearer " * 8_000,
    ],
    ids=lambda text: f"{text[:12]!r}",
)  # fmt: skip
def test_no_text_takes_long(text):
    began = time.perf_counter()
    scrubbed(text)
    redacted([text, text])
    assert time.perf_counter() - began < 1
