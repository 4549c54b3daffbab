"""Opening a message: every refusal by name, and the order in which the checks are made."""

import json
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from django_jobs.exceptions import Rejection
from django_jobs.wire.envelope import (
    WIRE_NAMES,
    Header,
    Message,
    Seal,
    Terms,
    index_of,
)
from django_jobs.wire.opening import ENVELOPE_ALLOWANCE, NewerVersion, Opener
from django_jobs.wire.signing import Signer, SigningKey

KEY = SigningKey.named("k1", "a secret")
SIGNER = Signer([KEY])
ID = "018bcfe5-687b-7abc-8def-0123456789ab"
OTHER_ID = "018bcfe5-687b-7abc-8def-ba9876543210"
NOW = 1_700_000_000_123_456
OPENER = Opener(backend="database", site="shop.settings", max_payload_bytes=1000, signer=SIGNER)
UNVERIFIED = replace(OPENER, verify_signatures=False)
LIMIT = 3 * 1000 + ENVELOPE_ALLOWANCE  # letters are three times as long when they are escaped

GOOD = {
    "v": 1,
    "identifier": ID,
    "payload": {"args": [1], "kwargs": {}},
    "enqueuedAt": NOW,
    "job": "shop.send",
    "queue": "mail",
    "backend": "database",
    "site": "shop.settings",
}


def without(name):
    return {key: value for key, value in GOOD.items() if key != name}


def signed(body, *, signer=SIGNER, header=None, index=None) -> Message:
    """A message with a correct signature, whatever the body."""
    text = body if isinstance(body, str) else json.dumps(body)
    return Message(text, signer.sign(text), signer.key_id, header or Header(), index or {})


def reason_for(message: Message, *, opener=OPENER, queue="mail") -> str:
    with pytest.raises(Rejection) as rejected:
        opener.open(message, queue)
    assert len(rejected.value.detail) < 5_000
    return rejected.value.reason


def detail_for(message: Message, *, opener=OPENER, queue="mail") -> str:
    with pytest.raises(Rejection) as rejected:
        opener.open(message, queue)
    return rejected.value.detail


# -- what is opened ------------------------------------------------------------------------


def test_a_sealed_message_opens_to_what_was_sealed():
    terms = Terms(
        job="shop.send", queue="mail", backend="database", site="shop.settings", priority=5,
        max_retries=2, name="Send", idempotency_key="i", schedule=5, delay=0.5, timeout=0,
        max_crashes=1, retry={"strategy": "exponential", "base": 1}, single_instance="s",
        concurrency_key="c", concurrency=1, atomic=False, unique_key="u", result_ttl=0,
        tenant="t", meta={"a": {"b": []}}, expires_at=9, trace_id="x", replay_of=OTHER_ID,
    )  # fmt: skip
    outgoing = Seal(terms, SIGNER).outgoing(ID, '{"args":["\\u00e9"]}', NOW)
    header = Header(available_at=5)
    message = Message(
        outgoing.body, outgoing.signature, outgoing.key_id, header, index_of(ID, terms)
    )
    envelope = OPENER.open(message, "mail")
    assert envelope.terms == terms
    assert (envelope.identifier, envelope.enqueued_at) == (ID, NOW)
    assert envelope.payload == {"args": ["é"]}
    assert envelope.unknown == {}


def test_what_was_not_said_is_as_if_never_heard_of():
    envelope = OPENER.open(signed(GOOD), "mail")
    assert envelope.terms == Terms(
        job="shop.send", queue="mail", backend="database", site="shop.settings"
    )


def test_null_is_as_good_as_not_said():
    optional = {wire: None for wire in WIRE_NAMES.values() if wire not in GOOD}
    assert OPENER.open(signed(GOOD | optional), "mail") == OPENER.open(signed(GOOD), "mail")


def test_a_payload_of_null_is_a_payload():
    assert OPENER.open(signed(GOOD | {"payload": None}), "mail").payload is None


def test_unknown_fields_of_this_version_are_kept_and_ignored():
    envelope = OPENER.open(signed(GOOD | {"colour": {"deep": [1]}, "x": None}), "mail")
    assert envelope.unknown == {"colour": {"deep": [1]}, "x": None}


def test_white_space_and_the_order_of_fields_are_the_writers_business():
    text = json.dumps(dict(reversed(GOOD.items())), indent=3)
    assert OPENER.open(signed(text), "mail").identifier == ID


def test_a_message_signed_before_a_rotation_is_opened_after_it():
    rotated = replace(OPENER, signer=Signer([SigningKey.named("k2", "newer"), KEY]))
    assert rotated.open(signed(GOOD), "mail").identifier == ID


