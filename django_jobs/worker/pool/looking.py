"""Looking for work, and knowing when there is none and when to look again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django_jobs.worker.pool.facts import Fetched
from django_jobs.worker.pool.waiting import Waiter

if TYPE_CHECKING:
    import threading

    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings
    from django_jobs.worker.queues import QueueOrder


# After the last job that is to be had: it starts the sooner when nobody is busy meanwhile.
BREATH_SECONDS = 0.002


class Looking:
    """What the store's thread knows about work to be had. ``changed`` wakes that thread."""

    def __init__(
        self,
        backend: Backend,
        settings: JobsSettings,
        queues: QueueOrder,
        poll_interval: float,
        changed: threading.Condition,
    ) -> None:
        self.fetching = False
        self.waiter = Waiter(backend, queues, poll_interval, self.hint)
        self._backend = backend
        self._settings = settings
        self._queues = queues
        self._changed = changed
        self._target = self._fetched = 0
        self._changes, self._seen_empty, self._looked_again = 0, -1, False
        self._hints, self._hints_seen = 0, 0
        self._look_at = 0.0
        self._was_short = self._suspends = self._goes_on = False

    @property
    def empty(self) -> bool:
        """Whether nothing was due when it was last looked, and nothing has happened since."""
        return self._seen_empty == self._changes

    def wish(self, received: int, wanted: int) -> None:
        """Fetch until so many leases more have been fetched than have been received.

        After a suspect, or with plenty of bytes, nothing is until whoever has them says anew.
        """
        target = received + wanted
        if target != self._target or self._suspends:
            with self._changed:
                self._suspends = self._suspends and received < self._fetched
                self._target = target
                self._changed.notify()

    def suspend(self) -> None:
        """Fetch nothing until a new wish is made by who has received all that was fetched."""
        self._suspends = True

    def hint(self) -> None:
        """There may be work."""
        with self._changed:
            self._hints, self._look_at = self._hints + 1, 0.0
            self._changed.notify()

    def something_ended(self) -> None:
        """It may have made others due: jobs it enqueued, or itself again."""
        with self._changed:
            self._changes, self._look_at, self._looked_again = self._changes + 1, 0.0, False
            self._changed.notify()

    def seconds_left(self) -> float:
        """How long there is no reason to look."""
        if self._target <= self._fetched or self._suspends:
            return float("inf")
        return min(self._look_at, self.waiter.trusted_until) - time.monotonic()

    def begin(self) -> bool:
        """Whether it is time to look; if it is, the look counts as begun."""
        with self._changed:
            self.fetching = self.seconds_left() <= 0
        return self.fetching

    def look(self) -> Fetched | None:
        """Fetch what is wanted, from the first queue that has any."""
        self.waiter.cut_if_hung()
        changes, hints = self._changes, self._hints
        # When there was less than wanted, there is hardly more: asking is cheaper than trying.
        tries = not self._was_short or hints != self._hints_seen or self._may_be_work()
        wanted = self._target - self._fetched
        if wanted <= 0:  # wishes change at any time
            return None
        if tries and (fetched := self._fetch(wanted)):
            self._hints_seen = hints
            return fetched
        if tries and self._goes_on:
            with self._changed:  # at the next turn, which comes at once
                self._was_short, self._look_at = False, 0.0
            return None
        if tries and not (self._looked_again and hints == self._hints_seen) and self._may_be_work():
            # What was just done, or whoever hinted, enqueued to a queue that is new.
            self._looked_again, self._hints_seen = True, hints
            self._queues.look_again()
        else:
            self._nothing(changes, hints)
        return None

    def _fetch(self, wanted: int) -> Fetched | None:
        self._goes_on = False
        for seconds, alike in self._by_lease(self._queues.next()):
            asked_at = time.monotonic()
            if leases := self._backend.fetch(alike, wanted, seconds):
                self._fetched += len(leases)
                self._suspends = leases[-1].suspect
                self._seen_empty, self._looked_again = -1, False
                self.waiter.disarm()
                self._was_short = len(leases) < wanted
                if self._was_short:
                    self._look_at = time.monotonic() + BREATH_SECONDS
                return Fetched(leases, seconds, asked_at)
            self._goes_on = self._goes_on or self._backend.fetch_ended_early
        return None

    def _may_be_work(self) -> bool:
        return self._backend.wait(self._queues.watched, 0.0)

    def _nothing(self, changes: int, hints: int) -> None:
        with self._changed:
            if changes != self._changes:
                return
            self._seen_empty = changes
            if hints == self._hints:
                self._look_at = float("inf")
                self.waiter.arm()

    def keep_up(self) -> None:
        """What can wait until nobody waits for a job."""
        self._queues.refresh()

    def _by_lease(self, queues: Any) -> list[tuple[float, list[str]]]:
        """Queues in their order, neighbours with leases of the same length together."""
        groups: list[tuple[float, list[str]]] = []
        for queue in queues:
            seconds = self._settings.effective_lease(queue)
            if groups and groups[-1][0] == seconds:
                groups[-1][1].append(queue)
            else:
                groups.append((seconds, [queue]))
        return groups
