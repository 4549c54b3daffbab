"""Hostile and copied rows in a real database, real workers, and keys that are rotated."""

import json
import logging
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples

from django_jobs import define, enqueue_many, job
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.ids import new_id
from django_jobs.models import FailedJob, Job, JobResult
from django_jobs.wire.signing import Signer
from django_jobs.worker import process_once
from tests.fuzz import hostile
from tests.fuzz.hostile import Place
from tests.fuzz.targets import ALLOWED

ROOT = Path(__file__).resolve().parents[2]
ROWS = 300
BYSTANDERS = {
    "fuzz.function": "tests.fuzz.targets.bystander",
    "fuzz.typed": "tests.fuzz.targets.Bystander",
}
UNBROKEN = {"CIRCUIT_BREAKER": {"REJECTIONS": None}}  # or the first ten would stop the queue
AT_ONCE = {"UNKNOWN_HANDLER": "dead-letter"}  # and not when patience is over
calls = []


@job(key="fuzz.function")
def function(*args, **_kwargs):
    calls.append(args)


@job(key="fuzz.count")
def count(number):
    calls.append(number)


@pytest.fixture(autouse=True)
def quiet():
    calls.clear()
    logger = logging.getLogger("django_jobs")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def here():
    """Where messages are believed in this site."""
    settings = get_settings()
    return Place(settings.site, "database", "default", Signer(settings.signing_keys))


def some_hostile(number, place):
    """So many different ones; the same strategies as in test_envelopes."""
    found = []

    @examples(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(hostile.hostile(place))
    def each(one):
        # Text that a database refuses never becomes a row of it.
        told = one.message.body + one.message.signature + one.message.key_id
        if "\0" not in told and len(one.message.key_id) <= 64 and len(one.message.signature) <= 64:
            found.append(one.message)

    each()
    return list({message.id: message for message in found}.values())


@pytest.mark.django_db(transaction=True)
def test_hostile_rows_end_no_worker_and_are_all_dead_letters(settings, site_environment):
    settings.DJANGO_JOBS = ALLOWED
    place = here()
    messages = some_hostile(ROWS, place)
    sound = [place.sound("shell", ["/bin/true"]) for _ in range(3)]
    backends["database"].enqueue([*messages[:-20], *sound, *messages[-20:]])
    command = [sys.executable, "testproject/manage.py", "jobs_work"]
    done = subprocess.run(
        [*command, "--queue", "default", "--processes", "2", "--until-empty"],
        cwd=ROOT,
        env={
            **site_environment,
            "DJANGO_SETTINGS_MODULE": "tests.fuzz.site",
            "FUZZ_JOBS": json.dumps({**ALLOWED, "HANDLERS": BYSTANDERS, **UNBROKEN, **AT_ONCE}),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert " died (of its own)" not in done.stderr + done.stdout
    reasons = Counter(FailedJob.objects.values_list("reason", flat=True))
    print(f"{len(messages)} hostile rows: {dict(reasons)}; the {len(sound)} sound ones ran")
    assert reasons.total() == len(messages) >= ROWS / 2
    not_judged = {"unknown-key", "other-site"}
    assert all(reason.startswith("rejected-") for reason in reasons.keys() - not_judged)
    assert not Job.objects.exists()
    ran = JobResult.objects.values_list("job_id", "status")
    assert {(str(job_id), status) for job_id, status in ran} == {
        (one.id, "succeeded") for one in sound
    }


# -- copies ------------------------------------------------------------------------------------


def copied(row, **changes):
    """The same signed body in a row of another id."""
    fields = {field.attname: getattr(row, field.attname) for field in Job._meta.concrete_fields}
    return Job.objects.create(**{**fields, **changes})


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "rejected-mismatch"),
        ({"queue": "other"}, "rejected-queue"),
        ({"handler": "fuzz.function"}, "rejected-mismatch"),
        ({"rank": -100}, "rejected-mismatch"),
        ({"tenant": "acme"}, "rejected-mismatch"),
    ],
    ids=str,
)
def test_a_copied_row_is_refused_and_the_original_runs_once(changes, reason):
    count.enqueue(7)
    row = Job.objects.get()
    copied(row, **{"id": new_id(), "unique_key": None, **changes})
    statuses = sorted(process_once([row.queue, "other"]).status for _ in range(2))
    assert statuses == ["acked", "rejected"]
    assert FailedJob.objects.get().reason == reason
    assert calls == [7]


@pytest.mark.django_db
def test_a_row_of_another_site_never_runs_though_the_keys_are_the_same(settings):
    count.enqueue(7)
    settings.DJANGO_JOBS = {"SITE": "staging"}
    assert process_once("default").status == "snoozed"
    assert not FailedJob.objects.exists()
    Job.objects.update(due=0, put_off_since=0)
    assert process_once("default").status == "dead-lettered"
    assert FailedJob.objects.get().reason == "other-site"
    assert calls == []


