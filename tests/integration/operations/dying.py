"""Dead letters made the real way: enqueued, fetched and abandoned."""

from django_jobs.backends.base import AttemptRecord, Failure
from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob
from testproject.shop.jobs import doomed

FAILURE = {
    "reason": "exhausted",
    "error_type": "builtins.RuntimeError",
    "error_message": "this handler never succeeds",
    "traceback": "Traceback (most recent call last):\n  somewhere\nRuntimeError: never",
    "output": "what it printed",
    "fingerprint": "f00dfeed" * 8,
}


def die(prepared=None, carrier="database", **failure):
    """Enqueue a job (``doomed`` unless given), lose it, and return its dead letter."""
    handle = (prepared or doomed.prepare()).enqueue()
    backend = backends[carrier]
    leases = [
        lease
        for lease in backend.fetch([queue_of(handle.id, carrier)], 100, 30)
        if lease.id == handle.id
    ]
    attempt = AttemptRecord(
        number=1,
        outcome="failed",
        started_at=1_700_000_000_000_000,
        finished_at=1_700_000_001_000_000,
        error_type="builtins.RuntimeError",
        error_message="this handler never succeeds",
        traceback="Traceback of the first attempt",
        worker="a-host:17",
    )
    backend.abandon(leases[0], Failure(**{**FAILURE, "attempt": attempt, **failure}))
    return FailedJob.objects.using(backend.database).get(job_id=handle.id)


def queue_of(job_id, carrier="database"):
    return backends[carrier].find(job_id).queue
