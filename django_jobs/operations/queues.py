"""Operate queues while they run: pause, limit, and reset their counters and breakers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import KeepsBreakers, LimitsRates
from django_jobs.backends.home import jobs_database, record, store_now
from django_jobs.backends.limits import UNLIMITED
from django_jobs.backends.rates import Rate
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.db.clock import for_people
from django_jobs.db.transactions import in_transition
from django_jobs.exceptions import InvalidOption
from django_jobs.models import Breaker, QueueControl, QueueMeter
from django_jobs.routers import database_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Witness = Callable[[QueueControl], None]
    """Called with the changed settings, in the transaction that changes them."""

MOST_PLACES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What operators have set for a queue."""

    queue: str
    backend: str
    paused: bool
    reason: str
    rate_limit: str
    concurrency: int | None


def pause_queue(
    queue: str,
    *,
    by: str,
    reason: str = "",
    backend: str | None = None,
    witness: Witness | None = None,
) -> bool:
    """Let nothing more be claimed from a queue; False when it was paused already.

    Running jobs are left to end. A new reason replaces the old one, which counts as a change;
    an empty one leaves it.
    """

    def change(control: QueueControl) -> bool:
        before = control.paused, control.reason
        reason_before = control.reason if control.paused else ""
        control.paused, control.reason = True, reason or reason_before
        return before != (control.paused, control.reason)

    return _change(queue, backend, ("pause", by, reason), change, witness)


def resume_queue(
    queue: str,
    *,
    by: str,
    reason: str = "",
    backend: str | None = None,
    witness: Witness | None = None,
) -> bool:
    """Let jobs of a queue be claimed again; False when it was not paused."""

    def change(control: QueueControl) -> bool:
        was, control.paused, control.reason = control.paused, False, ""
        return was

    return _change(queue, backend, ("resume", by, reason), change, witness)


def limit_queue(
    queue: str,
    limits: Mapping[str, str | int | None],
    *,
    by: str,
    reason: str = "",
    backend: str | None = None,
    witness: Witness | None = None,
) -> bool:
    """Set ``rate_limit`` ("60/m"; "none" for no limit, "" for that of the settings) or
    ``concurrency`` (None for no limit); False when nothing changed. Raises InvalidOption.
    """
    checked = {name: _checked(name, value) for name, value in limits.items()}

    def change(control: QueueControl) -> bool:
        before = {name: getattr(control, name) for name in checked}
        for name, value in checked.items():
            setattr(control, name, value)
        return before != checked

    return _change(queue, backend, ("limit", by, reason), change, witness, checked)


def reset_rate(queue: str, *, by: str, reason: str = "", backend: str | None = None) -> bool:
    """Forget the recent starts that count towards the rate limit; False when there were none."""
    alias, database = _where(queue, backend)

    def work(_: Any) -> bool:
        meters = QueueMeter.objects.using(database).filter(backend=alias, queue=queue)
        counted = meters.delete()[0]
        carrier = backends[alias]
        forgot = isinstance(carrier, LimitsRates) and carrier.forget_rate(queue)
        if not forgot and not counted:
            return False
        record(database, "reset-rate", by=by, reason=reason, backend=alias, queue=queue)
        return True

    return in_transition(database, work)


def reset_breaker(
    queue: str,
    handler: str | None = None,
    *,
    by: str,
    reason: str = "",
    backend: str | None = None,
) -> bool:
    """Close the breaker of a queue, or of a handler on the queue's backend, and reset its count.

    Returns False when it had counted nothing.
    """
    alias, database = _where(queue, backend)
    kind, name = ("queue", queue) if handler is None else ("handler", handler)

    def work(_: Any) -> bool:
        rows = Breaker.objects.using(database).filter(backend=alias, kind=kind, name=name)
        counted = rows.filter(failures__gt=0).update(failures=0, opened_at=None, probe="")
        carrier = backends[alias]
        forgot = isinstance(carrier, KeepsBreakers) and carrier.forget_breaker(kind, name)
        if not forgot and not counted:
            return False
        about: dict[str, Any] = {"backend": alias, "queue": queue, "subject": handler or ""}
        record(database, "reset-breaker", by=by, reason=reason, **about)
        return True

    return in_transition(database, work)


def queue_settings(queue: str, *, backend: str | None = None) -> QueueSettings:
    """What operators have set for a queue."""
    alias, database = _where(queue, backend)
    row = QueueControl.objects.using(database).filter(backend=alias, queue=queue).first()
    row = row or QueueControl(backend=alias, queue=queue)
    return QueueSettings(
        queue=queue,
        backend=alias,
        paused=row.paused,
        reason=row.reason,
        rate_limit=row.rate_limit,
        concurrency=row.concurrency,
    )


def _change(
    queue: str,
    backend: str | None,
    entry: tuple[str, str, str],
    change: Callable[[QueueControl], bool],
    witness: Witness | None,
    detail: dict[str, Any] | None = None,
) -> bool:
    alias, database = _where(queue, backend)
    action, by, reason = entry

    def work(_: Any) -> bool:
        controls = QueueControl.objects.using(database)
        new = QueueControl(backend=alias, queue=queue)
        controls.bulk_create([new], ignore_conflicts=True)
        control = controls.select_for_update().get(backend=alias, queue=queue)
        changed = change(control)
        if changed:
            control.changed_by, control.changed_at = by[:150], for_people(store_now(database))
            control.save(using=database)
            about: dict[str, Any] = {"backend": alias, "queue": queue, "detail": detail}
            record(database, action, by=by, reason=reason, **about)
        if changed and witness is not None:
            witness(control)
        return changed

    return in_transition(database, work)


def _where(queue: str, backend: str | None) -> tuple[str, str]:
    """The backend of a queue, and the database with its settings."""
    settings = get_settings()
    if problem := settings.queue_problem(queue):
        raise InvalidOption(problem)
    alias = backend or settings.backend_for(queue)
    config = settings.backends.get(alias)
    if config is None:
        names = ", ".join(sorted(settings.backends))
        raise InvalidOption(f"there is no backend {alias!r}; known are {names}")
    return alias, database_of(config) or jobs_database()


def _checked(name: str, value: str | int | None) -> str | int | None:
    if name == "rate_limit":
        text = str(value or "")
        if text not in {"", UNLIMITED}:
            try:
                Rate.parse(text)
            except ValueError as error:
                raise InvalidOption(str(error)) from None
        return text
    if name != "concurrency":
        raise InvalidOption(f"there is no limit {name!r}; use rate_limit or concurrency")
    if value is None or (type(value) is int and 0 <= value <= MOST_PLACES):
        return value
    raise InvalidOption(f"concurrency is {value!r}; give a whole number from 0, or none")
