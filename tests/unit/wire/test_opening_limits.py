"""The limits of what may be read, as numbers: a changed one is noticed here, and on purpose."""

import json

import pytest

from django_jobs.exceptions import Rejection
from django_jobs.wire import envelope, opening, strict_json
from django_jobs.wire.envelope import Header, Message
from django_jobs.wire.opening import Opener, shortened
from django_jobs.wire.signing import Signer, SigningKey

SIGNER = Signer([SigningKey.named("k1", "a secret")])
LONGEST = {"job": "j" * 255, "queue": "q" * 64, "backend": "b" * 64, "site": "s" * 255}


def opened(**changed):
    body = {
        "v": 1,
        "identifier": "018bcfe5-687b-7abc-8def-0123456789ab",
        "payload": None,
        "enqueuedAt": 0,
        **LONGEST,
        **changed,
    }
    text = json.dumps(body)
    opener = Opener(
        backend=body["backend"], site=body["site"], max_payload_bytes=1000, signer=SIGNER
    )
    return opener.open(Message(text, SIGNER.sign(text), "k1", Header()), body["queue"])


def test_the_limits_are_these():
    assert opening.ENVELOPE_ALLOWANCE == 65_536
    assert strict_json.WIDEST == 3
    assert envelope.MAX_COUNT == 2_147_483_647
    assert envelope.MAX_MOMENT == 9_007_199_254_740_991
    assert envelope.MAX_SECONDS == 3_162_240_000


@pytest.mark.parametrize("field", LONGEST)
def test_a_name_may_be_as_long_as_its_column(field):
    assert getattr(opened().terms, field) == LONGEST[field]
    with pytest.raises(Rejection, match="rejected-malformed"):
        opened(**{field: LONGEST[field] + "x"})


def test_a_text_for_a_message_is_cut_at_eighty():
    assert shortened("x" * 80) == "x" * 80
    assert shortened("x" * 81) == "x" * 77 + "..."


def test_a_refusal_shows_the_value():
    with pytest.raises(Rejection, match="priority is 'high'"):
        opened(priority="high")
