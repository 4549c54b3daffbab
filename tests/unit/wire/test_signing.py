"""Signatures: rotation, binding to a key's name, and everything that is no signature."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.wire.signing import Signer, SigningKey

BODY = '{"v":1,"identifier":"x"}'
OLD = SigningKey.named("2025", "the old secret")
NEW = SigningKey.named("2026", "the new secret")


def by_hand(secret: bytes, key_id: bytes, body: bytes) -> str:
    """RFC 2104 written out, over what docs/reference/wire-format.md says is signed."""
    message = b"django_jobs.envelope.v1" + b"\0" + key_id + b"\0" + body
    block = (secret if len(secret) <= 64 else hashlib.sha256(secret).digest()).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block) + message).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner).hexdigest()


def verifies(signer: Signer, body: str, signature: str, key_id: str) -> bool:
    return signer.verify(body.encode(), signature, key_id)


def with_digit(signature: str, place: int, digit: str) -> str:
    return signature[:place] + digit + signature[place + 1 :]


@given(st.binary(min_size=1, max_size=200), st.text("abc-.0", min_size=1), st.text())
def test_a_signature_is_the_documented_construction(secret, key_id, body):
    body = body.encode("utf-8", "replace").decode()
    signature = Signer([SigningKey.named(key_id, secret)]).sign(body)
    assert signature == by_hand(secret, key_id.encode(), body.encode())


def test_the_hand_written_construction_is_hmac():
    expected = hmac.new(b"k" * 99, b"django_jobs.envelope.v1\x00id\x00body", "sha256").hexdigest()
    assert by_hand(b"k" * 99, b"id", b"body") == expected


def test_what_was_signed_verifies():
    signer = Signer([NEW])
    assert verifies(signer, BODY, signer.sign(BODY), signer.key_id)


def test_signing_and_verifying_many_times_gives_the_same():
    signer = Signer([NEW, OLD])
    assert len({signer.sign(BODY) for _ in range(5)}) == 1
    assert all(verifies(signer, BODY, signer.sign(BODY), "2026") for _ in range(5))


def test_the_first_key_signs_and_every_key_verifies():
    before, during, after = Signer([OLD]), Signer([NEW, OLD]), Signer([NEW])
    signed_before = before.sign(BODY)
    assert during.key_id == "2026"
    assert verifies(during, BODY, signed_before, "2025")
    assert verifies(during, BODY, during.sign(BODY), "2026")
    assert during.sign(BODY) == after.sign(BODY)


def test_a_key_that_verifies_before_it_signs_makes_a_rotation_without_gaps():
    announced = Signer([OLD, NEW])
    assert announced.key_id == "2025"
    assert verifies(announced, BODY, Signer([NEW]).sign(BODY), "2026")


def test_a_retired_key_no_longer_verifies():
    assert not verifies(Signer([NEW]), BODY, Signer([OLD]).sign(BODY), "2025")


def test_a_retired_key_is_not_known():
    signer = Signer([NEW])
    assert signer.knows("2026")
    assert not signer.knows("2025")
    assert not signer.knows("")


def test_an_unknown_key_id_verifies_nothing():
    signer = Signer([NEW])
    for key_id in ("", "2027", "2026 ", "2026\x00", "é", "\ud800", "x" * 100_000):
        assert not verifies(signer, BODY, signer.sign(BODY), key_id)


def test_a_signature_under_one_id_is_none_under_another_even_with_the_same_secret():
    one, other = SigningKey.named("one", "same"), SigningKey.named("other", "same")
    signed = Signer([one]).sign(BODY)
    both = Signer([other, one])
    assert verifies(both, BODY, signed, "one")
    assert not verifies(both, BODY, signed, "other")


def test_the_border_between_key_id_and_body_cannot_be_moved():
    signed = Signer([SigningKey.named("a", "same")]).sign("b" + BODY)
    assert not verifies(Signer([SigningKey.named("ab", "same")]), BODY, signed, "ab")


def test_a_signature_of_another_key_does_not_verify_under_a_known_id():
    impostor = SigningKey.named("2026", "guessed")
    assert not verifies(Signer([NEW]), BODY, Signer([impostor]).sign(BODY), "2026")


@pytest.mark.parametrize("body", [BODY + " ", BODY[:-1], "", BODY.replace("1", "2"), "\x00" + BODY])
def test_another_body_does_not_verify(body):
    signer = Signer([NEW])
    assert not verifies(signer, body, signer.sign(BODY), "2026")


def test_a_change_of_any_digit_is_noticed():
    signer = Signer([NEW])
    signature = signer.sign(BODY)
    for place, digit in enumerate(signature):
        other = "0" if digit != "0" else "1"
        assert not verifies(signer, BODY, with_digit(signature, place, other), "2026")


@pytest.mark.parametrize("length", [0, 1, 2, 32, 62, 63])
def test_a_truncated_signature_does_not_verify(length):
    signer = Signer([NEW])
    assert not verifies(signer, BODY, signer.sign(BODY)[:length], "2026")


def test_a_signature_with_something_added_does_not_verify():
    signer = Signer([NEW])
    for extra in ("0", "00", "\n", " ", "0" * 64, "0" * 100_000):
        assert not verifies(signer, BODY, signer.sign(BODY) + extra, "2026")


@pytest.mark.parametrize(
    "digit", ["g", "-", " ", "\n", "\x00", "é", "٣", "\ud800", "\uff21"], ids=ascii
)
def test_a_signature_that_is_not_hex_does_not_verify_and_does_not_raise(digit):
    signer = Signer([NEW])
    signature = signer.sign(BODY)
    for place in (0, 1, 31, 63):
        assert not verifies(signer, BODY, with_digit(signature, place, digit), "2026")
    assert not verifies(signer, BODY, digit * 64, "2026")


def test_white_space_between_the_digits_does_not_make_a_short_signature_long():
    signer = Signer([NEW])
    signature = signer.sign(BODY)
    assert not verifies(signer, BODY, signature[:62] + "  ", "2026")
    assert not verifies(signer, BODY, " ".join([signature[:32], signature[32:63]]), "2026")


def test_upper_case_hex_is_the_same_signature():
    # It names the same bytes and nothing is looked up by its spelling, so it is let through.
    signer = Signer([NEW])
    assert signer.sign(BODY) == signer.sign(BODY).lower()
    assert verifies(signer, BODY, signer.sign(BODY).upper(), "2026")


@pytest.mark.parametrize("signature", ["0" * 64, "f" * 64, hashlib.sha256(b"").hexdigest()])
def test_a_guessed_signature_does_not_verify(signature):
    assert not verifies(Signer([NEW]), BODY, signature, "2026")


@given(st.binary(), st.text(), st.text())
def test_verifying_anything_never_raises(body, signature, key_id):
    assert Signer([NEW, OLD]).verify(body, signature, key_id) is False


def test_a_signer_without_keys_is_refused():
    with pytest.raises(ValueError, match="at least one key"):
        Signer([])


@pytest.mark.parametrize("empty", ["", b""], ids=["text", "bytes"])
def test_an_empty_key_is_refused_wherever_it_stands(empty):
    for keys in (
        [SigningKey.named("empty", empty)],
        [NEW, SigningKey.named("empty", empty)],
        [SigningKey.unnamed(empty), NEW],
    ):
        with pytest.raises(ValueError, match="no empty one"):
            Signer(keys)


def test_a_key_may_be_given_as_text_or_as_its_bytes():
    assert SigningKey.named("k", "sécret") == SigningKey.named("k", "sécret".encode())
    assert SigningKey.unnamed("sécret") == SigningKey.unnamed("sécret".encode())


def test_an_unnamed_key_has_a_stable_id_that_depends_on_the_secret():
    assert SigningKey.unnamed("one").key_id == SigningKey.unnamed(b"one").key_id == "3e55bcea0313"
    assert SigningKey.unnamed("one").key_id != SigningKey.unnamed("two").key_id


def test_the_id_of_an_unnamed_key_is_no_plain_digest_of_the_secret():
    key = SigningKey.unnamed("secret")
    assert len(key.key_id) == 12
    assert not hashlib.sha256(b"secret").hexdigest().startswith(key.key_id)


def test_no_repr_shows_a_secret():
    keys = [SigningKey.named("named", "s3cr3t"), SigningKey.unnamed("s3cr3t")]
    signer = Signer(keys)
    for shown in (*map(repr, keys), *map(str, keys), repr(signer), str(signer)):
        assert "s3cr3t" not in shown
