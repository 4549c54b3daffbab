"""A correct signature is no excuse: what each field of a body may and may not hold."""

import json

import pytest

from django_jobs.exceptions import Rejection
from django_jobs.wire.envelope import (
    MAX_COUNT,
    MAX_MOMENT,
    MAX_SECONDS,
    WIRE_NAMES,
    Header,
    Message,
)
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer, SigningKey

SIGNER = Signer([SigningKey.named("k1", "a secret")])
OPENER = Opener(backend="database", site="shop.settings", max_payload_bytes=1000, signer=SIGNER)
ID = "018bcfe5-687b-7abc-8def-0123456789ab"

GOOD = {
    "v": 1,
    "identifier": ID,
    "payload": None,
    "enqueuedAt": 0,
    "job": "shop.send",
    "queue": "mail",
    "backend": "database",
    "site": "shop.settings",
}
NO_TEXT = ["", 5, 1.5, True, [], {}, ["a"]]
NO_NUMBER = ["5", True, False, [], {}, [5]]
NO_MOMENT = [-1, 1.0, 0.5, MAX_MOMENT + 1, 10**400, *NO_NUMBER]
NO_SECONDS = [-1, -0.001, MAX_SECONDS + 1, 1e300, 10**400, *NO_NUMBER]

BAD = {
    "v": [None, 0, -1, 1.0, 1.5, *NO_NUMBER],
    "identifier": [None, "", "x", 5, True, [], {}, ID.upper(), ID.replace("-", ""), f"{ID} "],
    "enqueuedAt": [None, *NO_MOMENT],
    "job": [None, "j" * 256, *NO_TEXT],
    "queue": [None, "q" * 65, *NO_TEXT],
    "backend": [None, "b" * 65, *NO_TEXT],
    "site": [None, "s" * 256, *NO_TEXT],
    "priority": [-101, 101, 1.0, 0.5, *NO_NUMBER],
    "maxRetries": [-1, MAX_COUNT, 1.0, 10**400, *NO_NUMBER],
    "name": ["n" * 256, *NO_TEXT],
    "idempotencyKey": ["k" * 256, *NO_TEXT],
    "schedule": NO_MOMENT,
    "delay": NO_SECONDS,
    "timeout": NO_SECONDS,
    "maxCrashes": [0, -1, MAX_COUNT + 1, 1.0, *NO_NUMBER],
    "retry": [
        *("", "sometimes", "fixed ", "FIXED", ".", "a.", "a..b", "5.0", "a b.c"),
        *(5, 1.5, True, [], {}, ["5"], [True], [None], [-1], [1e9], [[1]]),
        {"base": 5},
        {"strategy": "sometimes"},
        {"strategy": None},
        {"STRATEGY": "fixed"},
        {"strategy": "fixed", "base": "5"},
        {"strategy": "fixed", "base": -1},
        {"strategy": "exponential", "jitter": 1},
        {"strategy": "fixed", "colour": 1},
    ],
    "singleInstance": ["s" * 256, *NO_TEXT],
    "concurrencyKey": ["c" * 256, *NO_TEXT],
    "concurrency": [0, -1, MAX_COUNT + 1, 1.0, *NO_NUMBER],
    "atomic": [0, 1, "true", [], {}],
    "uniqueKey": ["u" * 256, *NO_TEXT],
    "resultTtl": NO_SECONDS,
    "tenant": ["t" * 256, *NO_TEXT],
    "meta": [[], [1], "a", 5, True],
    "expiresAt": NO_MOMENT,
    "traceId": ["t" * 65, *NO_TEXT],
    "replayOf": ["", "x", 5, True, [], {}, ID.upper(), ID.replace("-", "")],
}
EDGES = {
    "priority": [-100, 0, 100],
    "maxRetries": [0, MAX_COUNT - 1],
    "name": ["n", "n" * 255, "é\U0001f600", "two words"],
    "idempotencyKey": ["k", "k" * 255],
    "schedule": [0],
    "delay": [0, 0.5, MAX_SECONDS],
    "timeout": [0, 0.5, MAX_SECONDS],
    "maxCrashes": [1, MAX_COUNT],
    "retry": [
        *("none", "fixed", "exponential", "shop.retry.Policy", [0], [1, 2.5, 60]),
        {"strategy": "none"},
        {"strategy": "exponential", "base": 1, "multiplier": 1.5, "max": 9, "jitter": False},
    ],
    "singleInstance": ["s" * 255],
    "concurrencyKey": ["c" * 255],
    "concurrency": [1, MAX_COUNT],
    "atomic": [True, False],
    "uniqueKey": ["u" * 255],
    "resultTtl": [0, MAX_SECONDS],
    "tenant": ["t" * 255],
    "meta": [{}, {"a": [{"b": None}]}],
    "expiresAt": [0, MAX_MOMENT],
    "traceId": ["t" * 64],
    "replayOf": [ID],
}


