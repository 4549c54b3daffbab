"""The admin's page for other arguments: who may, what is taken, what is kept hidden."""

import json

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_jobs.admin.payloads import editable, from_editor
from django_jobs.models import FailedJob, Job
from django_jobs.redaction import HIDDEN, redacted
from testproject.shop.jobs import send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db
NEEDED = ("view_failedjob", "view_payload", "replay_failedjob", "edit_payload")


def edit_page(failed):
    return reverse("admin:django_jobs_failedjob_edit", args=[failed.pk])


def arguments(**kwargs):
    return json.dumps({"args": [], "kwargs": kwargs})


def test_replays_with_the_arguments_given(admin_client):
    failed = die(send_receipt.prepare(order_id=1))
    page = admin_client.get(edit_page(failed)).text
    assert "testproject.shop.jobs.send_receipt(order_id)" in page
    assert "&quot;order_id&quot;: 1" in page
    given = {"payload": arguments(order_id=2), "reason": "wrong order"}
    answer = admin_client.post(edit_page(failed), given, follow=True)
    assert "1 dead letter replayed as a new job." in answer.text
    assert json.loads(Job.objects.get().body)["payload"]["kwargs"] == {"order_id": 2}
    entry = LogEntry.objects.get().change_message
    assert "with edited arguments" in entry
    assert "Reason: wrong order" in entry
    again = admin_client.post(edit_page(failed), given, follow=True)
    assert "Only what is open" in again.text
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("", "required"),
        ("{", "not JSON"),
        ('{"args": [], "args": []}', "args"),
        (arguments(other=1), "cannot be called so"),
        ("[1, 2]", "takes a payload of the form"),
        (arguments(order_id=HIDDEN), "no hidden value"),
        ('{"args": [NaN], "kwargs": {}}', "NaN"),
    ],
)
def test_says_what_is_wrong_and_keeps_what_was_written(admin_client, payload, said):
    failed = die(send_receipt.prepare(order_id=1))
    page = admin_client.post(edit_page(failed), {"payload": payload, "reason": "because"}).text
    assert said in page
    assert "because</textarea>" in page
    assert not Job.objects.exists()


@pytest.mark.parametrize("missing", NEEDED)
def test_needs_every_one_of_four_permissions(someone, missing):
    failed = die(send_receipt.prepare(order_id=1))
    client = someone(*(name for name in NEEDED if name != missing))
    assert client.get(edit_page(failed)).status_code == 403
    given = {"payload": arguments(order_id=2)}
    assert client.post(edit_page(failed), given).status_code == 403
    assert not Job.objects.exists()
    page = reverse("admin:django_jobs_failedjob_change", args=[failed.pk])
    assert "Edit and replay" not in client.get(page).text
    allowed = someone(*NEEDED)
    assert "Edit and replay" in allowed.get(page).text
    assert allowed.get(edit_page(failed)).status_code == 200


def test_what_cannot_be_verified_cannot_be_edited(admin_client):
    failed = die(send_receipt.prepare(order_id=1))
    FailedJob.objects.update(name="another")
    page = reverse("admin:django_jobs_failedjob_change", args=[failed.pk])
    assert "Edit and replay" not in admin_client.get(page).text
    given = {"payload": arguments(order_id=2)}
    assert "Only what is open" in admin_client.post(edit_page(failed), given, follow=True).text
    assert not Job.objects.exists()


def test_hidden_values_are_kept_without_being_seen(admin_client):
    failed = die(send_receipt.prepare(order_id={"token": "hush", "number": 1}))
    page = admin_client.get(edit_page(failed)).text
    assert "hush" not in page
    given = {"payload": arguments(order_id={"token": HIDDEN, "number": 2})}
    admin_client.post(edit_page(failed), given)
    sent = json.loads(Job.objects.get().body)["payload"]["kwargs"]["order_id"]
    assert sent == {"token": "hush", "number": 2}


@pytest.mark.parametrize(
    "value",
    ["Zürich 東京 🎉", "\u202eturned", "\x9b31m", "\x1b", 'a"b\\c', "line\nline", "\u2028", ""],
)
def test_any_text_survives_the_editor(value):
    payload = {"args": [value], "kwargs": {"password": "x", value: value}}
    text = editable(json.dumps({"payload": payload}))
    assert from_editor(text) == redacted(payload)
    assert from_editor(text.replace("\n", "\r\n")) == redacted(payload)
