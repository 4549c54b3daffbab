"""What a handler raises and returns may be odd: its job ends all the same, and in time."""

import pytest

from django_jobs.models import FailedJob, Job, JobResult
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.odd import jobs as odd

pytestmark = pytest.mark.django_db(transaction=True)
ODD = {"DJANGO_SETTINGS_MODULE": "tests.integration.worker.pool.odd.settings"}


@pytest.mark.parametrize("processes", [0, 1])
def test_a_delay_that_is_no_plain_float_is_one(start, diary, processes):
    for how in odd.DELAYS:
        odd.waits.enqueue(str(diary), "retry", how)
        odd.waits.enqueue(str(diary), "snooze", how)
    pool = start(processes=processes, environment=ODD)
    until(lambda: not Job.objects.exists())
    assert JobResult.objects.filter(status="succeeded").count() == 2 * len(odd.DELAYS)
    assert not FailedJob.objects.exists()
    assert sorted(diary.words) == sorted(
        2 * [f"{what}-{how}" for how in odd.DELAYS for what in ("retry", "snooze")]
    )
    assert pool.process.poll() is None


@pytest.mark.parametrize(
    ("handler", "how", "options"),
    [
        (odd.endless, "sleeps", {"processes": 0}),
        (odd.endless, "sleeps", {"processes": 1}),
        (odd.endless, "swallows", {"processes": 1}),
        (odd.async_endless, "swallows", {"processes": 1, "concurrency": 2}),
    ],
    ids=["in one process", "in a child", "that does not stop", "on a loop"],
)
def test_a_return_value_is_encoded_in_the_time_of_its_job(start, diary, handler, how, options):
    handler.enqueue(str(diary), how)
    asked = ("--concurrency", str(options["concurrency"])) if "concurrency" in options else ()
    start(*asked, processes=options["processes"], environment=ODD)
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.attempts, dead.crashes) == ("timed-out", 1, 0)
    assert diary.words == [f"{how}-encodes"]


@pytest.mark.parametrize(("processes", "concurrency"), [(0, 1), (1, 1), (1, 2)])
@pytest.mark.parametrize(
    ("handler", "kind"), [(odd.yields, "generator"), (odd.async_forgets, "coroutine")]
)
def test_work_that_is_returned_instead_of_done_fails_its_job(
    start, diary, handler, kind, processes, concurrency
):
    handler.enqueue(str(diary))
    asked = ("--concurrency", str(concurrency)) if processes else ()
    assert start("--until-empty", *asked, processes=processes, environment=ODD).ended() == 0
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.error_type) == ("exhausted", "django_jobs.exceptions.InvalidResult")
    assert f"returned a {kind} that has not run to its end" in dead.error_message
    assert diary.words == []