def opened(body):
    text = body if isinstance(body, str) else json.dumps(body)
    return OPENER.open(Message(text, SIGNER.sign(text), "k1", Header()), "mail")


def refusal_of(body) -> Rejection:
    with pytest.raises(Rejection) as rejected:
        opened(body)
    return rejected.value


def shown(case) -> str:
    wire, value = case
    return f"{wire}={value!r}"[:60]


def cases(table):
    found = [(wire, value) for wire, values in table.items() for value in values]
    return pytest.mark.parametrize(("wire", "value"), found, ids=map(shown, found))


@cases(BAD)
def test_a_wrong_value_is_refused_and_the_field_is_named(wire, value):
    rejection = refusal_of(GOOD | {wire: value})
    assert rejection.reason == "rejected-malformed"
    assert wire in rejection.detail
    assert len(rejection.detail) < 200


@cases(EDGES)
def test_a_value_at_the_edge_is_accepted(wire, value):
    name = next(name for name, spelled in WIRE_NAMES.items() if spelled == wire)
    assert getattr(opened(GOOD | {wire: value}).terms, name) == value


def test_every_field_has_its_cases():
    fields = {*GOOD, *WIRE_NAMES.values()}
    assert BAD.keys() == fields - {"payload"}
    assert EDGES.keys() == fields - GOOD.keys()


@pytest.mark.parametrize("wire", GOOD)
def test_a_required_field_that_is_missing_is_refused_and_named(wire):
    rejection = refusal_of({name: value for name, value in GOOD.items() if name != wire})
    assert rejection.reason == "rejected-malformed"
    assert wire in rejection.detail


@pytest.mark.parametrize("body", ["[]", "null", "5", '"text"', "true", '[{"v":1}]'])
def test_a_body_that_is_no_object_is_refused(body):
    rejection = refusal_of(body)
    assert rejection.reason == "rejected-malformed"
    assert rejection.detail == "the body is not a JSON object"


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("NaN", "NaN is not JSON"),
        ("1e999", "out of range"),
        ('{"a":1,"a":2}', "occurs twice"),
        (r'"\u0000"', "NUL"),
        (r'"\ud800"', "surrogate"),
        ('"é"', "not ASCII"),
        ("[" * 64 + "]" * 64, "nested deeper"),
        ("1" * 4301, "is not JSON"),
        ("", "is not JSON"),
    ],
    ids=["nan", "huge", "twice", "nul", "surrogate", "ascii", "deep", "digits", "nothing"],
)
def test_a_payload_that_is_not_strict_json_is_refused_and_it_says_why(payload, why):
    text = json.dumps(GOOD).replace('"payload": null', f'"payload": {payload}')
    rejection = refusal_of(text)
    assert rejection.reason == "rejected-malformed"
    assert why in rejection.detail


def test_terms_that_are_equal_but_of_another_type_are_judged_anew():
    assert opened(GOOD | {"maxRetries": 1}).terms.max_retries == 1
    for value in (True, 1.0):
        assert refusal_of(GOOD | {"maxRetries": value}).reason == "rejected-malformed"


def test_jobs_share_nothing_that_a_handler_could_change():
    one, other = (opened(GOOD | {"meta": {"from": "here"}, "extra": []}) for _ in range(2))
    one.terms.meta["from"] = "elsewhere"
    one.unknown["extra"].append(1)
    assert other.terms.meta == {"from": "here"}
    assert other.unknown["extra"] == []
