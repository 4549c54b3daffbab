"""Secrets in payloads and in messages are put out of sight, and nothing else is."""

import time

import pytest

from django_jobs.operations.replay import restored
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
        ([["password", "x"], ["user", "ann"]], [["password", HIDDEN], ["user", "ann"]]),
        ({"headers": [["X-Api-Key", "x"]]}, {"headers": [["X-Api-Key", HIDDEN]]}),
        ([["Authorization", ["x"]], ["token"]], [["Authorization", HIDDEN], ["token"]]),
        (["password", "reset"], ["password", "reset"]),
        ([["the password", "was sent"]], [["the password", "was sent"]]),
        ([["--token", "-v"]], [["--token", "-v"]]),
        ({"name": "password", "value": "x"}, {"name": "password", "value": HIDDEN}),
        ([{"Key": "apiKey", "Value": {"a": 1}}], [{"Key": "apiKey", "Value": HIDDEN}]),
        ({"field": "token", "val": 5, "n": 1}, {"field": "token", "val": HIDDEN, "n": 1}),
        ({"header": "Cookie", "value": "x"}, {"header": "Cookie", "value": HIDDEN}),
        ({"name": "colour", "value": "red"}, {"name": "colour", "value": "red"}),
        ({"name": "my password is old", "value": 1}, {"name": "my password is old", "value": 1}),
        ({"name": "password", "size": 8}, {"name": "password", "size": 8}),
        (["curl", "-u", "ann:x:y", "h"], ["curl", "-u", f"ann:{HIDDEN}", "h"]),
        (["--user", "ann:x"], ["--user", f"ann:{HIDDEN}"]),
        (
            ["-u", "1000:1000", "-u", "ann", "-u", "-v"],
            ["-u", "1000:1000", "-u", "ann", "-u", "-v"],
        ),
        (["--proxy-user", "http://h"], ["--proxy-user", "http://h"]),
        (["mysql", "-uroot", "-px"], ["mysql", "-uroot", f"-p{HIDDEN}"]),
        (
            ["env", "/usr/bin/mariadb-dump", "-p1", "db"],
            ["env", "/usr/bin/mariadb-dump", f"-p{HIDDEN}", "db"],
        ),
        (["sshpass", "-p", "80", "ssh"], ["sshpass", "-p", HIDDEN, "ssh"]),
        (["serve", "-p", "80", "-path"], ["serve", "-p", "80", "-path"]),
        (
            ["docker", "-p", "127.0.0.1:80:80/tcp", "-p80"],
            ["docker", "-p", "127.0.0.1:80:80/tcp", "-p80"],
        ),
        (["sh", "-c", "mysql -px db"], ["sh", "-c", f"mysql -p{HIDDEN} db"]),
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
        (
            "no [('Authorization', 'Basic x y'), ('Host', 'a')]",
            f"no [('Authorization', {HIDDEN}), ('Host', 'a')]",
        ),
        (
            "[(b'authorization', b'Basic x y'), (b'x-api-key', b'k'), (b'host', b'a')]",
            f"[(b'authorization', {HIDDEN}), (b'x-api-key', {HIDDEN}), (b'host', b'a')]",
        ),
        (r'"[[\"X-Token\", \"x\"]]"', rf'"[[\"X-Token\", {HIDDEN}]]"'),
        (
            "Command '['passwd', '--user', 'ann']' died",
            "Command '['passwd', '--user', 'ann']' died",
        ),
        ('{"name": "password", "value": "x y"}', f'{{"name": "password", "value": {HIDDEN}}}'),
        ("{'key': 'token', 'value': b'x'}", f"{{'key': 'token', 'value': {HIDDEN}}}"),
        (
            r'"{\"name\": \"token\", \"value\": \"x y\"}"',
            rf'"{{\"name\": \"token\", \"value\": {HIDDEN}}}"',
        ),
        ('{"name": "colour", "value": "red"}', '{"name": "colour", "value": "red"}'),
        ("curl -u ann:x https://h", f"curl -u ann:{HIDDEN} https://h"),
        ("['curl', '--user', 'ann:x', 'h']", f"['curl', '--user', 'ann:{HIDDEN}', 'h']"),
        ("run -u 1000:1000 --user=ann -u https://h", "run -u 1000:1000 --user=ann -u https://h"),
        ("mysqldump -h db -px shop", f"mysqldump -h db -p{HIDDEN} shop"),
        ("sshpass -p x ssh h; mysql -p -h db", f"sshpass -p {HIDDEN} ssh h; mysql -p -h db"),
        ("['sshpass', '-p', 'x', 'h']", f"['sshpass', '-p', '{HIDDEN}', 'h']"),
        ("['mysql', '-p', '-h', 'db']", "['mysql', '-p', '-h', 'db']"),
        ("['mysql', '-px', 'shop']", f"['mysql', '-p{HIDDEN}', 'shop']"),
        ("""mariadb -p'x y' a\nserve -p80""", f"mariadb -p{HIDDEN} a\nserve -p80"),
        ("find -path x -print; serve -p 80 -p80:80", "find -path x -print; serve -p 80 -p80:80"),
        ("https://h/?sv=1&sig=a%2Fb&se=2", f"https://h/?sv=1&sig={HIDDEN}&se=2"),
        (
            "https://h/?X-Amz-Credential=x&X-Amz-Signature=y&X-Amz-Date=z",
            f"https://h/?X-Amz-Credential={HIDDEN}&X-Amz-Signature={HIDDEN}&X-Amz-Date=z",
        ),
        (
            "https://h/?GoogleAccessId=x&Signature=y&key=z",
            f"https://h/?GoogleAccessId={HIDDEN}&Signature={HIDDEN}&key={HIDDEN}",
        ),
        ("killed: sig=9, key=5", "killed: sig=9, key=5"),
        (
            "redis://:a/b@h:6379/0 and amqp://ann:#a?b@mq",
            f"redis://{HIDDEN}@h:6379/0 and amqp://{HIDDEN}@mq",
        ),
        ("postgres://ann:a/b@c@h/shop", f"postgres://{HIDDEN}@h/shop"),
        (
            "http://h:8000/~me@x http://[::1]:80/a@b http://h/a:b@c",
            "http://h:8000/~me@x http://[::1]:80/a@b http://h/a:b@c",
        ),
        ("sent Basic dXNlcjp4 to it", f"sent Basic {HIDDEN} to it"),
        ("Basic understanding of basic 5", "Basic understanding of basic 5"),
    ],
)
def test_messages(message, shown):
    assert scrubbed(message) == shown


