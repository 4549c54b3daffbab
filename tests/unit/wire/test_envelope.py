"""What is written into a body, what the header is believed, and what columns are made of."""

import hashlib
import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.backends.database.rows import INDEX_FIELDS
from django_jobs.ids import new_id
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import (
    WIRE_NAMES,
    Envelope,
    Header,
    Message,
    Seal,
    Terms,
    index_of,
    key_digest,
)
from django_jobs.wire.signing import Signer, SigningKey
from django_jobs.wire.strict_json import NotStrictJson

SIGNER = Signer([SigningKey.named("k1", "a secret")])
FEW = Terms(job="shop.send", queue="mail", backend="database", site="shop.settings")
ALL = Terms(
    job="shop.send",
    queue="mail",
    backend="database",
    site="shop.settings",
    priority=-7,
    max_retries=3,
    name="Send é",
    idempotency_key="once",
    schedule=1_700_000_000_000_000,
    delay=1.5,
    timeout=30,
    max_crashes=2,
    retry=[1, 2.5],
    single_instance="one",
    concurrency_key="per-shop",
    concurrency=4,
    atomic=True,
    unique_key="welcome-1",
    result_ttl=60,
    tenant="acme",
    meta={"by": ["admin", None]},
    expires_at=1_800_000_000_000_000,
    trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    replay_of="018bcfe5-687b-7000-8000-000000000000",
)
ID = "018bcfe5-687b-7abc-8def-0123456789ab"
NOW = 1_700_000_000_123_456


def sealed(terms: Terms, payload: str = "null"):
    return Seal(terms, SIGNER).outgoing(ID, payload, NOW)


def test_a_body_says_what_the_job_is_and_leaves_out_what_was_not_said():
    assert sealed(FEW, '{"args":[1],"kwargs":{}}').body == (
        '{"v":1,"identifier":"018bcfe5-687b-7abc-8def-0123456789ab",'
        '"payload":{"args":[1],"kwargs":{}},"enqueuedAt":1700000000123456,'
        '"priority":0,"maxRetries":0,'
        '"job":"shop.send","queue":"mail","backend":"database","site":"shop.settings"}'
    )


def test_a_body_has_every_term_under_its_name_on_the_wire():
    assert json.loads(sealed(ALL).body) == {
        "v": 1,
        "identifier": ID,
        "payload": None,
        "enqueuedAt": NOW,
        "priority": -7,
        "maxRetries": 3,
        "name": "Send é",
        "idempotencyKey": "once",
        "schedule": 1_700_000_000_000_000,
        "delay": 1.5,
        "timeout": 30,
        "maxCrashes": 2,
        "retry": [1, 2.5],
        "singleInstance": "one",
        "concurrencyKey": "per-shop",
        "concurrency": 4,
        "atomic": True,
        "uniqueKey": "welcome-1",
        "resultTtl": 60,
        "tenant": "acme",
        "meta": {"by": ["admin", None]},
        "expiresAt": 1_800_000_000_000_000,
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
        "replayOf": "018bcfe5-687b-7000-8000-000000000000",
        "job": "shop.send",
        "queue": "mail",
        "backend": "database",
        "site": "shop.settings",
    }


def test_the_example_of_all_terms_leaves_none_out():
    assert all(getattr(ALL, term.name) is not None for term in fields(Terms))


def test_no_two_terms_share_a_name_on_the_wire():
    own = {"v", "identifier", "payload", "enqueuedAt"}
    assert WIRE_NAMES.keys() == {field.name for field in fields(Terms)}
    assert len({*WIRE_NAMES.values()} | own) == len(fields(Terms)) + len(own)


def test_a_body_is_ascii():
    assert sealed(ALL, strict_json.dumps("\U0001f600 é")).body.isascii()


def test_a_sealed_body_carries_the_signature_of_its_bytes_and_the_id_of_the_key():
    outgoing = sealed(ALL)
    assert outgoing.key_id == "k1"
    assert SIGNER.verify(outgoing.body.encode(), outgoing.signature, outgoing.key_id)
    assert outgoing.id == ID
    assert outgoing.terms is ALL


def test_one_seal_makes_many_bodies_that_share_nothing_but_the_terms():
    seal = Seal(FEW, SIGNER)
    made = [seal.outgoing(new_id(), f"[{n}]", NOW + n) for n in range(100)]
    bodies = [json.loads(outgoing.body) for outgoing in made]
    assert [body["payload"] for body in bodies] == [[n] for n in range(100)]
    assert [body["enqueuedAt"] for body in bodies] == [NOW + n for n in range(100)]
    assert [body["identifier"] for body in bodies] == [outgoing.id for outgoing in made]
    assert len({outgoing.signature for outgoing in made}) == 100
    for body in bodies:
        for own in ("identifier", "payload", "enqueuedAt"):
            del body[own]
    assert all(body == bodies[0] for body in bodies)


def test_terms_that_json_cannot_carry_are_refused_when_the_seal_is_made():
    with pytest.raises(ValueError, match="not JSON compliant"):
        Seal(replace(FEW, delay=float("nan")), SIGNER)


def test_a_payload_is_written_as_strict_json():
    assert strict_json.dumps({"args": ["é"], "kwargs": {}}) == '{"args":["\\u00e9"],"kwargs":{}}'
    with pytest.raises(NotStrictJson, match=r"payload\.args is of type set"):
        strict_json.dumps({"args": {1}})