def test_without_verification_an_unsigned_message_opens():
    assert UNVERIFIED.open(Message(json.dumps(GOOD), "", "", Header()), "mail").identifier == ID


# -- size, before the signature ------------------------------------------------------------


def padded(length: int) -> str:
    text = json.dumps(GOOD)
    return text + " " * (length - len(text))


def test_a_body_of_exactly_the_limit_is_opened():
    assert OPENER.open(signed(padded(LIMIT)), "mail").identifier == ID


def test_a_body_above_the_limit_is_too_large_however_well_signed():
    message = signed(padded(LIMIT + 1))
    assert reason_for(message) == "rejected-too-large"
    assert detail_for(message) == f"the body has {LIMIT + 1} bytes, {LIMIT} are allowed"


@pytest.mark.parametrize(
    "odd",
    [
        {"body": b"\xff"},
        {"body": None},
        {"body": 5},
        {"signature": b"x"},
        {"signature": 7},
        {"key_id": ["k1"]},
        {"header": Header(attempts="many")},
        {"header": Header(crashes=b"x")},
        {"header": Header(deliveries=None)},
        {"index": 5},
    ],
    ids=str,
)
def test_what_no_store_should_give_back_is_refused_and_raises_nothing_else(odd):
    assert reason_for(signed(GOOD)._replace(**odd)).startswith("rejected-")


def test_size_is_checked_before_the_signature():
    assert reason_for(Message("x" * (LIMIT + 1), "", "", Header())) == "rejected-too-large"


def test_size_is_checked_without_verification_too():
    message = Message(padded(LIMIT + 1), "", "", Header())
    assert reason_for(message, opener=UNVERIFIED) == "rejected-too-large"


# -- the signature, before the parser ------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    ["", "garbage", "{", '{"v":2}', '{"a":1,"a":2}', "[" * 5_000, "NaN", "é\ud800", "null"],
    ids=["empty", "words", "cut", "newer", "twice", "deep", "nan", "surrogate", "null"],
)
def test_an_unsigned_body_never_reaches_the_parser(body):
    message = Message(body, "", "k1", Header())
    assert reason_for(message) == "rejected-signature"
    assert detail_for(message) == "the message is not signed"
    # Positive control: this is what the parser would have said.
    assert reason_for(message, opener=UNVERIFIED) in {"rejected-malformed", "unknown-version"}


def test_a_forged_signature_is_refused():
    message = signed(GOOD)._replace(signature="0" * 64)
    assert reason_for(message) == "rejected-signature"
    assert detail_for(message) == "the signature does not fit the body"


@pytest.mark.parametrize("signature", ["é" * 64, "g" * 64, "0" * 63, "\ud800", " " * 64], ids=ascii)
def test_a_signature_that_is_none_is_refused(signature):
    assert reason_for(signed(GOOD)._replace(signature=signature)) == "rejected-signature"


def test_a_changed_body_is_refused():
    message = signed(GOOD)
    changed = message._replace(body=message.body.replace("shop.send", "shop.burn"))
    assert reason_for(changed) == "rejected-signature"


