"""Several jobs at once in one child: coroutines on a loop, plain handlers in threads."""

import signal

import pytest

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState
from testproject.shop.models import Order
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)


def crowd(start, concurrency, *options, **settings):
    return start("--concurrency", str(concurrency), *options, processes=1, **settings)


def most_at_once(diary):
    running = most = 0
    for _, word, _ in sorted(diary.lines, key=lambda line: float(line[2])):
        running += 1 if word.endswith("-begins") else -1
        most = max(most, running)
    return most


def seconds_of(diary):
    moments = [float(at) for _, _, at in diary.lines]
    return max(moments) - min(moments)


def test_a_thousand_coroutines_that_wait_a_second_take_a_few(start, diary):
    enqueue_many(gang.async_nap.prepare(str(diary), 1.0, f"n{n}") for n in range(1000))
    assert crowd(start, 500, "--until-empty", "-v0").ended() == 0
    assert sorted(set(diary.words)) == sorted(diary.words)
    assert JobResult.objects.filter(status="succeeded").count() == 1000
    assert len({pid for pid, _, _ in diary.lines}) == 1
    assert 400 < most_at_once(diary) <= 500
    assert seconds_of(diary) < 15
    print(f"1,000 coroutines of a second: {seconds_of(diary):.1f} s")


def test_plain_handlers_run_in_threads(start, diary):
    enqueue_many(gang.nap.prepare(str(diary), 0.5, f"n{n}") for n in range(40))
    assert crowd(start, 20, "--until-empty", "-v0").ended() == 0
    assert len({pid for pid, _, _ in diary.lines}) == 1
    assert 15 < most_at_once(diary) <= 20
    assert JobResult.objects.filter(status="succeeded").count() == 40


def test_short_jobs_run_exactly_once_on_many_lanes(start, diary):
    enqueue_many(gang.note.prepare(str(diary), f"n{n}") for n in range(300))
    enqueue_many(gang.async_nap.prepare(str(diary), 0, f"a{n}") for n in range(300))
    pool = start("--concurrency", "7", "--until-empty", "-v0", processes=2)
    assert pool.ended() == 0
    assert len(diary.words) == len(set(diary.words)) == 900
    assert not Job.objects.exists()


def test_output_and_context_variables_are_kept_apart(start, diary):
    enqueue_many(gang.async_nap.prepare(str(diary), 0.05, f"n{n}") for n in range(30))
    assert crowd(start, 10, "--until-empty", "-v0").ended() == 0
    said = JobResult.objects.values_list("output", "value")
    assert sorted(output for output, _ in said) == sorted(f"n{n} says hello\n" for n in range(30))
    assert {value for _, value in said} == {'"nothing"'}


def test_a_coroutine_out_of_time_fails_and_its_neighbours_go_on(start, diary):
    gang.async_hold.enqueue(str(diary), str(diary.gate))
    gang.async_stuck.enqueue(str(diary), "sleeps")
    pool = crowd(start, 4)
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.error_type) == (
        "timed-out",
        "django_jobs.handlers.base.JobTimeout",
    )
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert JobAttempt.objects.count() == 1
    assert pool.process.poll() is None
    assert "worker.child_died" not in pool.said
    assert diary.words.count("hold-begins") == 1


def test_one_that_swallows_its_end_is_killed_and_its_neighbours_are_not_charged(start, diary):
    gang.async_hold.enqueue(str(diary), str(diary.gate))
    pool = crowd(start, 4)
    until(lambda: "hold-begins" in diary.words)
    gang.async_stuck.enqueue(str(diary), "swallows")
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.handler) == ("timed-out", "gang.async_stuck")
    until(lambda: diary.words.count("hold-begins") == 2)
    held = Job.objects.get()
    assert (held.attempts, held.crashes, held.suspect) == (0, 0, False)
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert pool.process.poll() is None


