"""``--until-empty`` leaves nothing that is due."""

import pytest

from django_jobs.clock import to_datetime
from django_jobs.models import Job, JobState, QueueControl
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("processes", [0, 1, 4])
def test_jobs_that_wait_for_a_key_of_this_very_worker_are_still_run(start, diary, processes):
    limited = gang.nap.using(concurrency_key="place", concurrency=2)
    for n in range(6):
        limited.enqueue(str(diary), 0.02, str(n))
    assert start("--until-empty", processes=processes).ended() == 0
    assert Job.objects.count() == 0


@pytest.mark.parametrize("processes", [0, 1, 4])
def test_jobs_that_wait_for_a_place_of_their_queue_are_still_run(start, diary, processes):
    QueueControl.objects.create(backend="database", queue="default", concurrency=2)
    for n in range(6):
        gang.nap.enqueue(str(diary), 0.02, str(n))
    assert start("--until-empty", processes=processes).ended() == 0
    assert Job.objects.count() == 0


@pytest.mark.parametrize("processes", [0, 2])
def test_jobs_that_wait_for_a_rate_limit_are_still_run(start, diary, processes):
    for n in range(4):
        gang.nap.enqueue(str(diary), 0.02, str(n))
    queues = {"default": {"RATE_LIMIT": "1/s"}}
    assert start("--until-empty", processes=processes, QUEUES=queues).ended() == 0
    assert Job.objects.count() == 0


@pytest.mark.parametrize("processes", [0, 2])
def test_a_place_that_another_worker_has_is_not_waited_for(start, diary, processes):
    QueueControl.objects.create(backend="database", queue="default", concurrency=1)
    gang.hold.enqueue(str(diary), str(diary.gate))
    gang.note.enqueue(str(diary))
    start(processes=1)
    until(lambda: "hold-begins" in diary.words)
    assert start("--until-empty", processes=processes).ended() == 0
    assert Job.objects.count() == 2


@pytest.mark.parametrize("processes", [0, 2])
def test_it_says_what_is_left_and_why(start, diary, processes):
    QueueControl.objects.create(
        backend="database", queue="paused", paused=True, reason="the printer is away"
    )
    gang.note.enqueue(str(diary))
    gang.note.using(queue="paused").enqueue(str(diary))
    gang.note.using(delay=3600).enqueue(str(diary))
    gang.note.using(delay=7200).enqueue(str(diary))
    gang.hold.using(concurrency_key="place").enqueue(str(diary), str(diary.gate))
    other = start(processes=1)
    until(lambda: "hold-begins" in diary.words and "ran" in diary.words)
    gang.note.using(concurrency_key="place").enqueue(str(diary), "waits")
    pool = start("--until-empty", processes=processes)
    assert pool.ended() == 0
    (due,) = Job.objects.filter(state=JobState.SCHEDULED).order_by("due").values_list("due")[0]
    running, later, blocked, paused = left(pool)
    assert running == "default: 1 job that another worker runs"
    moment = f"{to_datetime(due):%Y-%m-%d %H:%M:%S} UTC"
    assert later.startswith(f"default: 2 jobs not due yet; the next one is due at {moment}, in ")
    assert blocked == "default: 1 job waiting for a key that jobs of another worker hold"
    assert paused == (
        "paused: 1 job held up, for the queue is paused (the printer is away); "
        "jobs_queue resume paused lets it go"
    )
    assert left(other) == []


def test_queues_that_it_does_not_serve_are_named_too(start, diary):
    gang.note.using(queue="another").enqueue(str(diary))
    pool = start("--queue", "default", "--until-empty", processes=0)
    assert pool.ended() == 0
    told = "another: 1 job that this worker does not serve: --queue leaves it out"
    assert left(pool) == [told]


def test_of_very_many_queues_it_names_a_few_those_that_it_serves_first(start, diary):
    later = gang.note.using(delay=3600)
    for n in range(23):
        later.using(queue=f"other-{n}").enqueue(str(diary))
    later.using(queue="served").enqueue(str(diary))
    pool = start("--queue", "served", "--until-empty", processes=0)
    assert pool.ended() == 0
    assert len(left(pool)) == 20
    assert left(pool)[0].startswith("served: 1 job not due yet")
    assert "left in 4 more queues: jobs_status shows them all" in pool.said.splitlines()


def test_it_says_nothing_where_nothing_is_left(start, diary):
    gang.note.enqueue(str(diary))
    pool = start("--until-empty", processes=0)
    assert pool.ended() == 0
    assert left(pool) == []


def left(pool):
    """What a worker said of what it left."""
    start = "left in the queue "
    return [line.removeprefix(start) for line in pool.said.splitlines() if line.startswith(start)]


# -- names of queues -------------------------------------------------------------------------------


def test_a_queue_that_nobody_knows_is_noticed_with_near_misses(start, diary):
    gang.note.using(queue="mail").enqueue(str(diary))
    pool = start("--queue", "maill,mail,default", "--until-empty", processes=0)
    assert pool.ended() == 0
    (told,) = [line for line in pool.said.splitlines() if "is new" in line]
    assert told == (
        "the queue 'maill' is new: nothing was enqueued to it so far, and neither a @job nor "
        "QUEUES names it; did you mean 'mail'?"
    )


def test_an_empty_name_of_a_queue_is_refused(start):
    pool = start("--queue", "", "--until-empty", processes=0)
    assert pool.ended() == 2
    assert "leave --queue out to serve every queue" in pool.said
