"""The scheduler's loop: ticks when something is due, and sleeps until then. Also single ticks."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from django_jobs.cron.history import Outcomes, TickPurge, purge_ticks, reset_removed
from django_jobs.cron.inline import POLL_SECONDS
from django_jobs.cron.tick import Ticker
from django_jobs.models import TickDecision
from django_jobs.retry import spread
from django_jobs.telemetry import events
from django_jobs.worker.stop import Stop
from django_jobs.worker.store import Outage, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from django_jobs.cron.history import Decided

LONGEST_SLEEP = 5.0
"""Seconds until it looks for schedules that were added or resumed in the meantime."""
MOST_JITTER = 0.05
NAP_SECONDS = 0.1
TRIES_TO_GIVE_BACK = 10
BEHIND_SECONDS = 0.05
PATIENCE_SECONDS = 5.0
OUTCOMES_EVERY = 10.0
PURGE_EVERY = 600.0
MOST_PURGES = 20
"""Purge steps of a single tick, while each deletes something: it may come once a minute."""


class Loop:
    """Ticks until stopped. ``step`` never sleeps, for loops that do other work as well."""

    def __init__(
        self,
        *,
        only: Collection[str] | None = None,
        on_decided: Callable[[Decided], object] | None = None,
        stopped: Callable[[], bool] | None = None,
        hurried: Callable[[], bool] | None = None,
    ) -> None:
        self.stop = Stop()
        self._only = only
        self._on_decided = on_decided
        self._stopped = stopped or self.stop.asked.is_set
        self._hurried = hurried or (lambda: self.stop.urgent)
        self.ticker = Ticker(hurried=self._hurried)
        alias = self.ticker.alias
        self._outage = Outage(f"of schedules ({alias})", database=alias)
        self._store = Store(self._outage, self._stopped)
        self._outcomes = Outcomes(self.ticker.alias)
        self._purge = TickPurge(self.ticker.alias)
        self._undecided: dict[str, float] = {}
        self._due_at = 0.0
        self._outcomes_at = time.monotonic() + OUTCOMES_EVERY * random.random()  # noqa: S311 - spreads load
        self._purge_at = time.monotonic() + PURGE_EVERY * random.random()  # noqa: S311 - as above

    def run(self) -> int:
        """Tick until a signal comes; returns the exit code. Running inline jobs may end."""
        events.emit(events.SchedulerStarted())
        with self.stop.listening():
            while not self._stopped():
                self.step()
                self._sleep()
            self.end(urgent=self._hurried)
        why = "a second signal cut it short" if self._hurried() else "it was told to"
        events.emit(events.SchedulerStopped(why=why))
        return self.stop.exit_code

    def seconds_left(self) -> float:
        """How long until there is something to do."""
        if self.ticker.inline.busy:
            return POLL_SECONDS
        return max(self._due_at - time.monotonic(), 0.0)

    def step(self) -> None:
        """Do what is due, and compute when something will be due next."""
        if self.ticker.inline.busy:
            # Proves nothing: with all children busy the store is not asked at all.
            self._store.call(
                lambda: self.ticker.inline.step(self.ticker.inline_aliases), proves=False
            )
        if time.monotonic() >= self._due_at:
            self._store.call(self._tick)

    def end(self, urgent: Callable[[], bool]) -> None:
        """Let inline jobs end while there is time, then interrupt them."""
        inline = self.ticker.inline
        while inline.running and not urgent():
            self._store.call(inline.settle_ended, proves=False)
            time.sleep(POLL_SECONDS)
        for _ in range(TRIES_TO_GIVE_BACK):  # a store may be away for longer: leases expire then
            self._store.call(lambda: inline.interrupt("its scheduler was told to stop at once"))
            if not inline.running:
                break
            time.sleep(NAP_SECONDS)

    def _tick(self) -> None:
        for decided in self.ticker.tick(only=self._only):
            if self._on_decided is not None:
                self._on_decided(decided)
        if self._hurried():
            return
        self._report_undecided()
        self.ticker.inline.do_housekeeping(self.ticker.inline_aliases, self._outage)
        self.ticker.inline.step(self.ticker.inline_aliases)
        self._do_housekeeping()
        self._due_at = time.monotonic() + self._pause()

    def _report_undecided(self) -> None:
        """Report once that no scheduler decides what a schedule depends on."""
        now = time.monotonic()
        before, self._undecided = self._undecided, {}
        for key, decided in self.ticker.undecided.items():
            since = self._undecided[key] = before.get(key, now)
            if since + PATIENCE_SECONDS <= now:
                self._undecided[key] = float("inf")
                events.emit(events.ScheduleUndecided(schedule=decided.name, why=decided.reason))

    def _pause(self) -> float:
        """Seconds until the next tick, plus a little jitter.

        Without it, several schedulers would tick at the same moment and wait for each other.
        """
        if self.ticker.is_behind:
            return BEHIND_SECONDS * random.random()  # noqa: S311 - spreads load, hides nothing
        left = self.ticker.seconds_left(LONGEST_SLEEP, only=self._only)
        if left >= LONGEST_SLEEP:
            return LONGEST_SLEEP
        return left + MOST_JITTER * random.random()  # noqa: S311 - as above

    def _do_housekeeping(self) -> None:
        now = time.monotonic()
        if now >= self._outcomes_at:
            self._outcomes_at = now + OUTCOMES_EVERY
            self._outcomes.step(self.ticker.now())
        if now >= self._purge_at:
            self._purge.step(self.ticker.now())
            if self._purge.round_is_over:
                reset_removed(self.ticker.alias, self.ticker.book.schedules, self.ticker.now())
                self._purge_at = now + spread(PURGE_EVERY)

    def _sleep(self) -> None:
        until = time.monotonic() + self.seconds_left()
        while not self._stopped() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, NAP_SECONDS))


def tick_once(*, only: Collection[str] | None = None, at: int | None = None) -> list[Decided]:
    """One tick, for a system's crontab: decide all that is due and wait for inline jobs.

    Waits for dependencies that another scheduler may be deciding, but not for long: a schedule
    whose dependency stays undecided is in the answer as such, and is left to the next tick.
    """
    ticker = Ticker()
    decided = ticker.tick(only=only, at=at)
    until = time.monotonic() + PATIENCE_SECONDS
    while ticker.is_behind or (ticker.undecided and time.monotonic() < until):
        time.sleep(BEHIND_SECONDS * random.random())  # noqa: S311 - spreads load, hides nothing
        decided += ticker.tick(only=only, at=at)
    ticker.inline.do_housekeeping(ticker.inline_aliases)
    ticker.inline.finish(ticker.inline_aliases)
    now = ticker.now()
    Outcomes(ticker.alias).step(now)
    for _ in range(MOST_PURGES):
        if not purge_ticks(ticker.alias, now):
            break
    reset_removed(ticker.alias, ticker.book.schedules, now)
    failed = ticker.inline.not_enqueued
    results = [
        _failed(tick, failed[tick.job_id]) if tick.job_id in failed else tick for tick in decided
    ]
    hint = "; name it with --only as well, or leave --only out" if only is not None else ""
    left = ticker.undecided.values()
    return results + [replace(tick, reason=tick.reason + hint) for tick in left]


def _failed(decided: Decided, why: str) -> Decided:
    """As its row is now: a job that runs at enqueue is enqueued in a child, after the tick."""
    return replace(decided, decision=str(TickDecision.FAILED), reason=why, job_id="")
