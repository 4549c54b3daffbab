"""A body in the very form of ``Seal`` is taken apart quickly, and says what it says otherwise."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.exceptions import Rejection
from django_jobs.wire import opening
from django_jobs.wire.envelope import (
    MAX_MOMENT,
    Header,
    Message,
    Seal,
    Terms,
    columns_of,
)
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer, SigningKey

SIGNER = Signer([SigningKey.named("k1", "a secret")])
ID = "018bcfe5-687b-7abc-8def-0123456789ab"
OTHER_ID = "018bcfe5-687b-7abc-8def-ba9876543210"
NOW = 1_700_000_000_123_456
TERMS = Terms(job="shop.send", queue="mail", backend="database", site="shop.settings")
OPENER = Opener("database", "shop.settings", max_payload_bytes=100_000, signer=SIGNER)
PAYLOAD = '{"args":[1],"kwargs":{"x":"\\u00e9,\\"enqueuedAt\\":1"}}'
BODY = Seal(TERMS, SIGNER).outgoing(ID, PAYLOAD, NOW).body


def both(body):
    """What the quick way and the whole way say: a refusal by its reason and detail."""
    return said(opening._parse_as_sealed, body), said(opening._parse_whole, body)


def said(parse, body):
    try:
        return parse(body)
    except Rejection as rejection:
        return rejection.reason, rejection.detail


def test_what_seal_writes_is_taken_apart_quickly():
    quick, whole = both(BODY)
    assert quick == whole
    assert quick[:3] == (ID, NOW, json.loads(PAYLOAD))
    assert quick[3].terms == TERMS


def test_jobs_of_the_same_terms_share_what_was_read_of_them():
    other = Seal(TERMS, SIGNER).outgoing(OTHER_ID, "[]", NOW + 1).body
    assert opening._parse_as_sealed(BODY)[3] is opening._parse_as_sealed(other)[3]


@pytest.mark.parametrize("terms", [{"retry": [1.0]}, {"meta": {"a": 1}}])
def test_what_can_be_changed_is_never_shared(terms):
    told = {field.name: getattr(TERMS, field.name) for field in fields(TERMS)}
    body = Seal(Terms(**{**told, **terms}), SIGNER).outgoing(ID, PAYLOAD, NOW).body
    assert opening._parse_as_sealed(body) is None
    (name,) = terms
    first, second = (opening._parse(body)[3].terms for _ in range(2))
    assert getattr(first, name) == getattr(second, name)
    assert getattr(first, name) is not getattr(second, name)


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace('"v":1', '"v":2'),
        BODY.replace('"v":1', '"v": 1'),
        BODY.replace(ID, ID.upper()),
        BODY.replace(ID, ID[:-1]),
        BODY.replace('"payload"', '"Payload"'),
        BODY.replace(PAYLOAD, ""),
        BODY.replace(PAYLOAD, "NaN"),
        BODY.replace(PAYLOAD, '{"a":1,"a":2}'),
        BODY.replace(PAYLOAD, "[" * 65 + "]" * 65),
        BODY.replace(PAYLOAD, '"\\u0000"'),
        BODY.replace(PAYLOAD, '"\\ud800"'),
        BODY.replace(PAYLOAD, '"é"'),
        BODY.replace(PAYLOAD, "1e999"),
        BODY.replace(str(NOW), "0"),
        BODY.replace(str(NOW), f"0{NOW}"),
        BODY.replace(str(NOW), "-1700000000123456"),
        BODY.replace(str(NOW), f"{NOW}.0"),
        BODY.replace(str(NOW), str(MAX_MOMENT + 1)),
        BODY.replace(f',"enqueuedAt":{NOW}', ""),
        BODY.replace('"enqueuedAt"', '"enqueuedat"'),
        BODY[:-1],
        BODY + "}",
        BODY + " ",
        BODY[:-1] + ',"v":1}',
        BODY[:-1] + f',"identifier":"{OTHER_ID}"}}',
        BODY[:-1] + ',"payload":{}}',
        BODY[:-1] + ',"payload":1}',
        BODY[:-1] + f',"enqueuedAt":{NOW}}}',
        BODY[:-1] + ',"job":"shop.burn"}',
        BODY[: BODY.index(str(NOW)) + 16] + "}",
        BODY[: BODY.index(str(NOW)) + 16] + ",}",
        BODY.replace('"job":"shop.send"', '"job":1'),
        BODY.replace('"job":"shop.send",', ""),
        BODY.replace('"queue"', '"traceParent":"00-x","queue"'),
        "[" + BODY + "]",
        "",
    ],
)
def test_it_is_refused_or_read_as_the_whole_is(body):
    quick, whole = both(body)
    assert quick is None or quick == whole
    assert said(opening._parse, body) == whole


@pytest.mark.parametrize("moment", [10**15, MAX_MOMENT])
def test_the_quick_way_takes_every_moment_of_sixteen_digits_that_may_be(moment):
    assert opening._parse_as_sealed(BODY.replace(str(NOW), str(moment)))[1] == moment


@pytest.mark.parametrize("moment", [10**15 - 1, MAX_MOMENT + 1])
def test_others_are_left_to_the_whole_way(moment):
    assert opening._parse_as_sealed(BODY.replace(str(NOW), str(moment))) is None


@given(
    st.integers(0, len(BODY)),
    st.integers(0, 12),
    st.text('{}[]",:0123456789abcdefnrtuv\\ \u00e9', max_size=12),
)
def test_whatever_is_done_to_a_body_both_ways_agree(place, length, put):
    body = BODY[:place] + put + BODY[place + length :]
    quick, whole = both(body)
    assert quick is None or quick == whole


# -- the columns beside it -----------------------------------------------------------------


def message(index, own_id):
    return Message(BODY, SIGNER.sign(BODY), "k1", Header(), index, own_id)


def test_an_id_that_is_kept_apart_is_compared_as_well():
    assert OPENER.open(message(columns_of(TERMS), ID), "mail").identifier == ID
    with pytest.raises(Rejection, match="the column id says '018bcfe5") as rejected:
        OPENER.open(message(columns_of(TERMS), OTHER_ID), "mail")
    assert rejected.value.reason == "rejected-mismatch"


def test_a_column_that_says_something_else_is_refused_beside_a_right_id():
    with pytest.raises(Rejection, match=r"the column handler says 'shop\.burn'"):
        OPENER.open(message({**columns_of(TERMS), "handler": "shop.burn"}, ID), "mail")


def test_some_of_the_columns_are_enough():
    assert OPENER.open(message({"handler": "shop.send"}, ID), "mail").terms == TERMS
    assert OPENER.open(message({}, None), "mail").terms == TERMS
