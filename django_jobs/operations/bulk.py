"""Replay or discard very many dead letters: a stored run, carried on in short steps.

A worker that runs the run's job and the page that shows the run both make steps, one at a time.
Progress is written in the same transaction as the dead letter it is about, so that work of a step
that is cut off is neither lost nor counted twice.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Literal

from django.db import IntegrityError
from django.db.models import F

from django_jobs.backends.home import jobs_database, record, store_now
from django_jobs.clock import SECOND
from django_jobs.db.clock import for_people
from django_jobs.db.transactions import in_transition
from django_jobs.definition import Options
from django_jobs.enqueue import DefinedJob
from django_jobs.exceptions import ConfigurationError, InvalidJob
from django_jobs.models import FailedJob, ResolutionRun
from django_jobs.operations.dead_letters import Matching, discard
from django_jobs.operations.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from django_jobs.operations.dead_letters import Discarded
    from django_jobs.operations.replay import Replayed


CARRY_ON = "django_jobs.carry_on"
MOST_A_SECOND = 1000.0
VERBS = ("replay", "discard")
Verb = Literal["replay", "discard"]


def begin(
    verb: Verb,
    matching: Matching,
    *,
    by: str,
    reason: str = "",
    rate: float | None = None,
    token: str | None = None,
    using: str | None = None,
    witness: Callable[[ResolutionRun], None] | None = None,
) -> ResolutionRun:
    """Store a run through all open dead letters that match, and a job that carries it on.

    Dead letters that come to match later are left alone. ``rate``: at most so many a second.
    ``token``: if a run was begun with it already, that run is returned and no other begun.
    ``witness`` is called with the run, in the transaction that stores it.
    """
    _check(verb, rate)
    alias = using or jobs_database()

    def work(_: Any) -> ResolutionRun:
        if token and (before := ResolutionRun.objects.using(alias).filter(token=token).first()):
            return before
        columns = {"verb": verb, "rate": rate, "token": token, "reason": reason}
        run = _store(alias, matching, by, columns)
        if witness is not None:
            witness(run)
        return run

    try:
        run = in_transition(alias, work)
    except IntegrityError:  # submitted twice at once, and the other one was first
        return ResolutionRun.objects.using(alias).get(token=token)
    if not run.total:
        end(alias, run, ResolutionRun.State.FINISHED)
    elif run.state == ResolutionRun.State.RUNNING:
        carry(run, using=alias)
    run.refresh_from_db()
    return run


def _store(alias: str, matching: Matching, by: str, columns: dict[str, Any]) -> ResolutionRun:
    letters = matching.letters(alias)
    last = letters.order_by("-pk").values_list("pk", flat=True).first()
    run = ResolutionRun.objects.using(alias).create(
        **columns,
        matching=matching.document(),
        total=0 if last is None else letters.filter(pk__lte=last).count(),
        upto=last or 0,
        started_by=by[:150],
        started_at=for_people(store_now(alias)),
    )
    _record(alias, run, f"{run.verb}-run", by, run.reason)
    return run


def _check(verb: str, rate: float | None) -> None:
    if verb not in VERBS:
        raise ValueError(f"a run can replay or discard, not {verb!r}")
    if rate is not None and not 0 < rate <= MOST_A_SECOND:
        raise ValueError(f"a rate is above 0 and at most {MOST_A_SECOND} a second, not {rate}")


def carry(run: ResolutionRun, *, using: str | None = None) -> None:
    """Enqueue the job that carries a run on, for the workers of the dead letters' own queue.

    If it cannot be enqueued, the run records why, and goes on only while its page is open.
    """
    alias = using or jobs_database()
    first = Matching.from_document(run.matching).letters(alias).order_by("pk").first()
    if first is None:
        return
    options = Options(
        backend=first.backend,
        queue=first.queue,
        name="carry on a run through dead letters",
        unique_key=f"django_jobs-run-{alias}-{run.pk}",
        max_retries=10,
        retry=[5.0, 30.0],
        timeout=300.0,
    )
    try:
        payload = {"args": [run.pk], "kwargs": {"using": alias}}
        handle = DefinedJob(CARRY_ON, payload, options).prepare().enqueue()
    except (InvalidJob, ConfigurationError) as error:
        run.carrier, run.obstacle = "", str(error)
    else:
        run.carrier, run.obstacle = handle.id, ""
    run.save(using=alias, update_fields=["carrier", "obstacle"])


def stop(run_id: int, *, by: str, reason: str = "", using: str | None = None) -> bool:
    """Stop a run where it is; returns whether it was running. What it did stays done."""
    alias = using or jobs_database()

    def work(_: Any) -> bool:
        run = ResolutionRun.objects.using(alias).select_for_update().get(pk=run_id)
        if run.state != ResolutionRun.State.RUNNING:
            return False
        end(alias, run, ResolutionRun.State.STOPPED, by)
        _record(alias, run, f"stop-{run.verb}-run", by, reason)
        return True

    return in_transition(alias, work)


def end(alias: str, run: ResolutionRun, state: str, by: str = "") -> None:
    """Mark a run that was running as ended."""
    running = ResolutionRun.objects.using(alias).filter(
        pk=run.pk, state=ResolutionRun.State.RUNNING
    )
    ended_at = for_people(store_now(alias))
    running.update(state=state, ended_at=ended_at, ended_by=by[:150], stepping_until=0)


def _record(alias: str, run: ResolutionRun, action: str, by: str, reason: str) -> None:
    detail = {"run": run.pk, "matching": run.matching, "total": run.total, "rate": run.rate}
    record(
        alias,
        action,
        by=by,
        reason=reason,
        queue=run.matching.get("queue", ""),
        subject=f"run {run.pk}",
        detail=detail,
    )


STEP_SECONDS = 5.0
_HELD = 60 * SECOND
_SLACK = SECOND * 3 // 2  # between one step and the next: a snooze takes a second at least
_READ_AT_ONCE = 50
_PROBLEMS_KEPT = 20


def advance(
    run_id: int, *, seconds: float = STEP_SECONDS, using: str | None = None
) -> tuple[ResolutionRun, float]:
    """Carry a run on for some seconds; returns it, and in how many seconds there is more to do.

    Does nothing while another step is under way, while the rate forbids more, and when the run
    has ended. Raises ResolutionRun.DoesNotExist.
    """
    alias = using or jobs_database()
    step = _Step(alias, run_id)
    wait = step.make(time.monotonic() + seconds)
    return ResolutionRun.objects.using(alias).get(pk=run_id), wait


class _Step:
    """One step of a run, made while this process holds the run."""

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
        """The store's clock, read once and counted on from there."""
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
        # Time in which no step was made is not caught up with.
        due = max(run.next_at, self.now() - (_SLACK if run.next_at else 0))
        for failed_id in self._keys(run):
            wait = max(due - self.now(), 0) / SECOND
            if time.monotonic() + wait >= deadline:
                return wait
            time.sleep(wait)
            if run.rate:
                due += int(SECOND / run.rate)
            if not self._deal_with(run, failed_id, due):
                return 1.0  # stopped, or held by another process by now
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
        """Resolve one dead letter; False when the run is no longer held by this step."""
        at = {"cursor": failed_id, "next_at": due, "stepping_until": self.now() + _HELD}
        counted = False

        def witness(_failed: FailedJob, _before: str) -> None:
            # Counted in the transaction that resolves the dead letter.
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
    """The run was stopped, or is held by another process by now."""
