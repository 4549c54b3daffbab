"""What a worker says, as it starts, of messages that it would not run."""

import logging

import pytest
from django.core.management import call_command
from django.db import OperationalError

from django_jobs import define, job
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.handlers.registry import registry
from django_jobs.models import Job
from django_jobs.worker import waiting_messages
from django_jobs.worker.build import build_gatekeeper
from django_jobs.worker.waiting_messages import Inspection, look, warn_at_start

pytestmark = pytest.mark.django_db
KEY = {"SIGNING_KEYS": [("here", "h" * 32)]}
FAR_AWAY = 3600


@job(key="waiting.note")
def note(*_args):
    """Never run in these tests."""


@pytest.fixture
def here(settings):
    """Enqueue as another process would, and be this one."""
    settings.DJANGO_JOBS = KEY

    def enqueue(queue="default", delay=FAR_AWAY, **other):
        settings.DJANGO_JOBS = {**KEY, **other}
        handle = note.using(queue=queue, delay=delay).enqueue()
        settings.DJANGO_JOBS = KEY
        return handle

    return enqueue


def looked_at(queues=None, per_queue=20, backend=None):
    backend = backend or backends["database"]
    return look(backend, build_gatekeeper(backend, get_settings()), queues, per_queue)


def warned(caplog):
    return [record for record in caplog.records if record.key == "messages.refused"]


def test_nothing_is_said_of_what_would_run(here):
    here()
    here("mail", delay=0)
    assert looked_at() == Inspection(2, [])


def test_each_cause_is_told_once_with_its_queues_and_numbers(here):
    for queue in ("a", "b", "b"):
        here(queue, SIGNING_KEYS=[("new", "n" * 32)])
    here("a", SITE="staging")
    here("a")
    messages, (keys, site) = looked_at()
    assert messages == 5
    assert (keys.reason, keys.messages, keys.queues) == ("unknown-key", 3, ("a", "b"))
    assert "'new'" in keys.detail
    assert "different keys" in keys.way_out
    assert (site.reason, site.messages, site.queues) == ("other-site", 1, ("a",))
    assert site.detail == "the job was made for the site 'staging', not 'testproject'"


def test_a_handler_that_is_not_here_is_told(here, monkeypatch):
    here()
    monkeypatch.delitem(registry._handlers, "waiting.note")
    ((refusal,),) = [looked_at().refusals]
    assert (refusal.reason, refusal.messages) == ("unknown-handler", 1)
    assert refusal.detail.startswith("no handler is registered as 'waiting.note' in this process")
    assert "TASK_MODULES" in refusal.detail


def test_a_task_whose_module_was_not_imported_yet_may_be_there(here, monkeypatch):
    here()
    monkeypatch.delitem(registry._handlers, "waiting.note")
    monkeypatch.setattr(registry, "may_find", lambda key: key == "waiting.note")
    assert looked_at().refusals == []


def test_what_was_changed_in_the_store_is_one_cause(here):
    for _ in range(3):
        here()
    Job.objects.update(rank=-100)
    ((refusal,),) = [looked_at().refusals]
    assert (refusal.reason, refusal.messages) == ("rejected-mismatch", 3)


def test_a_handler_that_the_queue_does_not_allow_is_told(here, settings):
    here("mail")
    settings.DJANGO_JOBS = {**KEY, "QUEUES": {"mail": {"HANDLERS": []}}}
    ((refusal,),) = [looked_at().refusals]
    assert refusal.reason == "rejected-handler"


def test_it_looks_at_so_many_of_so_many_queues_and_leases_none(here, monkeypatch):
    for queue in ("a", "b", "c"):
        for _ in range(3):
            here(queue, delay=0)
    before = list(Job.objects.order_by("pk").values())
    monkeypatch.setattr(waiting_messages, "QUEUES_AT_MOST", 2)
    assert looked_at(per_queue=2).messages == 4
    assert looked_at(["c", "none"], per_queue=9).messages == 3
    assert list(Job.objects.order_by("pk").values()) == before


def test_it_begins_no_queue_when_its_time_is_over(here):
    here()
    backend = backends["database"]
    gatekeeper = build_gatekeeper(backend, get_settings())
    assert look(backend, gatekeeper, None, 20, seconds=0).messages == 0


def test_a_worker_warns_as_it_starts_and_begins_all_the_same(here, caplog):
    here(SITE="staging")
    sound = here(delay=0)
    with caplog.at_level(logging.INFO, logger="django_jobs"):
        call_command("jobs_work", "--processes", "0", "--until-empty", verbosity=0)
    (record,) = warned(caplog)
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "1 of the first 2 messages that wait on database would not be run here (other-site, in "
        "default): the job was made for the site 'staging', not 'testproject'. Set SITE to the "
        "same word for all processes of this installation; give another installation a database "
        "or broker of its own."
    )
    assert sound.status == "succeeded"


def test_a_worker_looks_at_the_queues_that_it_serves(here, caplog):
    here("mail", SITE="staging")
    call_command("jobs_work", "--processes", "0", "--queue", "other", "--once", verbosity=0)
    assert warned(caplog) == []


class Unread(MemoryBackend):
    """A backend that cannot be looked at."""

    def __init__(self, error):
        super().__init__("unread", {})
        self.capabilities = backends["database"].capabilities
        self.error = error

    def queues(self):
        raise self.error


@pytest.mark.parametrize(
    ("error", "keys"),
    [
        (OperationalError("gone"), []),
        (ConnectionError("gone"), []),
        (RuntimeError("a bug"), ["messages.unreadable"]),
    ],
    ids=["database", "broker", "bug"],
)
def test_what_cannot_be_looked_at_keeps_no_worker_from_starting(caplog, error, keys):
    gatekeeper = build_gatekeeper(backends["database"], get_settings())
    warn_at_start(Unread(error), gatekeeper, None)
    assert [record.key for record in caplog.records] == keys


def test_a_backend_without_peek_is_left_alone():
    backend = Unread(RuntimeError("asked"))
    backend.capabilities = type(backend.capabilities)()
    assert looked_at(backend=backend) == Inspection(0, [])


def test_built_in_handlers_are_judged_by_their_queue(here, settings):
    allowed = {"QUEUES": {"ops": {"HANDLERS": ["command"]}}, "ALLOWED_COMMANDS": ["check"]}
    settings.DJANGO_JOBS = {**KEY, **allowed}
    define("command", ["check"], queue="ops").using(delay=FAR_AWAY).enqueue()
    assert looked_at().refusals == []
    settings.DJANGO_JOBS = KEY
    assert [refusal.reason for refusal in looked_at().refusals] == ["rejected-handler"]