@pytest.mark.parametrize("handler", [gang.async_stuck, gang.stuck])
def test_who_holds_up_everybody_is_found_by_running_alone(start, diary, handler):
    blocks = "blocks" if handler is gang.async_stuck else "holds-the-lock"
    others = [gang.async_hold.enqueue(str(diary), str(diary.gate), f"h{n}") for n in range(2)]
    crowd(start, 4)
    until(lambda: len(diary.words) == 2)
    handler.enqueue(str(diary), blocks)
    until(lambda: diary.words.count(f"{blocks}-begins") == 1)
    diary.gate.touch()
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.handler, dead.crashes) == ("timed-out", handler.key, 0)
    until(lambda: JobResult.objects.count() == len(others))
    assert diary.words.count(f"{blocks}-begins") == 2
    assert diary.words.count("h0-ends") == diary.words.count("h1-ends") == 1


@pytest.mark.parametrize("how", ["exit-0", "segfault", "killed", "mute"])
def test_a_crash_beside_others_is_charged_to_nobody_until_it_happens_alone(start, diary, how):
    enqueue_many(gang.async_hold.prepare(str(diary), str(diary.gate), f"h{n}") for n in range(3))
    pool = crowd(start, 5)
    until(lambda: len(diary.words) == 3)
    gang.die.enqueue(str(diary), how)
    until(lambda: f"{how}-begins" in diary.words)
    until(lambda: len({pid for pid, _, _ in diary.lines}) > 1)
    diary.gate.touch()
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.handler, dead.crashes, dead.attempts) == ("crashed", "gang.die", 2, 0)
    until(lambda: JobResult.objects.count() == 3)
    assert diary.words.count(f"{how}-begins") == 3  # beside others, then alone, twice
    assert pool.process.poll() is None


def test_suspects_run_alone_while_the_others_go_on(start, diary):
    gang.async_hold.enqueue(str(diary), str(diary.gate), "long")
    gang.note.enqueue(str(diary), "suspect")
    Job.objects.filter(handler="gang.note").update(suspect=True)
    pool = crowd(start, 5)
    until(lambda: "suspect" in diary.words)
    assert diary.pid("suspect") != diary.pid("long-begins")
    assert "long-ends" not in diary.words
    pool.signal(signal.SIGTERM)
    diary.gate.touch()
    assert pool.ended() == 0


def test_signals_stop_it_as_ever(start, diary):
    enqueue_many(gang.async_hold.prepare(str(diary), str(diary.gate), f"h{n}") for n in range(9))
    pool = crowd(start, 3)
    until(lambda: len(diary.words) == 3)
    assert pool.stop_at_once() == 143
    rows = Job.objects.values_list("state", "attempts", "crashes", "suspect")
    assert set(rows) == {(JobState.READY, 0, 0, False)}
    assert len(rows) == 9


def test_a_task_that_exits_fails_its_job_and_nothing_else(start, diary):
    gang.async_hold.enqueue(str(diary), str(diary.gate))
    pool = crowd(start, 3)
    until(lambda: diary.words)
    gang.async_exits.enqueue(str(diary))
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.error_type) == ("exhausted", "SystemExit")
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert diary.words.count("hold-begins") == 1
    assert "worker.child_died" not in pool.said


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_transaction_left_open_by_a_coroutine_does_not_hurt_the_next(start, diary, concurrency):
    gang.async_messy.enqueue(str(diary))
    crowd(start, concurrency)
    until(JobResult.objects.exists)
    gang.async_order.enqueue(str(diary))
    until(lambda: JobResult.objects.count() == 2)
    assert list(Order.objects.values_list("email", flat=True)) == ["tidy@example.com"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--concurrency", "0"], "--concurrency"),
        (["--concurrency", "10001"], "10001"),
        (["--concurrency", "2", "--processes", "0"], "--processes 1 or more"),
    ],
)
def test_what_cannot_be_is_a_usage_error(start, options, told):
    pool = start(*options, processes=None)
    assert pool.ended() == 2
    assert told in pool.said
