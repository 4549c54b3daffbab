"""Workers move the outbox by themselves, commands by hand, and tasks go the same way."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import transaction

from django_jobs import job
from django_jobs.clock import SECOND
from django_jobs.models import Job, OutboxJob
from django_jobs.tasks import task
from testproject.shop.models import Order
from tests.integration.outbox.conftest import BROKER
from tests.integration.outbox.depot.jobs import deliver

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 60
SITE = {"LEASE_SECONDS": 3, "KILL_GRACE": 1, "POLL_INTERVAL": 0.1}


@job(key="workers.echo")
def echo(word):
    return word


@task
def shout(word):
    return word.upper()


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited too long for {condition}"
        time.sleep(0.01)


def everything_is_delivered(count):
    orders = Order.objects.filter(email__endswith="@delivered.example")
    return (orders.count() == count and not OutboxJob.objects.exists()) and orders.values(
        "email"
    ).distinct().count() == count


@pytest.fixture
def carrier(broker):
    return broker(site=SITE, OUTBOX="default")


@pytest.fixture
def start(site_environment, tmp_path):
    """Starts workers; at the end nothing of them is left."""
    started = []

    def start(*options):
        site = {
            "BACKENDS": {"broker": {**BROKER, "OUTBOX": "default"}},
            "DEFAULT_BACKEND": "broker",
        }
        environment = {
            **site_environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.outbox.depot.settings",
            "DEPOT_JOBS": json.dumps({**SITE, **site}),
        }
        command = [sys.executable, "testproject/manage.py", "jobs_work", *options]
        with (tmp_path / f"worker-{len(started)}.log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_worker_moves_and_runs_what_is_committed_while_it_waits(carrier, start, processes):
    worker = start("--processes", processes)
    for number in range(5):
        with transaction.atomic():
            deliver.enqueue(str(number))
        until(lambda: everything_is_delivered(number + 1))  # noqa: B023 - called at once
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("processes", ["0", "1"])
def test_until_empty_means_the_outbox_too(carrier, start, processes):
    for number in range(20):
        deliver.using(queue=f"q{number % 3}").enqueue(str(number))
    assert start("--processes", processes, "--until-empty").wait(PATIENCE_SECONDS) == 0
    assert everything_is_delivered(20)


def test_when_a_worker_is_killed_another_moves_what_is_left(carrier, start):
    workers = [start("--processes", "1") for _ in range(2)]
    for number in range(100):
        with transaction.atomic():
            deliver.enqueue(str(number))
        if number == 50:
            until(Order.objects.exists)  # it is at work
            workers[0].kill()
            assert workers[0].wait(PATIENCE_SECONDS) == -signal.SIGKILL
    until(lambda: Order.objects.values("email").distinct().count() == 100)
    until(lambda: not OutboxJob.objects.exists())


def test_jobs_reap_moves_the_outbox_by_hand_also_when_it_is_switched_off(broker, carrier, capsys):
    echo.enqueue("a")
    echo.using(queue="mail").enqueue("b")
    broker(OUTBOX=False)
    call_command("jobs_reap")
    assert capsys.readouterr().out == (
        "0 jobs returned\n2 jobs moved from the outbox, 0 are left\n"
    )
    assert Job.objects.using("other").count() == 2
    call_command("jobs_reap")
    assert capsys.readouterr().out == "0 jobs returned\n"


def test_jobs_status_shows_what_waits_and_for_how_long(carrier, capsys):
    echo.using(queue="mail").enqueue("a")
    OutboxJob.objects.update(created=OutboxJob.objects.get().created - 7200 * SECOND)
    call_command("jobs_status")
    shown = capsys.readouterr().out
    assert "outbox of" in shown
    assert "2 h" in shown
    assert "does it move?" in shown
    call_command("jobs_status", "--json", "--queue", "mail")
    (told,) = json.loads(capsys.readouterr().out)["outbox"]
    assert (told["backend"], told["queue"], told["jobs"]) == ("broker", "mail", 1)
    assert 7200 <= told["oldest_seconds"] < 7300
    call_command("jobs_status", "--json", "--queue", "other")
    assert json.loads(capsys.readouterr().out)["outbox"] == []


def test_a_task_goes_through_the_outbox_and_has_a_result_from_the_first_moment(carrier, settings):
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "TASK_MODULES": [__name__]}
    with transaction.atomic():
        result = shout.enqueue("a")
        assert OutboxJob.objects.count() == 1
    assert shout.get_result(result.id).status.value == "READY"
    call_command("jobs_work", "--processes", "0", "--until-empty")
    assert shout.get_result(result.id).return_value == "A"
