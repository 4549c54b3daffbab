"""Inline jobs: run by the scheduler itself, each in a child, with the code of the workers.

They wait in a queue of their own, so that another scheduler (or a worker that serves every
queue) runs the jobs that a dead one has left. There may be no worker at all, so schedulers do
the housekeeping of that queue too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.registry import backends
from django_jobs.clock import Stopwatch
from django_jobs.conf import get_settings
from django_jobs.conf.model import INLINE_QUEUE
from django_jobs.cron.child_process import UserCodeProcess
from django_jobs.models import ScheduleTick, TickDecision, TickOutcome
from django_jobs.outcome import Crashed, ErrorText, Failed, Interrupted, Outcome
from django_jobs.worker.build import build_executor, build_gatekeeper
from django_jobs.worker.duties import Housekeeping
from django_jobs.worker.settle import Run, SettleTerms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.cron.schedule import Schedule
    from django_jobs.enqueue import PreparedJob
    from django_jobs.worker.store import Outage

AT_ONCE = 4
POLL_SECONDS = 0.02


class _Running(NamedTuple):
    """A running child. One that enqueues a job has no lease."""

    child: UserCodeProcess
    lease: Lease | None
    backend: Backend | None
    began: Stopwatch


class InlineJobs:
    """The children that run inline jobs, at most ``at_once`` of them."""

    def __init__(self, alias: str, at_once: int = AT_ONCE) -> None:
        self.alias = alias
        self.processed = 0
        self.not_enqueued: dict[str, str] = {}
        """Reasons by the ids that the jobs would have had."""
        self._at_once = at_once
        self._running: list[_Running] = []
        self._killed: list[_Running] = []
        self._to_enqueue: list[tuple[str, int, str]] = []
        self._housekeeping: dict[str, Housekeeping] = {}

    @property
    def running(self) -> int:
        """How many children run, or were killed while their jobs are not given back yet."""
        return len(self._running) + len(self._killed)

    @property
    def busy(self) -> bool:
        """Whether any child runs or is about to."""
        return bool(self._running or self._to_enqueue)

    def enqueue(self, name: str, tick: int, job: PreparedJob[Any]) -> None:
        """Let a child enqueue to a backend that runs jobs at enqueue."""
        self._to_enqueue.append((name, tick, job.id))

    def do_housekeeping(self, aliases: Sequence[str], outage: Outage | None = None) -> None:
        """Give back the leases of schedulers that died, in one bounded step now and then.

        ``outage``: the caller's record of whether the store answers.
        """
        for alias in aliases:
            if alias not in self._housekeeping:
                lease_seconds = get_settings().effective_lease(INLINE_QUEUE)
                self._housekeeping[alias] = Housekeeping(backends[alias], lease_seconds, outage)
            self._housekeeping[alias].step()

    def step(self, aliases: Sequence[str]) -> bool:
        """Settle children that ended and start due jobs while there is room.

        Returns whether any child ended or began.
        """
        before = len(self._running)
        self.settle_ended()
        began = False
        while self._to_enqueue and len(self._running) < self._at_once:
            arguments = self._to_enqueue.pop(0)
            self._running.append(
                _Running(UserCodeProcess("enqueue", arguments, None), None, None, Stopwatch())
            )
            began = True
        for backend in map(backends.__getitem__, aliases):
            while len(self._running) < self._at_once and self._start(backend):
                began = True
        return began or before != len(self._running)

    def finish(self, aliases: Sequence[str]) -> None:
        """Run due jobs until there are no more."""
        while self.step(aliases) or self.busy:
            time.sleep(POLL_SECONDS)

    def interrupt(self, why: str) -> None:
        """Kill the children and give their jobs back, uncharged, for the next scheduler to run.

        May be called again after the store has failed.
        """
        self.settle_ended()  # children that ended by themselves have outcomes of their own
        for entry in self._running:
            entry.child.kill()
        self._killed, self._running = self._killed + self._running, []
        for _ in range(len(self._killed)):
            entry = self._killed.pop(0)
            try:
                self._settle_child(entry, Interrupted(why))
            except Exception:
                self._killed.append(entry)  # behind the others, as its store may be away
                raise

    def _start(self, backend: Backend) -> bool:
        settings = get_settings()
        lease_seconds = settings.effective_lease(INLINE_QUEUE)
        for lease in backend.fetch([INLINE_QUEUE], 1, lease_seconds):
            seconds = _time_limit(backend, lease)
            child = UserCodeProcess("run", (backend.alias, lease, lease_seconds), seconds)
            self._running.append(_Running(child, lease, backend, Stopwatch()))
            return True
        return False

    def settle_ended(self) -> None:
        """Settle the children that ended, and start no others."""
        for entry in [entry for entry in self._running if entry.child.is_over()]:
            self._running.remove(entry)
            self._settle_child(entry)

    def _settle_child(self, entry: _Running, killed: Outcome | None = None) -> None:
        """Settle what a child that ended could not; ``killed``: the outcome if it was killed."""
        child, lease, backend, began = entry
        ending, text = child.answer()
        self.processed += 1
        if ending != "returned" and lease is not None and backend is not None:
            outcome = killed if killed and ending == "died" else _outcome(child, ending, text)
            _settle(backend, lease, began, outcome)
        elif ending != "returned":
            self._record_not_run(child.arguments[2], ending, text)
        child.close()

    def _record_not_run(self, job_id: str, ending: str, text: str) -> None:
        """Record that a backend that runs jobs at enqueue did not run one to its end."""
        ticks = ScheduleTick.objects.using(self.alias)
        ticks = ticks.filter(job_id=job_id, outcome=TickOutcome.OPEN)
        if ending == "raised":
            self.not_enqueued[job_id] = text
            ticks.update(
                decision=TickDecision.FAILED, outcome=TickOutcome.NONE, reason=text, job_id=None
            )
        else:  # how far the job had come is unknown
            ticks.update(outcome=TickOutcome.UNKNOWN, reason=text)


def _outcome(child: UserCodeProcess, ending: str, text: str) -> Outcome:
    if child.timed_out:
        why = "the handler did not end in time and its process was killed"
        return Failed(ErrorText("JobTimeout", why), timed_out=True)
    return Crashed(text if ending == "died" else f"its process failed: {text}")


def _settle(backend: Backend, lease: Lease, began: Stopwatch, outcome: Outcome) -> None:
    """Settle a job in place of the child that died."""
    executor = build_executor(backend, get_settings())
    header = lease.message.header
    envelope = executor.gatekeeper.believed(lease)
    executor.settler.settle(
        Run(
            lease=lease,
            terms=SettleTerms.of(envelope),
            attempts=header.attempts,
            crashes=header.crashes,
            started_at=began.started,
            finished_at=began.now(),
            worker=executor.worker,
        ),
        outcome,
    )


def _time_limit(backend: Backend, lease: Lease) -> float | None:
    """Seconds after which a child is killed: its handler's timeout plus a grace period."""
    settings = get_settings()
    envelope = build_gatekeeper(backend, settings).believed(lease)
    timeout = envelope.terms.timeout if envelope else None
    seconds = settings.effective_timeout(INLINE_QUEUE) if timeout is None else timeout
    return seconds + settings.kill_grace if seconds else None


def aliases_of(schedules: Iterable[Schedule]) -> list[str]:
    """The backends with jobs of schedules that have no queue."""
    settings = get_settings()
    aliases = {
        schedule.job.options.backend or settings.backend_for(INLINE_QUEUE)
        for schedule in schedules
        if schedule.queue is None
    }
    return [alias for alias in sorted(aliases) if not backends[alias].runs_at_enqueue]