@pytest.mark.django_db
def test_a_row_of_another_backend_is_refused(settings):
    count.enqueue(7)
    driver = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}
    settings.DJANGO_JOBS = {"BACKENDS": {"database": driver, "second": driver}}
    Job.objects.update(backend="second")
    assert process_once("default", backend="second").status == "rejected"
    assert FailedJob.objects.get().reason == "rejected-backend"


@pytest.mark.django_db
def test_a_row_moved_to_a_stronger_queue_is_refused(settings):
    settings.DJANGO_JOBS = {
        "QUEUES": {"default": {}, "maintenance": {"HANDLERS": ["command", "fuzz.count"]}}
    }
    count.enqueue(7)
    Job.objects.update(queue="maintenance")
    assert process_once("maintenance").status == "rejected"
    assert FailedJob.objects.get().reason == "rejected-queue"


# -- rotation ----------------------------------------------------------------------------------

OLD, NEW = "an old key " + "o" * 40, "a new key " + "n" * 40
KNOWN_BEFORE = {
    "pairs": [{"SIGNING_KEYS": keys} for keys in (
        [("a", OLD)], [("a", OLD), ("b", NEW)], [("b", NEW), ("a", OLD)], [("b", NEW)],
    )],
    "secret key": [
        {"SECRET_KEY": secret, "SECRET_KEY_FALLBACKS": others} for secret, others in (
            (OLD, []), (OLD, [NEW]), (NEW, [OLD]), (NEW, []),
        )
    ],
}  # fmt: skip


@pytest.fixture
def become(settings, monkeypatch):
    """Be a process that was started with these keys."""
    monkeypatch.delenv("JOBS_SIGNING_KEY", raising=False)

    def become(keys):
        settings.SECRET_KEY_FALLBACKS = keys.get("SECRET_KEY_FALLBACKS", [])
        settings.SECRET_KEY = keys.get("SECRET_KEY", "something else " * 5)
        settings.DJANGO_JOBS = {key: keys[key] for key in ("SIGNING_KEYS",) if key in keys}

    return become


@pytest.mark.django_db
@pytest.mark.parametrize("keys", KNOWN_BEFORE)
def test_keys_rotated_in_the_middle_of_1000_jobs_reject_none(become, keys):
    """Site and workers are restarted one after the other, so each is ahead once."""
    only_old, old_first, new_first, only_new = KNOWN_BEFORE[keys]
    steps = [
        (only_old, only_old), (only_old, old_first), (old_first, old_first),
        (new_first, old_first), (new_first, new_first), (only_new, new_first),
    ]  # fmt: skip
    made, signed_with = 0, set()
    for number, (site, worker) in enumerate(steps):
        become(site)
        share = 1000 // len(steps) + (number < 1000 % len(steps))
        enqueue_many(count.prepare(n) for n in range(made, made + share))
        made += share
        signed_with |= set(Job.objects.values_list("key_id", flat=True))
        become(worker)
        for _ in range(share - 20):  # some wait for the next step
            assert process_once("default").status == "acked"
    while (report := process_once("default")).status != "empty":
        assert report.status == "acked"
    assert made == 1000
    assert sorted(calls) == list(range(1000))
    assert len(signed_with) == 2
    assert not FailedJob.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("keys", KNOWN_BEFORE)
def test_jobs_of_a_key_retired_too_early_run_when_it_is_back(become, keys):
    only_old, _, new_first, only_new = KNOWN_BEFORE[keys]
    become(only_old)
    define("fuzz.count", {"args": [1], "kwargs": {}}).enqueue()
    become(only_new)
    report = process_once("default")
    assert (report.status, calls) == ("snoozed", [])
    assert "was it retired?" in report.reason
    become(new_first)
    Job.objects.update(due=0)
    assert process_once("default").status == "acked"
    assert calls == [1]


@pytest.mark.django_db
@pytest.mark.parametrize("keys", KNOWN_BEFORE)
def test_a_key_retired_too_early_is_told_and_its_jobs_are_kept(become, keys):
    only_old, _, _, only_new = KNOWN_BEFORE[keys]
    become(only_old)
    define("fuzz.count", {"args": [1], "kwargs": {}}).enqueue()
    become(only_new)
    assert process_once("default").status == "snoozed"
    Job.objects.update(due=0, put_off_since=0)
    assert process_once("default").status == "dead-lettered"
    dead = FailedJob.objects.get()
    assert dead.reason == "unknown-key"
    assert "was it retired?" in dead.error_message
    assert calls == []
