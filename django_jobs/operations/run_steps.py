"""Carrying a run on: one step at a time, by one at a time.

What a step did is written with the dead letter that it did it to, so that a step that is
cut off is neither lost nor counted twice.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from django.db.models import F

from django_jobs.backends.database.rows import for_people
from django_jobs.clock import SECOND
from django_jobs.db.home import jobs_database, store_now
from django_jobs.models import FailedJob, ResolutionRun
from django_jobs.operations.dead_letters import discard
from django_jobs.operations.matching import Matching
from django_jobs.operations.replaying import replay
from django_jobs.operations.runs import end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from django_jobs.operations.dead_letters import Discarded
    from django_jobs.operations.replaying import Replayed

STEP_SECONDS = 5.0
_HELD = 60 * SECOND
_SLACK = SECOND * 3 // 2  # between one step and the next: a snooze takes a second at least
_READ_AT_ONCE = 50
_PROBLEMS_KEPT = 20


def advance(
    run_id: int, *, seconds: float = STEP_SECONDS, using: str | None = None
) -> tuple[ResolutionRun, float]:
    """Carry a run on for some seconds; the run, and in how many seconds there is more to do.

    Does nothing while somebody else is at it, while its pace forbids more, and when it has
    ended. Raises ResolutionRun.DoesNotExist.
    """
    alias = using or jobs_database()
    step = _Step(alias, run_id)
    wait = step.make(time.monotonic() + seconds)
    return ResolutionRun.objects.using(alias).get(pk=run_id), wait


class _Step:
    """One step of a run, by whoever holds it."""

    def __init__(self, alias: str, run_id: int) -> None:
        self.alias = alias
        self.token = uuid.uuid4().hex
        self.began_at = store_now(alias)
        self.began = time.monotonic()
        running = ResolutionRun.objects.using(alias).filter(pk=run_id)
        self.running = running.filter(state=ResolutionRun.State.RUNNING)
        self.mine = self.running.filter(stepper=self.token)
        self.run_id = run_id

    def now(self) -> int:
        """The store's clock, without asking it each time."""
        return self.began_at + int((time.monotonic() - self.began) * SECOND)

    def make(self, deadline: float) -> float:
        free = self.running.filter(stepping_until__lte=self.now())
        if not free.update(stepper=self.token, stepping_until=self.now() + _HELD):
            return 1.0
        run = ResolutionRun.objects.using(self.alias).get(pk=self.run_id)
        try:
            return self._through(run, deadline)
        finally:
            self.mine.update(stepping_until=0)

    def _through(self, run: ResolutionRun, deadline: float) -> float:
        # What was not used of the pace while nobody stepped is not caught up with.
        due = max(run.next_at, self.now() - (_SLACK if run.next_at else 0))
        for failed_id in self._keys(run):
            wait = max(due - self.now(), 0) / SECOND
            if time.monotonic() + wait >= deadline:
                return wait
            time.sleep(wait)
            if run.rate:
                due += int(SECOND / run.rate)
            if not self._deal_with(run, failed_id, due):
                return 1.0  # stopped, or held by somebody else by now
        end(self.alias, run, ResolutionRun.State.FINISHED)
        return 0.0

    def _keys(self, run: ResolutionRun) -> Iterator[int]:
        letters = Matching.from_document(run.matching).letters(self.alias)
        rising = letters.order_by("pk").values_list("pk", flat=True)
        after = run.cursor
        while keys := list(rising.filter(pk__gt=after, pk__lte=run.upto)[:_READ_AT_ONCE]):
            yield from keys
            after = keys[-1]

    def _deal_with(self, run: ResolutionRun, failed_id: int, due: int) -> bool:
        """One dead letter; False when the run is no longer this step's."""
        at = {"cursor": failed_id, "next_at": due, "stepping_until": self.now() + _HELD}
        counted = False

        def witness(_failed: FailedJob, _before: str) -> None:
            # With what it counts, in one transaction.
            nonlocal counted
            counted = bool(self.mine.update(**at, done=F("done") + 1))
            if not counted:
                raise _NotOurs

        if not self.mine.update(stepping_until=at["stepping_until"], stepped_at=self._moment()):
            return False
        try:
            answer = self._resolve(run, failed_id, witness)
        except _NotOurs:
            return False
        if counted:
            return True
        refused = answer is not None and answer.status == "refused"
        if answer is not None and refused:
            self._keep_problem(run, answer)
        column = "refused" if refused else "passed_over"
        return bool(self.mine.update(**at, **{column: F(column) + 1}))

    def _resolve(
        self, run: ResolutionRun, failed_id: int, witness: Callable[[FailedJob, str], None]
    ) -> Replayed | Discarded | None:
        operation: Callable[..., Replayed | Discarded]
        operation = replay if run.verb == "replay" else discard
        try:
            return operation(
                failed_id, by=run.started_by, reason=run.reason, using=self.alias, witness=witness
            )
        except FailedJob.DoesNotExist:
            return None  # purged since its key was read

    def _keep_problem(self, run: ResolutionRun, answer: Replayed | Discarded) -> None:
        if len(run.problems) < _PROBLEMS_KEPT:
            run.problems = [*run.problems, [answer.failed_id, answer.why]]
            self.mine.update(problems=run.problems)

    def _moment(self) -> datetime:
        return for_people(self.now())


class _NotOurs(Exception):
    """The run was stopped, or is held by somebody else by now."""
