"""What backends outside the database say of their queues; one that is broken hides no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from django.core.exceptions import ImproperlyConfigured

from django_jobs.backends.base import Inspects, KeepsBreakers, Standing
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

    from django_jobs.backends.base import Account, Glimpse, QueueStats


T = TypeVar("T")


def brokers() -> list[str]:
    """The aliases of backends whose jobs are in no database."""
    return [alias for alias, one in get_settings().backends.items() if database_of(one) is None]


def queues_of_brokers() -> Iterator[tuple[str, str]]:
    """Backend and queue of all that they hold; who cannot tell is heard of by ``stats_of``."""
    for alias in brokers():
        try:
            names = _queues_of(alias)
        except Exception:  # noqa: BLE001 - one broken backend must not hide the others
            names = []
        yield from ((alias, name) for name in names)


def peeked(backend: str, queue: str, limit: int) -> list[Glimpse] | str:
    """The first jobs of a queue, or what keeps its backend from telling."""
    if backend not in brokers():
        return f"There is no broker {backend!r} among the backends."
    broker = backends[backend]
    if not (isinstance(broker, Inspects) and broker.capabilities.peek):
        return f"The backend {backend!r} cannot tell of its jobs."
    try:
        return broker.peek(queue, limit)
    except Exception as error:  # noqa: BLE001 - a page that says so beats none
        return _silent(backend, queue, error)


def find(job_id: str) -> tuple[str, Glimpse] | None:
    """A live job and its backend; one that is broken is as one that has no such job."""
    return _first_answer("peek", lambda backend: backend.find(job_id))


def account_of(job_id: str) -> tuple[str, Account] | None:
    """All that a broker knows of a job, live or ended, and which; as ``find`` else."""
    return _first_answer("accounts", lambda backend: backend.account(job_id))


def _first_answer(capability: str, ask: Callable[[Inspects], T | None]) -> tuple[str, T] | None:
    for alias in brokers():
        backend = backends[alias]
        if not isinstance(backend, Inspects) or capability not in backend.capabilities.names():
            continue
        try:
            told = ask(backend)
        except Exception:  # noqa: BLE001, S112 - one broken backend must not hide the others
            continue
        if told is not None:
            return alias, told
    return None


def queues_to_ask() -> Iterator[tuple[str, str, str]]:
    """Backend, queue, and what keeps the backend from naming queues if none can be asked."""
    settings = get_settings()
    for alias in brokers():
        names = {name for name in settings.queues if settings.backend_for(name) == alias}
        problem = ""
        try:
            names |= set(_queues_of(alias))
        except Exception as error:  # noqa: BLE001 - as above
            problem = _silent(alias, "", error)
        if problem and not names:
            yield alias, "", problem
        yield from ((alias, name, "") for name in sorted(names))


def _queues_of(alias: str) -> list[str]:
    backend = backends[alias]
    return backend.queues() if isinstance(backend, Inspects) else []


def stats_of(backend: str, queue: str) -> QueueStats | str:
    """How a queue stands, or the kind of error that keeps its backend from telling."""
    try:
        return backends[backend].stats(queue)
    except Exception as error:  # noqa: BLE001 - one broken backend must not hide the others
        return _silent(backend, queue, error)


def _silent(backend: str, queue: str, error: Exception) -> str:
    """A driver's words name hosts and ports: they are for the log, not for whoever looks."""
    told = error_text(error)
    emit(BackendSilent(backend=backend, queue=queue, why=f"{told.type}: {told.message}"))
    return _kinds(error)


def _kinds(error: Exception) -> str:
    """The type of an error, and of the one it stands for."""
    kind, cause = type(error).__name__, error.__cause__
    return kind if cause is None else f"{kind} ({type(cause).__name__})"


# The circuit breakers that workers share, as they stand.


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """A breaker that lets nothing pass, or one job to try.

    ``state``: ``open`` while it cools down, for so many seconds, then ``half-open``.
    """

    kind: str
    backend: str
    name: str
    state: str
    failures: int
    seconds_left: float


def until(breaker: OpenBreaker, now: int) -> str:
    """How it stands, in words, with the moment when that changes, by the store's clock."""
    if not breaker.seconds_left:
        return "half-open: it lets one job at a time try"
    left = to_microseconds(breaker.seconds_left)
    return f"open until {to_datetime(now + left):%Y-%m-%d %H:%M:%S} UTC, for {span(left)}"


def open_breakers() -> list[OpenBreaker]:
    """Those of all databases that carry jobs and of other backends, by backend and name."""
    found = []
    for database in job_databases(get_settings()):
        rows = Breaker.objects.using(database).filter(opened_at__isnull=False)
        if not (opened := list(rows)):
            continue
        now = store_now(database)
        for row in opened:
            circuit = Circuit(row.failures, row.opened_at)
            found += _known(row.backend, Standing(row.kind, row.name, circuit, now))
    for alias in get_settings().backends:
        for standing in _kept_by(alias):
            found += _known(alias, standing)
    return sorted(found, key=lambda one: (one.backend, one.kind, one.name))


def _kept_by(alias: str) -> list[Standing]:
    try:
        backend = backends[alias]
        return backend.open_breakers() if isinstance(backend, KeepsBreakers) else []
    except (OSError, ImproperlyConfigured):  # it does not answer, which is told elsewhere
        return []


def _known(backend: str, standing: Standing) -> list[OpenBreaker]:
    rule = rule_of(standing.kind, standing.name)
    if rule is None:  # of settings that are no more
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
