"""Built-in handlers and handler classes through a real store: from enqueue to the end."""

import json
from dataclasses import dataclass
from datetime import date
from io import StringIO

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.dispatch import Signal

from django_jobs import JobHandler, TypedContext, define, job
from django_jobs.exceptions import HandlerRefused
from django_jobs.handlers.registry import registry
from django_jobs.models import FailedJob, Job, JobResult
from django_jobs.redaction import HIDDEN
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db
PASSWORD = "hunter" + "2"
order_paid = Signal()
OPEN = {
    "QUEUES": {"maintenance": {"HANDLERS": ["command", "shell", "event"]}, "default": {}},
    "ALLOWED_COMMANDS": ["clearsessions"],
    "ALLOWED_SHELL_COMMANDS": ["/bin/echo", "/bin/false"],
    "ALLOWED_EVENTS": {"order.paid": f"{__name__}.order_paid"},
}


@dataclass(frozen=True)
class Report:
    day: date
    lines: tuple[str, ...] = ()


@job(key="tests.write_report")
class WriteReport(JobHandler[Report, str]):
    def handle(self, context: TypedContext[Report]) -> str:
        return f"{context.payload.day:%A} {context.payload.lines}"


@pytest.fixture(autouse=True)
def site(settings):
    settings.DJANGO_JOBS = OPEN
    return settings


def enqueued_by_command(*words):
    out = StringIO()
    call_command("jobs_enqueue", *words, stdout=out)
    return out.getvalue().strip()


def test_all_four_are_registered():
    assert {"command", "shell", "event"} <= set(registry)


def test_a_command_from_code_and_from_the_command_line():
    by_code = define("command", ["clearsessions"], queue="maintenance").enqueue()
    by_hand = enqueued_by_command("command", '["clearsessions"]', "--queue=maintenance")
    for job_id in (by_code.id, by_hand):
        report = process_once("maintenance")
        assert (report.status, report.job_id) == ("acked", job_id)
    assert by_code.status == "succeeded"
    assert by_code.result() is None


def test_a_program_and_its_output():
    define("shell", ["echo", "a", 7], queue="maintenance").enqueue()
    assert process_once("maintenance").status == "acked"
    assert JobResult.objects.get().output == "a 7\n"


def test_h11_an_event_with_data_survives_the_store():
    heard = []

    def listener(**given):
        heard.append((given["event"], given["data"], given["context"].queue))

    order_paid.connect(listener)
    data = {"order": 7, "items": [{"sku": "é", "n": 1.5}], "gift": None}
    handle = define("event", {"name": "order.paid", "data": data}, queue="maintenance").enqueue()
    assert process_once("maintenance").status == "acked"
    assert heard == [("order.paid", data, "maintenance")]
    assert handle.result() == 1


def test_h11_a_typed_payload_survives_the_store():
    handle = WriteReport.enqueue(Report(date(2026, 3, 1), ("a", "b")))
    assert process_once("default").status == "acked"
    assert handle.result() == "Sunday ('a', 'b')"
    by_hand = enqueued_by_command("tests.write_report", '{"day": "2026-03-02"}')
    assert process_once("default").job_id == by_hand
    assert async_to_sync(WriteReport.aenqueue)(Report(date(2026, 3, 3))).status == "ready"
    later = WriteReport.using(delay=60)
    assert async_to_sync(later.aenqueue)(Report(date(2026, 3, 3))).status == "scheduled"
    with pytest.raises(CommandError, match=r"payload\.day is not the written form of a date"):
        enqueued_by_command("tests.write_report", '{"day": "2026-02-30"}')


@pytest.mark.parametrize(
    ("key", "payload"),
    [
        ("command", ["clearsessions"]),
        ("shell", ["/bin/echo"]),
        ("event", {"name": "order.paid"}),
    ],
)
def test_h16_both_the_queue_and_the_own_list_have_to_allow_it(site, key, payload):
    with pytest.raises(HandlerRefused, match=r"add it to QUEUES\['default'\]\['HANDLERS'\]"):
        define(key, payload).enqueue()
    define(key, payload, queue="maintenance").enqueue()
    site.DJANGO_JOBS = {"QUEUES": OPEN["QUEUES"]}
    with pytest.raises(HandlerRefused, match="is not in ALLOWED_"):
        define(key, payload, queue="maintenance").enqueue()
    # The one that was enqueued before is refused when it is its turn, and not retried.
    assert process_once("maintenance").status == "rejected"
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.attempts) == ("rejected-target", 0)
    assert not Job.objects.exists()


def test_a_typed_payload_of_another_release_is_refused_at_run(monkeypatch):
    WriteReport.enqueue(Report(date(2026, 3, 1)))
    body = Job.objects.get().body
    assert '"day":"2026-03-01"' in body

    class Changed(JobHandler[Mail, str]):
        pass

    newer = job(key="tests.changed")(Changed)
    monkeypatch.setitem(
        registry._handlers, "tests.write_report", registry.find(newer._jobs.plan.handler)
    )
    report = process_once("default")
    assert report.status == "rejected"
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.attempts) == ("rejected-payload", 0)
    assert "payload has the unknown field 'day'" in dead.error_message


@dataclass
class Mail:
    to: str


def test_no_password_is_shown_to_people():
    arguments = ["/bin/echo", "--password", PASSWORD, f"--api-key={PASSWORD}", "plain"]
    define("shell", ["/bin/false", *arguments[1:]], queue="maintenance").enqueue()
    assert process_once("maintenance").status == "dead-lettered"
    dead = FailedJob.objects.get()
    assert PASSWORD not in f"{dead.error_message}{dead.traceback}"
    out = StringIO()
    call_command("jobs_dlq", "show", str(dead.job_id), "--json", stdout=out)
    shown = json.loads(out.getvalue())
    assert shown["payload"] == ["/bin/false", "--password", HIDDEN, f"--api-key={HIDDEN}", "plain"]
    assert PASSWORD not in out.getvalue()
