"""Replaying with other arguments: judged by the handler, signed anew, secrets kept."""

import json

import pytest

from django_jobs.exceptions import InvalidPayload
from django_jobs.models import FailedJob, Job, OperatorEvent
from django_jobs.operations import Edited, replay
from django_jobs.operations.editing import restored
from django_jobs.operations.resealing import verified
from django_jobs.redaction import HIDDEN, redacted
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db


def arguments(*args, **kwargs):
    return Edited({"args": list(args), "kwargs": kwargs})


def test_the_new_job_has_the_new_arguments_under_a_signature_that_fits():
    failed = die(send_receipt.prepare(order_id=1))
    answer = replay(failed.pk, by="me", edited=arguments(order_id=2))
    job = Job.objects.get()
    assert (answer.status, answer.new_id) == ("replayed", str(job.pk))
    assert json.loads(job.body)["payload"] == {"args": [], "kwargs": {"order_id": 2}}
    assert json.loads(job.body)["replayOf"] == str(failed.job_id)
    names = ("body", "signature", "key_id", "backend", "queue", "handler", "name", "rank")
    row = FailedJob(job_id=job.pk, replay_of=job.replay_of, **{n: getattr(job, n) for n in names})
    assert verified(row).payload["kwargs"] == {"order_id": 2}
    failed.refresh_from_db()
    assert '"order_id":1' in failed.body
    assert OperatorEvent.objects.get(action="replay").detail["edited"] is True


@pytest.mark.parametrize(
    ("edited", "said"),
    [
        (arguments(), "order_id"),
        (arguments(order_id=1, other=2), "other"),
        (Edited([1]), "args"),
        (arguments(order_id=float("nan")), "nan"),
        (arguments(order_id="x" * 300_000), "MAX_PAYLOAD_BYTES"),
        (arguments(order_id=HIDDEN), "no hidden value"),
    ],
)
def test_what_the_handler_does_not_take_is_refused(edited, said):
    failed = die(send_receipt.prepare(order_id=1))
    answer = replay(failed.pk, by="me", edited=edited)
    assert answer.status == "refused"
    assert said.lower() in answer.why.lower()
    assert not Job.objects.exists()
    failed.refresh_from_db()
    assert failed.resolution == ""


def test_arguments_that_never_fitted_can_be_mended():
    failed = die(doomed.prepare())
    from django_jobs.conf import get_settings  # noqa: PLC0415 - as above
    from django_jobs.wire.signing import Signer  # noqa: PLC0415 - to sign what enqueue refuses

    body = failed.body.replace('"args":[]', '"args":[1]')
    FailedJob.objects.update(body=body, signature=Signer(get_settings().signing_keys).sign(body))
    assert replay(failed.pk, by="me").status == "refused"
    assert replay(failed.pk, by="me", edited=arguments()).status == "replayed"


def test_what_cannot_be_verified_cannot_be_edited_into_a_job_either():
    failed = die(send_receipt.prepare(order_id=1))
    FailedJob.objects.update(body=failed.body.replace('"order_id":1', '"order_id":3'))
    answer = replay(failed.pk, by="me", edited=arguments(order_id=2))
    assert answer.status == "refused"
    assert not Job.objects.exists()


SECRETIVE = {
    "args": ["--password", "p4", {"api_key": "k", "list": [{"token": "t"}]}, "token=abc"],
    "kwargs": {"password": {"deep": 1}, "to": "a", "note": HIDDEN},
}


def test_hidden_values_return_to_their_places():
    shown = redacted(SECRETIVE)
    assert restored(shown, SECRETIVE) == SECRETIVE
    shown["kwargs"]["to"] = "b"
    shown["args"][2]["list"].append("new")
    expected = json.loads(json.dumps(SECRETIVE))
    expected["kwargs"]["to"] = "b"
    expected["args"][2]["list"].append("new")
    assert restored(shown, SECRETIVE) == expected


def test_hidden_values_go_nowhere_else():
    for edited in (
        {"args": [], "kwargs": {"to": HIDDEN}},
        {"args": [HIDDEN], "kwargs": {}},
        {"args": ["--password", "x", {"list": [{"token": "y"}, {"token": HIDDEN}]}], "kwargs": {}},
    ):
        with pytest.raises(InvalidPayload, match="no hidden value in that place"):
            restored(edited, SECRETIVE)


def test_a_hidden_value_can_be_replaced():
    edited = redacted(SECRETIVE)
    edited["kwargs"]["password"] = "new"
    assert restored(edited, SECRETIVE)["kwargs"]["password"] == "new"


@pytest.mark.parametrize(
    ("old", "new"), [(1, True), (1, 1.0), ({"a": 0}, {"a": False}), ([1], [1.0])]
)
def test_values_that_only_seem_equal_are_changes(old, new):
    changed = restored({"args": [new]}, {"args": [old]})
    assert json.dumps(changed) == json.dumps({"args": [new]})
