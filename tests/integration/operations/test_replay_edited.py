"""Replaying with other arguments: judged by the handler, signed anew, secrets kept."""

import json

import pytest

from django_jobs import define
from django_jobs.exceptions import InvalidPayload
from django_jobs.handlers.command import CommandHandler
from django_jobs.handlers.event import EventHandler
from django_jobs.handlers.shell.handler import ShellHandler
from django_jobs.handlers.url import UrlHandler
from django_jobs.models import FailedJob, Job, OperatorEvent
from django_jobs.operations.replay import Edited, put_back, replay, restored, verified
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


WORDS = ["/usr/bin/mail", "--to", "a@x.test", "--password", "p4ss", "--cc", "b@x.test"]
CALL = {
    "method": "POST",
    "url": "https://hooks.x.test/in?a=1",
    "headers": {"Authorization": "Bearer p4ss", "Accept": "x"},
    "body": {"apiKey": "p4ss", "number": 1},
}
NEWS = {"name": "paid", "data": {"token": "p4ss", "number": 1}}


@pytest.fixture
def events(settings):
    signals = "tests.unit.handlers.signals_of_tests"
    names = {"paid": f"{signals}.paid", "refunded": f"{signals}.paid"}
    settings.DJANGO_JOBS = {"ALLOWED_EVENTS": names}


def changed(payload, place, value):
    """What is shown of a payload, with something else in one place."""
    shown = redacted(payload)
    *path, last = place
    within = shown
    for step in path:
        within = within[step]
    within[last] = value
    return shown


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize(
    ("handler", "payload", "place", "value"),
    [
        *((UrlHandler, CALL, ["url"], url) for url in (
            "https://evil.test/in?a=1", "http://hooks.x.test/in?a=1", "//hooks.x.test/in",
            "https://hooks.x.test:8443/in?a=1", "https://hooks.x.test.evil.test/", 1,
            "https://hooks.x.test@evil.test/", "https://evil.test#@hooks.x.test/",
        )),
        (EventHandler, NEWS, ["name"], "refunded"),
        (EventHandler, NEWS, ["name"], "unknown"),
        *((handler, WORDS, [number], value)
          for handler in (ShellHandler, CommandHandler)
          for number, value in ((0, "/bin/echo"), (1, "--bcc"), (2, "me@evil.test"),
                                (5, "--server"), (6, "evil.test"), (6, None))),
    ],
)  # fmt: skip
def test_hidden_values_are_sent_to_nobody_else(handler, payload, place, value):
    edited = changed(payload, place, value)
    assert HIDDEN in json.dumps(edited, ensure_ascii=False)
    with pytest.raises(InvalidPayload, match="stay with what they were meant for"):
        put_back(edited, payload, handler())


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize(
    ("handler", "payload", "place", "value"),
    [
        (UrlHandler, CALL, ["url"], "https://HOOKS.x.test:443/elsewhere"),
        (UrlHandler, CALL, ["body", "number"], 2),
        (UrlHandler, CALL, ["method"], "PUT"),
        (EventHandler, NEWS, ["data", "number"], 2),
        (None, {"args": [], "kwargs": {"token": "p4ss", "to": "a"}}, ["kwargs", "to"], "b"),
    ],
)
def test_beside_hidden_values_other_parts_may_change(handler, payload, place, value):
    edited = changed(payload, place, value)
    put = put_back(edited, payload, handler and handler())
    assert "p4ss" in json.dumps(put)
    assert HIDDEN not in json.dumps(put, ensure_ascii=False)


@pytest.mark.parametrize(
    ("handler", "edited", "payload"),
    [
        (UrlHandler, {**CALL, "url": "https://other.test/"}, CALL),
        (ShellHandler, ["/usr/bin/mail", "--to", "c@x.test", "--password", "new"], WORDS),
        (EventHandler, {"name": "refunded", "data": None}, NEWS),
    ],
)
def test_values_that_are_written_anew_may_go_anywhere(events, handler, edited, payload):
    assert put_back(edited, payload, handler()) == edited


@pytest.mark.parametrize(
    "edited",
    [
        {**CALL, "url": f"https://hooks.x.test/{HIDDEN}"},
        {**CALL, "headers": {"X-Note": HIDDEN}},
        {**CALL, "headers": {"Accept": HIDDEN}},
        {**CALL, "body": {"number": HIDDEN}},
        {**CALL, "body": {"apikey": HIDDEN}},
        {**CALL, "body": HIDDEN},
    ],
)
def test_hidden_values_of_a_request_go_to_no_other_part_of_it(edited):
    with pytest.raises(InvalidPayload, match="no hidden value in that place"):
        put_back(edited, CALL, UrlHandler())


def test_a_hidden_word_stays_behind_the_word_that_names_it():
    payload = {"args": [["--user", "a", "--password", "p4ss"]], "kwargs": {}}
    for words in (["--user", "a", "--note", HIDDEN], ["--user", HIDDEN, "--password", HIDDEN]):
        with pytest.raises(InvalidPayload, match="no hidden value in that place"):
            restored({"args": [words], "kwargs": {}}, payload)
    renamed = {"args": [["--user", "b", "--password", HIDDEN]], "kwargs": {}}
    assert restored(renamed, payload)["args"] == [["--user", "b", "--password", "p4ss"]]


@pytest.mark.parametrize(
    ("payload", "edited"),
    [
        ([{"name": "password", "value": "p4ss"}], [{"name": "comment", "value": HIDDEN}]),
        ({"key": "password", "value": "p4ss"}, {"value": HIDDEN}),
        ([["password", "p4ss"]], [["password", HIDDEN, "x"]]),
        (["mysql", "-u", "root", "-pp4ss"], ["echo", "-u", "root", f"-p{HIDDEN}"]),
        (["curl", "-u", "bob:p4ss"], ["curl", "--note", f"bob:{HIDDEN}"]),
    ],
)
def test_a_hidden_value_stays_hidden_whatever_is_changed_beside_it(payload, edited):
    with pytest.raises(InvalidPayload, match="would no longer be hidden"):
        restored(edited, payload)
    assert restored(redacted(payload), payload) == payload


def test_what_was_no_request_before_has_no_values_to_send(events):
    broken = {**CALL, "url": "hooks.x.test/in"}
    with pytest.raises(InvalidPayload, match="stay with what they were meant for"):
        put_back(redacted(CALL), broken, UrlHandler())


def test_a_dead_request_is_not_replayed_to_another_host_with_what_is_hidden(settings):
    settings.DJANGO_JOBS = {
        "ALLOWED_URLS": ["https://hooks.x.test/*", "https://evil.test/*"],
        "QUEUES": {"far": {"HANDLERS": ["url"]}},
    }
    call = {**CALL, "headers": {}}
    failed = die(define("url", call, queue="far"))
    away = {**redacted(call), "url": "https://evil.test/in"}
    answer = replay(failed.pk, by="me", edited=Edited(away))
    assert (answer.status, Job.objects.count()) == ("refused", 0)
    assert "hidden values" in answer.why
    there = {**redacted(call), "url": "https://hooks.x.test/out"}
    assert replay(failed.pk, by="me", edited=Edited(there)).status == "replayed"
    assert json.loads(Job.objects.get().body)["payload"] == {**call, "url": there["url"]}
