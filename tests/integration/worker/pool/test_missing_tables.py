"""Tables that go missing, or lack a column, while a worker runs: an outage, and no verdict."""

import signal

import pytest

from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from tests.integration.missing import without_column, without_table
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
TOLD = (
    "the database 'default' lacks tables or columns of django_jobs "
    "(run manage.py migrate --database default)"
)


# SQLite takes the quoted name of a column that is not there for a text.
SEEN_AT_ONCE = pytest.mark.only_on("postgres", "mariadb", "mysql")


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(lambda: without_table(Job), id="table"),
        pytest.param(lambda: without_column(Job, "due"), id="column", marks=SEEN_AT_ONCE),
    ],
)
def test_a_worker_says_once_that_tables_are_missing_and_goes_on_with_them(
    start, diary, processes, gone
):
    gang.note.enqueue(str(diary), "before")
    pool = start(processes=processes)
    until(lambda: diary.words == ["before"] and not Job.objects.exists())
    with gone():
        until(lambda: "failures: nothing passes" in pool.said)  # it has tried a few times
    gang.note.enqueue(str(diary), "after")
    until(lambda: "the backend database works again" in pool.said)
    until(lambda: diary.words == ["before", "after"])
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert pool.said.count(TOLD) == 1
    assert "does not answer" not in pool.said


@pytest.mark.parametrize("processes", [0, 2])
def test_a_job_that_ends_while_a_table_is_missing_is_settled_when_it_is_back(
    start, diary, processes
):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start("--max-jobs", "1", processes=processes, LEASE_SECONDS=20)
    until(lambda: diary.words == ["hold-begins"])
    with without_table(JobResult):
        diary.gate.touch()
        until(lambda: TOLD in pool.said)
    assert pool.ended() == 0
    assert diary.words == ["hold-begins", "hold-ends"]
    assert [result.status for result in JobResult.objects.all()] == ["succeeded"]
    assert not any(model.objects.exists() for model in (Job, FailedJob, JobAttempt))
