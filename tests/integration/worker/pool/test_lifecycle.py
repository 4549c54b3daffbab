"""Children that die at birth or cannot be born: tried again with growing pauses, not for ever."""

import os
import resource
import signal
import time
from itertools import pairwise

import pytest

from django_jobs.models import Job, JobResult, JobState, Worker
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.only_on("sqlite"),  # no database has a part in this
]
SETTINGS = "tests.integration.worker.pool.wreck.settings"
MOST_FAILURES = 6
FIRST_PAUSE = 0.1


class Tally:
    """The moments at which births failed."""

    def __init__(self, folder):
        self.path = folder / "tally"

    def __call__(self):
        text = self.path.read_text() if self.path.exists() else ""
        return [float(line) for line in text.splitlines()]

    def forget(self):
        """Let as many fail once more."""
        self.path.unlink()


@pytest.fixture
def sabotaged(start, tmp_path):
    """Starts workers whose births fail."""

    def sabotaged(how, **options):
        tally = Tally(tmp_path)
        environment = {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "WRECK_SABOTAGE": how,
            "WRECK_TALLY": str(tally.path),
        }
        return start(environment=environment, **options), tally

    return sabotaged


@pytest.mark.parametrize(
    ("how", "told"),
    [("dies", "the process ended with exit code 9"), ("forks", "no process can be started")],
)
def test_a_worker_that_can_have_no_children_gives_up(sabotaged, diary, how, told):
    gang.note.enqueue(str(diary))
    began_at = time.monotonic()
    pool, failures = sabotaged(how, processes=1)
    assert pool.ended() == 1
    pauses = [later - earlier for earlier, later in pairwise(failures())]
    print([f"{pause:.2f}" for pause in pauses], f"{time.monotonic() - began_at:.1f} s in all")
    assert len(failures()) == MOST_FAILURES
    assert all(pause >= FIRST_PAUSE * 2**number for number, pause in enumerate(pauses))
    assert pool.said.count("[worker.broken]") == 1
    assert told in pool.said
    job = Job.objects.get()
    assert (job.state, job.attempts, job.crashes, job.suspect) == (JobState.READY, 0, 0, False)
    assert not Worker.objects.exists()
    assert not diary.words


@pytest.mark.parametrize("how", ["dies:3", "forks:3"])
def test_a_few_failed_births_are_outlived(sabotaged, diary, how):
    gang.note.enqueue(str(diary))
    pool, failures = sabotaged(how, processes=1)
    until(JobResult.objects.exists)
    assert len(failures()) == 3
    # A child that works makes up for them: as many again, and again, are not too many.
    for count in (2, 3):
        failures.forget()
        os.kill(int(diary.lines[-1][0]), signal.SIGKILL)
        gang.note.enqueue(str(diary))
        until(lambda: JobResult.objects.count() == count)  # noqa: B023 - used at once
        assert len(failures()) == 3
    assert 3 * len(failures()) > MOST_FAILURES
    assert "[worker.broken]" not in pool.said
    assert pool.process.poll() is None


def test_a_parent_without_descriptors_tries_again(start, diary):
    pool = start(processes=1, environment={"DJANGO_SETTINGS_MODULE": SETTINGS})
    gang.note.enqueue(str(diary))
    until(JobResult.objects.exists)
    usual = resource.prlimit(pool.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pool.pid, resource.RLIMIT_NOFILE, (3, usual[1]))
    os.kill(diary.pid("ran"), signal.SIGKILL)
    until(lambda: len(pool.family) == 1)
    gang.note.enqueue(str(diary), "again")
    time.sleep(4 * FIRST_PAUSE)  # time in which it tries, and must not give up
    assert pool.process.poll() is None
    resource.prlimit(pool.pid, resource.RLIMIT_NOFILE, usual)
    until(lambda: "again" in diary.words)
    assert "[worker.broken]" not in pool.said