@pytest.mark.parametrize(
    ("told", "believed"),
    [
        (Header(), Header()),
        (Header(attempts=3), Header(attempts=3)),
        (Header(attempts=4), Header(attempts=4)),
        (Header(attempts=5), Header(attempts=4)),
        (Header(attempts=2**63), Header(attempts=4)),
        (Header(attempts=-1), Header(attempts=0)),
        (Header(deliveries=-9, crashes=-9), Header()),
        (Header(deliveries=9, crashes=9), Header(deliveries=9, crashes=9)),
        (Header(available_at=-5), Header(available_at=-5)),
    ],
)
def test_a_header_is_held_within_what_the_body_allows(told, believed):
    assert told.clamped(replace(FEW, max_retries=3)) == believed


@given(*(st.integers() for _ in range(4)), st.integers(0, 2**31 - 2))
def test_clamping_a_header_twice_changes_no_more(attempts, deliveries, crashes, at, max_retries):
    terms = replace(FEW, max_retries=max_retries)
    once = Header(attempts, deliveries, crashes, at).clamped(terms)
    assert once.clamped(terms) == once
    assert 0 <= once.attempts <= max_retries + 1


FULLEST = Header(2**31 - 2, 2**31 - 2, 2**31 - 2, 2**53 - 1, put_off_since=NOW)
EMPTY = Header(0, 0, 0, 0, put_off_since=NOW)


@pytest.mark.parametrize("field", ["attempts", "deliveries", "crashes", "available_at"])
def test_each_number_of_a_store_is_held_to_the_range_of_stores(field):
    for header, by in ((EMPTY, -1), (FULLEST, 1)):
        assert header.bounded() == header
        beyond = header._replace(**{field: getattr(header, field) + by})
        assert beyond.bounded() == header


@pytest.mark.parametrize("field", ["attempts", "deliveries", "crashes"])
def test_each_counter_by_itself_is_held_above_zero(field):
    header, terms = Header(2, 2, 2), replace(FEW, max_retries=3)
    assert header.clamped(terms) == header
    below = header._replace(**{field: -1})
    assert below.clamped(terms) == header._replace(**{field: 0})


def test_a_job_without_retries_has_had_at_most_one_attempt():
    assert Header(attempts=7).clamped(FEW).attempts == 1


def test_the_index_is_made_of_the_terms():
    assert index_of(ID, ALL) == {
        "id": ID,
        "backend": "database",
        "queue": "mail",
        "handler": "shop.send",
        "name": "Send é",
        "rank": 7,
        "unique_key": hashlib.sha256(b"unique\x00database\x00welcome-1").hexdigest(),
        "concurrency_key": hashlib.sha256(b"instance\x00database\x00one").hexdigest(),
        "concurrency": 1,
        "idempotency_key": hashlib.sha256(
            b"idempotency\x00database\x00shop.send\x00once"
        ).hexdigest(),
        "tenant": "acme",
        "expires": 1_800_000_000_000_000,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "replay_of": "018bcfe5-687b-7000-8000-000000000000",
    }


def test_the_database_has_a_column_for_each_entry_of_the_index():
    assert tuple(index_of(ID, ALL)) == INDEX_FIELDS


def test_what_was_not_said_is_none_in_the_index_save_for_the_name():
    index = index_of(ID, FEW)
    assert index["name"] == ""
    assert index["rank"] == 0
    for column in ("unique_key", "concurrency_key", "tenant", "expires", "trace_id", "replay_of"):
        assert index[column] is None


@pytest.mark.parametrize("keys", [("a", "A"), ("é", "e"), ("a", "a "), ("", "\x00")], ids=ascii)
def test_keys_that_a_collation_may_take_for_equal_have_different_digests(keys):
    one, other = (key_digest("unique", "database", key) for key in keys)
    assert one != other


def test_a_key_digest_has_a_fixed_length_and_belongs_to_a_backend():
    lengths = {len(key_digest("unique", "database", "k" * length)) for length in (1, 64, 255)}
    assert lengths == {64}
    assert key_digest("unique", "one", "k") != key_digest("unique", "other", "k")


KEYS = {
    "unique_key": "unique_key",
    "concurrency_key": "concurrency_key",
    "single_instance": "concurrency_key",
    "idempotency_key": "idempotency_key",
}
"""Option of a job → the column that holds its digest."""


@pytest.mark.parametrize(
    "name", ["unique", "key", "concurrency", "instance", "single_instance", "idempotency", "once"]
)
def test_keys_of_different_kinds_never_share_a_digest_whatever_the_handler_is_called(name):
    pairs = [(name, "a"), ("a", name)]
    made = {
        index_of(ID, replace(FEW, job=job, **{kind: key}))[column]
        for kind, column in KEYS.items()
        for job, key in pairs
    }
    assert len(made) == len(KEYS) * len(pairs)


def test_the_digest_of_a_limit_is_the_one_that_stored_jobs_have():
    limited = replace(FEW, concurrency_key="shop", concurrency=3)
    digest = hashlib.sha256(b"concurrency\x00database\x00shop").hexdigest()
    assert (limited.lock, limited.places) == (digest, 3)
    assert replace(FEW, concurrency_key="shop").places == 1


def test_a_job_without_keys_has_no_digest():
    assert [FEW.unique, FEW.lock, FEW.once, FEW.places] == [None] * 4


def test_terms_envelopes_headers_and_messages_are_frozen():
    envelope = Envelope(identifier=ID, payload=None, enqueued_at=NOW, terms=FEW)
    message = Message("", "", "", Header())
    for thing, name in (
        (FEW, "queue"),
        (envelope, "payload"),
        (Header(), "attempts"),
        (message, "body"),
    ):
        with pytest.raises(AttributeError):
            setattr(thing, name, "changed")
