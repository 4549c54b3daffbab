"""jobs_queue: what operators set holds for the next claim, and is recorded."""

import pytest

from django_jobs.backends.registry import backends
from django_jobs.models import OperatorEvent, QueueControl
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db


def claimed(queue="mail", limit=10):
    backends["database"]._meters._looked_at = float("-inf")  # as half a second later
    backends["database"]._closed._until.clear()
    return len(backends["database"].fetch([queue], limit, 30))


def test_a_paused_queue_gives_nothing_until_it_is_resumed(run):
    doomed.using(queue="mail").enqueue()
    doomed.using(queue="other").enqueue()
    paused = run("jobs_queue", "pause", "mail", "--reason", "the server moves")
    assert paused.out.startswith("mail of database: paused (the server moves);")
    assert (claimed("mail"), claimed("other")) == (0, 1)
    assert "nothing changed" in run("jobs_queue", "pause", "mail").out
    assert "running" in run("jobs_queue", "resume", "mail").out
    assert claimed("mail") == 1
    told = list(OperatorEvent.objects.values_list("action", "queue", "reason"))
    assert told == [("pause", "mail", "the server moves"), ("resume", "mail", "")]


def test_a_second_pause_keeps_the_reason_or_records_another(run):
    run("jobs_queue", "pause", "mail", "--reason", "the server moves")
    assert "nothing changed" in run("jobs_queue", "pause", "mail").out
    assert QueueControl.objects.get().reason == "the server moves"
    again = run("jobs_queue", "pause", "mail", "--reason", "the disk is full")
    assert "nothing changed" not in again.out
    assert QueueControl.objects.get().reason == "the disk is full"
    told = list(OperatorEvent.objects.values_list("action", "reason"))
    assert told == [("pause", "the server moves"), ("pause", "the disk is full")]
    run("jobs_queue", "resume", "mail")
    run("jobs_queue", "pause", "mail")
    assert QueueControl.objects.get().reason == ""


def test_no_more_at_a_time_than_was_set(run):
    for _ in range(5):
        doomed.using(queue="mail").enqueue()
    run("jobs_queue", "set", "mail", "concurrency=2")
    assert claimed(limit=1) == 1
    assert claimed() == 1
    backends["database"]._closed._until.clear()
    assert claimed() == 0
    run("jobs_queue", "set", "mail", "concurrency=none")
    backends["database"]._closed._until.clear()
    assert claimed() == 3


def test_no_more_than_the_rate_and_a_reset(run):
    for _ in range(9):
        doomed.using(queue="mail").enqueue()
    told = run("jobs_queue", "set", "mail", "rate_limit=3/h", "--json").json()
    assert (told["rate_limit"], told["changed"]) == ("3/h", True)
    assert (claimed(), claimed()) == (3, 0)
    assert run("jobs_queue", "reset-rate", "mail").code == 0
    assert claimed() == 3
    assert "nothing changed" in run("jobs_queue", "reset-rate", "other").out


def test_the_rate_of_the_settings_holds_until_an_operator_says_otherwise(run, settings):
    settings.DJANGO_JOBS = {"QUEUES": {"mail": {"RATE_LIMIT": "1/h"}}}
    for _ in range(3):
        doomed.using(queue="mail").enqueue()
    assert (claimed(), claimed()) == (1, 0)
    run("jobs_queue", "set", "mail", "rate_limit=none")
    assert claimed() == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("set", "mail"), "set takes rate_limit=… or concurrency=…"),
        (("pause", "mail", "rate_limit=1/s"), "nothing else does"),
        (("set", "mail", "rate_limit"), "is no limit; write rate_limit=60/m"),
        (("set", "mail", "rate_limit=fast"), "'fast' is no rate; write a number and a unit"),
        (("set", "mail", "concurrency=-1"), "give a whole number from 0, or none"),
        (("set", "mail", "speed=1"), "there is no limit 'speed'"),
        (("show", "mail", "--backend", "no"), "there is no backend 'no'"),
    ],
)
def test_what_makes_no_sense_is_refused(run, arguments, told):
    refused = run("jobs_queue", *arguments)
    assert refused.code == 2
    assert told in refused.err
    assert not QueueControl.objects.exists()
