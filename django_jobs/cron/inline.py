"""Inline jobs: run by the scheduler itself, each in a child, through the workers' pipeline.

They wait in a queue of their own, so that another scheduler runs what one that died has
left; a worker that serves every queue may as well. There may be no worker at all, so that
schedulers keep house there too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.registry import backends
from django_jobs.clock import Stopwatch
from django_jobs.conf import get_settings
from django_jobs.conf.model import INLINE_QUEUE
from django_jobs.cron.child_process import Child
from django_jobs.execution.outcome import Crashed, ErrorText, Failed, Interrupted, Outcome
from django_jobs.models import ScheduleTick, TickDecision, TickOutcome
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
    """A child. One that enqueues a job has no lease of it."""

    child: Child
    lease: Lease | None
    backend: Backend | None
    began: Stopwatch


class InlineJobs:
    """The children that run inline jobs, at most so many at once."""

    def __init__(self, alias: str, at_once: int = AT_ONCE) -> None:
        self.alias = alias
        self.processed = 0
        self.not_enqueued: dict[str, str] = {}
        """Why, by the ids that the jobs would have had."""
        self._at_once = at_once
        self._running: list[_Running] = []
        self._killed: list[_Running] = []
        self._to_enqueue: list[tuple[str, int, str]] = []
        self._keepers: dict[str, Housekeeping] = {}

    @property
    def running(self) -> int:
        """How many run, or were killed and not given back yet."""
        return len(self._running) + len(self._killed)

    @property
    def busy(self) -> bool:
        """Whether any of them runs or is about to."""
        return bool(self._running or self._to_enqueue)

    def enqueue(self, name: str, tick: int, job: PreparedJob[Any]) -> None:
        """Let a child enqueue to a backend that runs its jobs at once."""
        self._to_enqueue.append((name, tick, job.id))

    def look_after(self, aliases: Sequence[str], outage: Outage | None = None) -> None:
        """Give back what schedulers that died had leased, in one bounded step now and then.

        ``outage``: how whoever calls it again and again finds the store.
        """
        for alias in aliases:
            if alias not in self._keepers:
                lease_seconds = get_settings().effective_lease(INLINE_QUEUE)
                self._keepers[alias] = Housekeeping(backends[alias], lease_seconds, outage)
            self._keepers[alias].step()

    def step(self, aliases: Sequence[str]) -> bool:
        """Start what is due as far as there is room, bury what ended; whether anything ran."""
        before = len(self._running)
        self.bury()
        began = False
        while self._to_enqueue and len(self._running) < self._at_once:
            given = self._to_enqueue.pop(0)
            self._running.append(_Running(Child("enqueue", given, None), None, None, Stopwatch()))
            began = True
        for backend in map(backends.__getitem__, aliases):
            while len(self._running) < self._at_once and self._start(backend):
                began = True
        return began or before != len(self._running)

    def finish(self, aliases: Sequence[str]) -> None:
        """Run what is due until nothing is."""
        while self.step(aliases) or self.busy:
            time.sleep(POLL_SECONDS)

    def interrupt(self, why: str) -> None:
        """End them at once and give their jobs back, uncharged, for the next scheduler to run.

        May be called again, where the store failed.
        """
        self.bury()  # what ended by itself has a verdict of its own
        for entry in self._running:
            entry.child.kill()
        self._killed, self._running = self._killed + self._running, []
        for _ in range(len(self._killed)):
            entry = self._killed.pop(0)
            try:
                self._take_note(entry, Interrupted(why))
            except Exception:
                self._killed.append(entry)  # behind the others, as its store may be away
                raise

    def _start(self, backend: Backend) -> bool:
        settings = get_settings()
        lease_seconds = settings.effective_lease(INLINE_QUEUE)
        for lease in backend.fetch([INLINE_QUEUE], 1, lease_seconds):
            seconds = _patience(backend, lease)
            child = Child("run", (backend.alias, lease, lease_seconds), seconds)
            self._running.append(_Running(child, lease, backend, Stopwatch()))
            return True
        return False

    def bury(self) -> None:
        """Take note of those that ended; start no other."""
        for entry in [entry for entry in self._running if entry.child.is_over()]:
            self._running.remove(entry)
            self._take_note(entry)

    def _take_note(self, entry: _Running, killed: Outcome | None = None) -> None:
        """Settle what a child that ended could not; ``killed``: how, if it was killed for that."""
        child, lease, backend, began = entry
        how, told = child.answer()
        self.processed += 1
        if how != "said" and lease is not None and backend is not None:
            outcome = killed if killed and how == "died" else _verdict(child, how, told)
            _settle(backend, lease, began, outcome)
        elif how != "said":
            self._not_run(child.given[2], how, told)
        child.close()

    def _not_run(self, job_id: str, how: str, told: str) -> None:
        """Write down that a backend that runs jobs at once did not take one to its end."""
        ticks = ScheduleTick.objects.using(self.alias)
        ticks = ticks.filter(job_id=job_id, outcome=TickOutcome.OPEN)
        if how == "raised":
            self.not_enqueued[job_id] = told
            ticks.update(
                decision=TickDecision.FAILED, outcome=TickOutcome.NONE, reason=told, job_id=None
            )
        else:  # how far the job had come, nobody knows
            ticks.update(outcome=TickOutcome.UNKNOWN, reason=told)


def _verdict(child: Child, how: str, told: str) -> Outcome:
    if child.timed_out:
        why = "the handler did not end in time and its process was killed"
        return Failed(ErrorText("JobTimeout", why), timed_out=True)
    return Crashed(told if how == "died" else f"its process failed: {told}")


def _settle(backend: Backend, lease: Lease, began: Stopwatch, outcome: Outcome) -> None:
    """What its child could not say any more."""
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


def _patience(backend: Backend, lease: Lease) -> float | None:
    """Seconds after which a child is killed: its handler's timeout, and a grace."""
    settings = get_settings()
    envelope = build_gatekeeper(backend, settings).believed(lease)
    given = envelope.terms.timeout if envelope else None
    seconds = settings.effective_timeout(INLINE_QUEUE) if given is None else given
    return seconds + settings.kill_grace if seconds else None


def aliases_of(schedules: Iterable[Schedule]) -> list[str]:
    """The backends in which jobs of schedules without a queue wait."""
    settings = get_settings()
    found = {
        schedule.job.options.backend or settings.backend_for(INLINE_QUEUE)
        for schedule in schedules
        if schedule.queue is None
    }
    return [alias for alias in sorted(found) if not backends[alias].runs_at_enqueue]
