"""Ask backends outside the database about their queues; a broken one does not hide the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from django.core.exceptions import ImproperlyConfigured

from django_jobs.backends.base import Inspects, KeepsBreakers, Standing, can_account, can_peek
from django_jobs.backends.breakers import Circuit
from django_jobs.backends.home import store_now
from django_jobs.backends.registry import backends
from django_jobs.backends.shared_breakers import rule_of
from django_jobs.clock import SECOND, to_datetime, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.execution.errors import error_text
from django_jobs.models import Breaker
from django_jobs.operations.causes import span
from django_jobs.routers import database_of, job_databases
from django_jobs.telemetry.events import BackendSilent, emit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.backends.base import Account, Backend, Glimpse, QueueStats


T = TypeVar("T")


def brokers() -> list[str]:
    """The aliases of the backends whose jobs are not in a database."""
    return [
        alias for alias, config in get_settings().backends.items() if database_of(config) is None
    ]


def queues_of_brokers() -> Iterator[tuple[str, str]]:
    """Backend and name of every queue at a broker; ``stats_of`` reports brokers that fail."""
    for alias in brokers():
        try:
            names = _queues_of(alias)
        except Exception:  # noqa: BLE001 - one broken backend must not hide the others
            names = []
        yield from ((alias, name) for name in names)


def peeked(backend: str, queue: str, limit: int) -> list[Glimpse] | str:
    """The first jobs of a queue, or why its backend cannot list them."""
    if backend not in brokers():
        return f"There is no broker {backend!r} among the backends."
    broker = backends[backend]
    if not can_peek(broker):
        return f"The backend {backend!r} cannot tell of its jobs."
    try:
        return broker.peek(queue, limit)
    except Exception as error:  # noqa: BLE001 - a page that shows the error beats none
        return _log_silent(backend, queue, error)


def find(job_id: str) -> tuple[str, Glimpse] | None:
    """A live job and its backend; a broken backend counts as one without the job."""
    return _first_answer(can_peek, lambda backend: backend.find(job_id))


def account_of(job_id: str) -> tuple[str, Account] | None:
    """As ``find``, but all that the broker knows of a job, live or ended."""
    return _first_answer(can_account, lambda backend: backend.account(job_id))


def _first_answer(
    can: Callable[[Backend], TypeGuard[Inspects]], ask: Callable[[Inspects], T | None]
) -> tuple[str, T] | None:
    for alias in brokers():
        backend = backends[alias]
        if not can(backend):
            continue
        try:
            answer = ask(backend)
        except Exception:  # noqa: BLE001, S112 - one broken backend must not hide the others
            continue
        if answer is not None:
            return alias, answer
    return None


def queues_to_ask() -> Iterator[tuple[str, str, str]]:
    """Backend, queue and problem of each queue; a problem alone, if no queue is known."""
    settings = get_settings()
    for alias in brokers():
        names = {name for name in settings.queues if settings.backend_for(name) == alias}
        problem = ""
        try:
            names |= set(_queues_of(alias))
        except Exception as error:  # noqa: BLE001 - as above
            problem = _log_silent(alias, "", error)
        if problem and not names:
            yield alias, "", problem
        yield from ((alias, name, "") for name in sorted(names))


def _queues_of(alias: str) -> list[str]:
    backend = backends[alias]
    return backend.queues() if isinstance(backend, Inspects) else []


def stats_of(backend: str, queue: str) -> QueueStats | str:
    """The statistics of a queue, or the kind of error with which its backend failed."""
    try:
        return backends[backend].stats(queue)
    except Exception as error:  # noqa: BLE001 - one broken backend must not hide the others
        return _log_silent(backend, queue, error)


def _log_silent(backend: str, queue: str, error: Exception) -> str:
    """Log an error and return its kind: a driver's message names hosts, which only the log may."""
    text = error_text(error)
    emit(BackendSilent(backend=backend, queue=queue, why=f"{text.type}: {text.message}"))
    return _kinds(error)


def _kinds(error: Exception) -> str:
    """The type of an error, and that of its cause."""
    kind, cause = type(error).__name__, error.__cause__
    return kind if cause is None else f"{kind} ({type(cause).__name__})"


# The circuit breakers that workers share.


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """A breaker that lets nothing pass, or only one job as a try.

    ``state`` is ``open`` for ``seconds_left``, while it cools down, and then ``half-open``.
    """

    kind: str
    backend: str
    name: str
    state: str
    failures: int
    seconds_left: float


def until(breaker: OpenBreaker, now: int) -> str:
    """The state of a breaker in words, with the moment of its change by the store's clock."""
    if not breaker.seconds_left:
        return "half-open: it lets one job at a time try"
    left = to_microseconds(breaker.seconds_left)
    return f"open until {to_datetime(now + left):%Y-%m-%d %H:%M:%S} UTC, for {span(left)}"


def open_breakers() -> list[OpenBreaker]:
    """The breakers of all databases with jobs and of other backends, by backend and name."""
    breakers = []
    for database in job_databases(get_settings()):
        rows = Breaker.objects.using(database).filter(opened_at__isnull=False)
        if not (opened := list(rows)):
            continue
        now = store_now(database)
        for row in opened:
            circuit = Circuit(row.failures, row.opened_at)
            breakers += _configured(row.backend, Standing(row.kind, row.name, circuit, now))
    for alias in get_settings().backends:
        for standing in _kept_by(alias):
            breakers += _configured(alias, standing)
    return sorted(breakers, key=lambda breaker: (breaker.backend, breaker.kind, breaker.name))


def _kept_by(alias: str) -> list[Standing]:
    try:
        backend = backends[alias]
        return backend.open_breakers() if isinstance(backend, KeepsBreakers) else []
    except (OSError, ImproperlyConfigured):  # stats_of reports backends that do not answer
        return []


def _configured(backend: str, standing: Standing) -> list[OpenBreaker]:
    """The breaker, if the settings still have a rule for it."""
    rule = rule_of(standing.kind, standing.name)
    if rule is None:
        return []
    left = standing.circuit.cools_for(standing.now, rule.cooldown) / SECOND
    return [
        OpenBreaker(
            kind=standing.kind,
            backend=backend,
            name=standing.name,
            state="open" if left else "half-open",
            failures=standing.circuit.failures,
            seconds_left=left,
        )
    ]
