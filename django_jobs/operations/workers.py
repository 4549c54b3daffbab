"""Workers: which ones are present, what they run, and how to drain one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from django_jobs.backends.home import moments, record, store_now
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.transactions import in_transition
from django_jobs.ids import parse_id
from django_jobs.models import Job, JobState, Worker
from django_jobs.routers import job_databases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PRESENT_SECONDS = 30.0
RUNNING_SHOWN = 200
_NO_ID = "00000000-0000-0000-0000-000000000000"
"""Matches no worker, in place of an id that cannot be parsed."""

DrainStatus = Literal["asked", "already-asked", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker's row as it last wrote it, and its running jobs."""

    worker: Worker
    now: int
    jobs: list[Job] = field(default_factory=list)

    @property
    def seconds_ago(self) -> float:
        return max(self.now - self.worker.seen, 0) / SECOND

    @property
    def is_present(self) -> bool:
        """Whether it has updated its row lately; else it is lost, or cannot reach its store."""
        return self.seconds_ago <= PRESENT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The result of draining a worker."""

    worker: str
    status: DrainStatus


def workers(
    using: str | None = None, *, with_jobs: bool = False, at: Mapping[str, int] | None = None
) -> list[WorkerSeen]:
    """All workers that have a row, the latest seen first."""
    seen = []
    for alias, now in (at or ({using: store_now(using)} if using else moments())).items():
        jobs = _running(alias, now) if with_jobs else {}
        seen += [
            WorkerSeen(worker=worker, now=now, jobs=jobs.get(name_of(worker), []))
            for worker in Worker.objects.using(alias).order_by("-seen")
        ]
    return seen


def name_of(worker: Worker) -> str:
    """The worker's name as in the rows of the jobs that it has leased."""
    return f"{worker.host[:96]}:{worker.pid}"


def serves(worker: Worker, queue: str) -> bool:
    """Whether a worker fetches from a queue."""
    if worker.queues in {"", "every queue"}:
        return True
    return queue in {part.partition(":")[0] for part in worker.queues.split(",")}


def drain(
    worker_id: str,
    *,
    by: str,
    reason: str = "",
    witness: Callable[[Worker], None] | None = None,
) -> Drained:
    """Ask a worker to finish what it runs, give back the rest and end."""
    key = parse_id(worker_id) or _NO_ID
    for alias in job_databases(get_settings()):
        status, worker = in_transition(alias, lambda _: _drain(alias, key, by, reason, witness))  # noqa: B023 - called at once
        if worker is not None:
            return Drained(worker=str(worker), status=status)
    return Drained(worker=worker_id, status="gone")


def _drain(
    alias: str,
    key: str,
    by: str,
    reason: str,
    witness: Callable[[Worker], None] | None,
) -> tuple[DrainStatus, Worker | None]:
    worker = Worker.objects.using(alias).select_for_update().filter(pk=key).first()
    if worker is None:
        return "gone", None
    if worker.draining:
        return "already-asked", worker
    worker.draining = True
    worker.save(using=alias, update_fields=["draining"])
    about: dict[str, Any] = {"backend": worker.backend, "subject": str(worker)}
    record(alias, "drain", by=by, reason=reason, **about)
    if witness is not None:
        witness(worker)
    return "asked", worker


def _running(alias: str, now: int) -> dict[str, list[Job]]:
    """Running jobs by worker: at most RUNNING_SHOWN, those whose lease ends first."""
    running = Job.objects.using(alias).filter(
        state=JobState.RUNNING, lease_expires__gt=now - to_microseconds(PRESENT_SECONDS)
    )
    by_worker: dict[str, list[Job]] = defaultdict(list)
    columns = ("id", "queue", "handler", "name", "worker", "leased_at", "cancel_requested")
    for job in running.order_by("lease_expires").only(*columns)[:RUNNING_SHOWN]:
        by_worker[job.worker or ""].append(job)
    return by_worker
