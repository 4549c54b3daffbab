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
        (["mysql", "-p", "x", "-P", "3306"], ["mysql", "-p", HIDDEN, "-P", "3306"]),
        (["--dbPass", "x", "--author", "y"], ["--dbPass", HIDDEN, "--author", "y"]),
        ({"db": "postgres://u:p@w@h/shop"}, {"db": f"postgres://{HIDDEN}@h/shop"}),
        (
            {"note": "login with password=x please"},
            {"note": f"login with password={HIDDEN} please"},
        ),
        (["see https://token@host/a"], [f"see https://{HIDDEN}@host/a"]),
        ("jwt: abc", f"jwt: {HIDDEN}"),
    ],
    ids=str,
)
def test_payloads(payload, shown):
    assert redacted(payload) == shown


TELLING = [
    "pass",
    "pwd",
    "passwd",
    "passphrase",
    "passcode",
    "private_key",
    "privateKey",
    "PRIVATE-KEY",
    "access_key",
    "accessKeyId",
    "credentials",
    "awsCredentials",
    "auth",
    "authHeader",
    "oauth2",
    "dsn",
    "SENTRY_DSN",
    "jwt",
    "userJWT",
    "bearer",
    "session_id",
    "sessionId",
    "sessionid",
    "DB_PASS",
    "dbPass",
    "pass1",
    "smtp.pass",
    "apiKey",
    "PGPASSWORD",
    "signing_key",
    "x-api-key",
]
HARMLESS = [
    "author",
    "authors",
    "authority",
    "passenger",
    "passport",
    "compass",
    "bypass",
    "keyboard",
    "key",
    "monkey",
    "session",
    "passed",
    "encompass",
    "DSNAME",
    "jwts",
    "forbearer",
    "oauthor",
    "accessible",
    "public_keys",
    "note",
    "PASSENGER",
]


@pytest.mark.parametrize("key", TELLING)
def test_telling_keys(key):
    assert redacted({key: "x"}) == {key: HIDDEN}
    assert scrubbed(f"{key}=x") == f"{key}={HIDDEN}"


@pytest.mark.parametrize("key", HARMLESS)
def test_harmless_keys(key):
    assert redacted({key: "x"}) == {key: "x"}
    assert scrubbed(f"{key}=x --{key} y") == f"{key}=x --{key} y"


@pytest.mark.parametrize("key", ["iban", "customerIban", "IBAN", "card-number", "CardNumber", "w9"])
def test_a_site_adds_words_of_its_own(settings, key):
    assert redacted({key: "x"}) == {key: "x"}
    settings.DJANGO_JOBS = {"REDACT_KEYS": ["IBAN", "card_number", "w9"]}
    assert redacted({key: "x", "liban": "x"}) == {key: HIDDEN, "liban": "x"}
    assert scrubbed(f"{key}: x") == f"{key}: {HIDDEN}"


def test_settings_that_cannot_be_read_hide_no_less(settings):
    settings.DJANGO_JOBS = {"REDACT_KEYS": ["a.*"]}
    assert scrubbed("password=x") == f"password={HIDDEN}"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("password=x", f"password={HIDDEN}"),
        ("wrong Password: 'a b', sorry", f"wrong Password: {HIDDEN}, sorry"),
        ('{"api_key": "a b", "n": 1}', f'{{"api_key": {HIDDEN}, "n": 1}}'),
        ("Authorization: Bearer abc.def ok\nHost: a", f"Authorization: {HIDDEN}\nHost: a"),
        ("Authorization: Digest username=x, response=abc", f"Authorization: {HIDDEN}"),
        ("Set-Cookie: a=b; Path=/\nCookie: c=d; e=f", f"Set-Cookie: {HIDDEN}\nCookie: {HIDDEN}"),
        ("{'Authorization': 'Digest a=b', 'n': 1}", f"{{'Authorization': {HIDDEN}, 'n': 1}}"),
        ("sent Bearer abc.d3f to it", f"sent Bearer {HIDDEN} to it"),
        ("the bearer shares it", "the bearer shares it"),
        (r'{"password": "a\"b secret tail", "n": 1}', f'{{"password": {HIDDEN}, "n": 1}}'),
        (r"{'password': 'a\'b secret tail', 'n': 1}", f"{{'password': {HIDDEN}, 'n': 1}}"),
        (r'"{\"password\": \"a b\", \"n\": 1}"', rf'"{{\"password\": {HIDDEN}, \"n\": 1}}"'),
        ('{"password": "cut off in the mid', f'{{"password": {HIDDEN}'),
        ("password=b'a b' n", f"password={HIDDEN} n"),
        ("tokens=['a', 'b'] n", f"tokens={HIDDEN} n"),
        (
            "Command '['db', '--password', 'a b']' died",
            f"Command '['db', '--password', {HIDDEN}]' died",
        ),
        ("form[password]=x&to=y", f"form[password]={HIDDEN}&to=y"),
        ("to: password=x", f"to: password={HIDDEN}"),
        ("InvalidTokenError: it is over", "InvalidTokenError: it is over"),
        ("amqp://u:pw@mq/ is gone", f"amqp://{HIDDEN}@mq/ is gone"),
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
        'password="\\"' * 9_000, "pwd=\\" * 9_000, 'passwd="' + '\\"' * 50_000, "a=" * 50_000,
        "://" * 33_000, "://" + "a" * 100_000, "aB" * 50_000 + "=", "auth" * 25_000 + ":x",
        "'--password', " * 7_000, "authorization: '" * 6_000, "Bearer " * 14_000, "pass:[" * 16_000,
    ],
    ids=lambda text: f"{text[:12]!r}",
)  # fmt: skip
def test_no_text_takes_long(text):
    began = time.perf_counter()
    scrubbed(text)
    redacted([text, text])
    assert time.perf_counter() - began < 1