KEY = "MIIEvQ+/aB=="
BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\\n", "\\r\\n", " "], ids=ascii)
@pytest.mark.parametrize("before", ["", "Proc-Type: 4,ENCRYPTED{0}DEK-Info: AES-128-CBC,AB{0}{0}"])
def test_a_private_key_is_hidden_however_its_lines_end(end, before):
    text = end.join(["no:", BEGIN, f"{before.format(end)}{KEY}", KEY, END, "and on"])
    assert scrubbed(text) == f"no:{end}{BEGIN}{HIDDEN}{END}{end}and on"


@pytest.mark.parametrize("cut", [f"{KEY}\n{KEY}", f"{KEY}\n… cut …\n{KEY}\n{END}"])
def test_a_private_key_that_was_cut_off_is_hidden_as_far_as_it_goes(cut):
    shown = scrubbed(f"{BEGIN}\n{cut}")
    assert KEY not in shown
    assert shown.startswith(f"{BEGIN}{HIDDEN}")


def test_what_is_public_stays():
    text = f"-----BEGIN CERTIFICATE-----\n{KEY}\n-----END CERTIFICATE----- {BEGIN[:-1]}"
    assert scrubbed(text) == text


@pytest.mark.parametrize(
    "payload",
    [
        [["password", "x"], {"name": "token", "value": ["x"]}, "--token", "x", "mysql", "-px"],
        {"args": [["a", "b"], ["Cookie", "x"], ["-u", "a:x"]], "kwargs": {"password": {"u": 1}}},
        {"text": f"{BEGIN}\n{KEY}\n{END}", "url": "https://h/?sig=x&key=y", "db": "redis://:a/b@h"},
    ],
)
def test_what_is_hidden_keeps_its_place_so_that_an_edit_finds_it_again(payload):
    shown = redacted(payload)
    assert shown != payload
    assert restored(shown, payload) == payload


LONG = 262_144
PARTS = [
    "a", "-", "password", "password ", "password='", " -password", "-a", "password=", "a=", "aB",
    "'--password', ", "token: bearer ", 'password="\\"', "pwd=\\", "pass:[", "authorization: '",
    "://", "://a:", "://a:b/", "a:b@", "?sig=", "&key", "Bearer ", "Basic a", "\\", "'", " ",
    " -u ", " -u a", " -u a:", "-u '", "('", "('token', ", "('token', '", '[\\"a\\", ',
    '"name": "', '"name": "token", "value": ', "mysql ", "mysql -p", "mysql 'a' -p'", " -p", " -p'",
    "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----a",
]  # fmt: skip


@pytest.mark.parametrize("begin", ["", "mysql '"])
@pytest.mark.parametrize("part", PARTS, ids=ascii)
def test_a_hostile_text_takes_no_longer_than_its_length(part, begin):
    text = (begin + part * LONG)[:LONG]
    began = time.perf_counter()
    scrubbed(text)
    assert time.perf_counter() - began < 4


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
