"""A handler that forks and lets both processes return: the copy is no second worker."""

import pytest

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobResult
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("how", ["returns", "raises", "awaits"])
@pytest.mark.parametrize("children", [0, 1], ids=["one-process", "a-child"])
def test_the_copy_ends_and_settles_nothing(start, diary, how, children):
    handler = gang.async_fork if how == "awaits" else gang.fork
    handler.enqueue(str(diary), how)
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(20)])
    pool = start("--until-empty", processes=children)
    assert pool.ended() == 0
    assert (Job.objects.count(), FailedJob.objects.count()) == (0, 0)
    assert JobResult.objects.filter(status="succeeded").count() == 21
    assert sorted(diary.words) == sorted([*(f"n{n}" for n in range(20)), "copy", "original"])
    until(lambda: not is_alive(diary.pid("copy")))
    ran = {pid for pid, word, _ in diary.lines if word.startswith("n")}
    assert ran == {str(diary.pid("original"))}


def test_the_copy_ends_also_where_several_jobs_share_a_child(start, diary):
    gang.async_fork.enqueue(str(diary), "awaits")
    gang.fork.enqueue(str(diary), "returns")
    enqueue_many([gang.async_nap.prepare(str(diary), 0.05, f"n{n}") for n in range(6)])
    assert start("--until-empty", "--concurrency", "4", processes=1).ended() == 0
    assert JobResult.objects.filter(status="succeeded").count() == 8
    assert sorted(word for word in diary.words if word.startswith("n")) == sorted(
        f"n{n}-{what}" for n in range(6) for what in ("begins", "ends")
    )
    until(lambda: not any(is_alive(int(pid)) for pid, word, _ in diary.lines if word == "copy"))