def test_a_body_cut_in_half_is_refused():
    message = signed(GOOD)
    cut = message._replace(body=message.body[: len(message.body) // 2])
    assert reason_for(cut) == "rejected-signature"
    assert reason_for(cut, opener=UNVERIFIED) == "rejected-malformed"


def test_a_retired_key_is_named():
    message = signed(GOOD, signer=Signer([SigningKey.named("k0", "older")]))
    assert reason_for(message) == "unknown-key"
    assert detail_for(message) == "no signing key has the id 'k0'; was it retired?"


def test_a_long_key_id_is_shortened_when_it_is_named():
    assert len(detail_for(signed(GOOD)._replace(key_id="k" * 100_000))) < 200


def test_a_newer_version_must_be_signed_like_any_other():
    message = signed(GOOD | {"v": 2})._replace(signature="0" * 64)
    assert reason_for(message) == "rejected-signature"


def test_no_detail_shows_the_payload_or_a_key():
    secretive = GOOD | {"payload": "p4yl0ad", "priority": 1000}
    for message in (signed(secretive), signed(secretive)._replace(signature="0" * 64)):
        assert "p4yl0ad" not in detail_for(message)
        assert "a secret" not in detail_for(message)


# -- the version ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3, 10**100])
def test_a_newer_version_is_no_forgery(version):
    with pytest.raises(NewerVersion) as newer:
        OPENER.open(signed({"v": version}), "mail")
    assert newer.value.reason == "unknown-version"


def test_of_a_newer_version_nothing_else_is_judged():
    message = signed({"v": 2, "identifier": 5, "queue": ["other"]})
    assert reason_for(message, queue="elsewhere") == "unknown-version"


# -- bindings, after the fields and before the columns ---------------------------------------


@pytest.mark.parametrize("name", ["site", "backend", "queue"])
def test_a_message_for_elsewhere_is_refused(name):
    message = signed(GOOD | {name: "other"})
    assert reason_for(message) == ("other-site" if name == "site" else f"rejected-{name}")
    here = GOOD[name]
    assert detail_for(message) == f"the job was made for the {name} 'other', not '{here}'"


def test_a_message_moved_to_another_queue_is_refused():
    assert reason_for(signed(GOOD), queue="admin") == "rejected-queue"


def test_bindings_are_compared_letter_by_letter():
    for queue in ("Mail", "mail ", "mai", "mail\n"):
        assert reason_for(signed(GOOD), queue=queue) == "rejected-queue"


def test_the_site_is_judged_before_the_backend_and_that_before_the_queue():
    elsewhere = GOOD | {"site": "x", "backend": "x", "queue": "x"}
    assert reason_for(signed(elsewhere)) == "other-site"
    assert reason_for(signed(elsewhere | {"site": GOOD["site"]})) == "rejected-backend"


def test_fields_are_judged_before_bindings():
    assert reason_for(signed(GOOD | {"site": "x", "priority": 101})) == "rejected-malformed"


def test_bindings_are_judged_before_columns():
    message = signed(GOOD, index={"handler": "other"})
    assert reason_for(message, queue="admin") == "rejected-queue"


def test_bindings_hold_without_verification_too():
    message = Message(json.dumps(GOOD | {"site": "x"}), "", "", Header())
    assert reason_for(message, opener=UNVERIFIED) == "other-site"


# -- the columns beside the body -------------------------------------------------------------

FULL = GOOD | {
    "name": "Send",
    "priority": 5,
    "uniqueKey": "u",
    "concurrencyKey": "c",
    "idempotencyKey": "i",
    "tenant": "t",
    "expiresAt": 9,
    "traceId": "x",
    "replayOf": OTHER_ID,
}
COLUMNS = index_of(ID, OPENER.open(signed(FULL), "mail").terms)


def test_columns_that_say_what_the_body_says_are_believed():
    assert OPENER.open(signed(FULL, index=COLUMNS), "mail").identifier == ID


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_says_something_else_is_refused(column):
    for other in ("other", None, -1, "", 0):
        message = signed(FULL, index=COLUMNS | {column: other})
        assert reason_for(message) == "rejected-mismatch"
        assert f"the column {column} says {other!r}" in detail_for(message)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_store_need_not_keep_every_column(column):
    kept = {name: value for name, value in COLUMNS.items() if name != column}
    assert OPENER.open(signed(FULL, index=kept), "mail").identifier == ID


def test_a_message_must_not_become_due_before_its_signed_schedule():
    body = GOOD | {"schedule": 1_000}
    assert reason_for(signed(body, header=Header(available_at=999))) == "rejected-mismatch"
    for later in (1_000, 1_001, 2**60):
        assert OPENER.open(signed(body, header=Header(available_at=later)), "mail")


def test_without_a_schedule_any_time_is_fine():
    for at in (-1, 0, 2**60):
        assert OPENER.open(signed(GOOD, header=Header(available_at=at)), "mail")


def test_counters_are_clamped_not_refused():
    wild = Header(attempts=10**9, deliveries=-1, crashes=-1)
    envelope = OPENER.open(signed(GOOD | {"maxRetries": 2}, header=wild), "mail")
    assert wild.clamped(envelope.terms) == Header(attempts=3)


# -- properties ------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from([*GOOD, *WIRE_NAMES.values()])


def outcome_of(message: Message) -> str:
    try:
        OPENER.open(message, "mail")
    except Rejection as rejection:
        return rejection.reason
    return "opened"


@given(st.dictionaries(names, anything, max_size=4), st.sets(names, max_size=1))
def test_well_signed_nonsense_is_never_more_than_a_rejection(changed, removed):
    body = {name: value for name, value in (GOOD | changed).items() if name not in removed}
    event(outcome_of(signed(body)))


@given(st.data())
def test_well_signed_damaged_text_is_never_more_than_a_rejection(data):
    text = json.dumps(FULL)
    cut, resume = data.draw(st.tuples(*[st.integers(0, len(text))] * 2))
    junk = data.draw(st.text('{}[]",:\\u0d8v1N', max_size=6))
    event(outcome_of(signed(text[:cut] + junk + text[resume:])))


@given(st.text(), st.text(), st.text())
def test_anything_from_outside_is_never_more_than_a_rejection(body, signature, key_id):
    named = bool(signature and key_id)
    expected = "unknown-key" if named and key_id != "k1" else "rejected-signature"
    assert outcome_of(Message(body, signature, key_id, Header())) == expected
