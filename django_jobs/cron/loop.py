"""The scheduler that stays: ticks when something is due, and sleeps exactly until then."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from django_jobs.backoff import spread
from django_jobs.cron.history import Outcomes, TickPurge, forget_the_gone, purge_ticks
from django_jobs.cron.inline import POLL_SECONDS
from django_jobs.cron.tick import Ticker
from django_jobs.models import TickDecision
from django_jobs.telemetry import events
from django_jobs.worker.stop import Stop
from django_jobs.worker.store import Outage, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from django_jobs.cron.history import Decided

LONGEST_SLEEP = 5.0
"""Seconds until it looks for schedules that were added or resumed meanwhile."""
MOST_JITTER = 0.05
NAP_SECONDS = 0.1
TRIES_TO_GIVE_BACK = 10
BEHIND_SECONDS = 0.05
PATIENCE_SECONDS = 5.0
OUTCOMES_EVERY = 10.0
PURGE_EVERY = 600.0
MOST_PURGES = 20
"""Steps of a tick from a crontab, as long as each finds something: it may come once a minute."""


class Loop:
    """Ticks until told to stop. ``step`` never sleeps, for loops that do something else, too."""

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
        """Tick until a signal comes; the exit code. Inline jobs that run are let end."""
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
        """How long there is nothing to do."""
        if self.ticker.inline.busy:
            return POLL_SECONDS
        return max(self._due_at - time.monotonic(), 0.0)

    def step(self) -> None:
        """Do what is due, and find out when something will be next."""
        if self.ticker.inline.busy:
            # With no room for another it asks nothing, which would end an outage in the log.
            self._store.call(
                lambda: self.ticker.inline.step(self.ticker.inline_aliases), proves=False
            )
        if time.monotonic() >= self._due_at:
            self._store.call(self._tick)

    def end(self, urgent: Callable[[], bool]) -> None:
        """Let inline jobs end, as long as there is time."""
        inline = self.ticker.inline
        while inline.running and not urgent():
            self._store.call(inline.bury, proves=False)
            time.sleep(POLL_SECONDS)
        for _ in range(TRIES_TO_GIVE_BACK):  # their stores may be away for longer: leases tell
            self._store.call(lambda: inline.interrupt("its scheduler was told to stop at once"))
            if not inline.running:
                break
            time.sleep(NAP_SECONDS)

    def _tick(self) -> None:
        for one in self.ticker.tick(only=self._only):
            if self._on_decided is not None:
                self._on_decided(one)
        if self._hurried():
            return
        self._tell_of_undecided()
        self.ticker.inline.look_after(self.ticker.inline_aliases, self._outage)
        self.ticker.inline.step(self.ticker.inline_aliases)
        self._look_after()
        self._due_at = time.monotonic() + self._pause()

    def _tell_of_undecided(self) -> None:
        """Say once of a schedule that nobody decides what it depends on."""
        now = time.monotonic()
        before, self._undecided = self._undecided, {}
        for key, one in self.ticker.undecided.items():
            since = self._undecided[key] = before.get(key, now)
            if since + PATIENCE_SECONDS <= now:
                self._undecided[key] = float("inf")
                events.emit(events.ScheduleUndecided(schedule=one.name, why=one.reason))

    def _pause(self) -> float:
        """Seconds until the next tick: exact, and a little by chance after it.

        Several schedulers would come at the very same moment and wait for each other.
        """
        if self.ticker.is_behind:
            return BEHIND_SECONDS * random.random()  # noqa: S311 - spreads load, hides nothing
        left = self.ticker.seconds_left(LONGEST_SLEEP, only=self._only)
        if left >= LONGEST_SLEEP:
            return LONGEST_SLEEP
        return left + MOST_JITTER * random.random()  # noqa: S311 - as above

    def _look_after(self) -> None:
        now = time.monotonic()
        if now >= self._outcomes_at:
            self._outcomes_at = now + OUTCOMES_EVERY
            self._outcomes.step(self.ticker.now())
        if now >= self._purge_at:
            self._purge.step(self.ticker.now())
            if self._purge.round_is_over:
                forget_the_gone(self.ticker.alias, self.ticker.book.schedules, self.ticker.now())
                self._purge_at = now + spread(PURGE_EVERY)

    def _sleep(self) -> None:
        until = time.monotonic() + self.seconds_left()
        while not self._stopped() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, NAP_SECONDS))


def tick_once(*, only: Collection[str] | None = None, at: int | None = None) -> list[Decided]:
    """One tick, for a system's crontab: decide all that is due and wait for inline jobs.

    A dependency that another scheduler decides just now is waited for, but not for long:
    where nobody does, the answer names it as undecided, and the next tick has to see.
    """
    ticker = Ticker()
    decided = ticker.tick(only=only, at=at)
    until = time.monotonic() + PATIENCE_SECONDS
    while ticker.is_behind or (ticker.undecided and time.monotonic() < until):
        time.sleep(BEHIND_SECONDS * random.random())  # noqa: S311 - spreads load, hides nothing
        decided += ticker.tick(only=only, at=at)
    ticker.inline.look_after(ticker.inline_aliases)
    ticker.inline.finish(ticker.inline_aliases)
    now = ticker.now()
    Outcomes(ticker.alias).step(now)
    for _ in range(MOST_PURGES):
        if not purge_ticks(ticker.alias, now):
            break
    forget_the_gone(ticker.alias, ticker.book.schedules, now)
    failed = ticker.inline.not_enqueued
    found = [_failed(one, failed[one.job_id]) if one.job_id in failed else one for one in decided]
    hint = "; name it with --only as well, or leave --only out" if only is not None else ""
    left = ticker.undecided.values()
    return found + [replace(one, reason=one.reason + hint) for one in left]


def _failed(one: Decided, why: str) -> Decided:
    """As its row is told now: what runs at its enqueue is enqueued in a child, after the tick."""
    return replace(one, decision=str(TickDecision.FAILED), reason=why, job_id="")
