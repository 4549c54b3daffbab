"""Enqueueing: from options and a payload to a sealed message in a backend, and the job's handle.

Everything that can be known to be wrong is refused here, with an error that names it;
the worker checks again, because it does not trust what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from django_jobs import outbox
from django_jobs.backends.base import Inspects, OnConflict, SharesTransactions, lacking
from django_jobs.backends.registry import backends
from django_jobs.backends.values import why_not_kept
from django_jobs.clock import SystemClock, from_datetime, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.transactions import naming_missing_tables
from django_jobs.definition import UNSET
from django_jobs.exceptions import (
    EnqueueOutcomeUnknown,
    InvalidJob,
    InvalidOption,
    InvalidPayload,
    JobFailed,
    NotSupported,
    QueueRefused,
    ResultNotKept,
    ResultUnavailable,
)
from django_jobs.handlers.registry import check_allowed, registry
from django_jobs.ids import new_id
from django_jobs.retry import built_in
from django_jobs.routes import Route, Way, way
from django_jobs.routes import check as check_outbox
from django_jobs.telemetry import tracing
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import Outgoing, Seal, Terms
from django_jobs.wire.signing import Signer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Backend, Ended, Enqueued
    from django_jobs.conf import JobsSettings
    from django_jobs.definition import Options
    from django_jobs.handlers.base import Handler

# ------------------------------------------------------------------- from options to terms

MAX_META_BYTES = 16 * 1024


def check(
    options: Options, handler: Handler, backend: Backend, settings: JobsSettings, queue: str
) -> None:
    """Raise InvalidJob for options that the backend, handler or settings do not support."""
    _check_capabilities(options, backend)
    _check_retry(options, handler, settings)
    _check_times(options)
    if way(settings, backend, queue).outbox is not None:
        ttl = settings.result_ttl if options.result_ttl is None else options.result_ttl
        check_outbox(backend, options.unique_key, ttl)
    if options.atomic:
        _check_atomic(options, handler, backend, settings, queue)


def _check_capabilities(options: Options, backend: Backend) -> None:
    asked = {
        "delay": bool(options.delay) or options.run_at is not None,
        "priority": options.priority != 0,
        "unique": options.unique_key is not None,
        "keys": bool(options.idempotency_key or options.concurrency_key or options.single_instance),
    }
    for capability, wanted in asked.items():
        if wanted and not getattr(backend.capabilities, capability):
            raise NotSupported(
                f"the backend {backend.alias!r} ({type(backend).__name__}) has no "
                f"{capability}, which the options of this job ask for"
            )


def _check_retry(options: Options, handler: Handler, settings: JobsSettings) -> None:
    """Refuse a policy that only a message would name: a worker does not import it."""
    spec = options.retry
    if not isinstance(spec, str) or built_in(spec) is not None:
        return
    named = [settings.retry, *(queue.retry for queue in settings.queues.values())]
    if spec not in named and spec != handler.retry:
        raise InvalidOption(
            f"retry {spec!r} is a policy of your own; name it in the @job decorator, in "
            "QUEUES or as RETRY, so that workers know it without trusting a message"
        )


def _check_times(options: Options) -> None:
    """Refuse a job that expires before it may run."""
    if options.expires is None:
        return
    now = _clock.now()
    expires_at, moment = _expires_at(options, now) or 0, _moment_text(options.expires)
    if expires_at <= now:
        raise InvalidOption(
            f"expires {moment} is over already: the job would never run; give a later moment, or a "
            "number of seconds from now"
        )
    due = from_datetime(options.run_at) if options.run_at else 0
    due = now + to_microseconds(options.delay) if options.delay else due
    if expires_at <= due:
        option = "delay" if options.delay else "run_at"
        raise InvalidOption(
            f"expires {moment} is over before the job may run ({option} "
            f"{_moment_text(options.delay or options.run_at or 0)}): it would never run; let it "
            "expire later. Seconds count from the enqueue"
        )


def _moment_text(value: datetime | float | None) -> str:
    return value.isoformat() if isinstance(value, datetime) else f"{value:g}"


def _check_atomic(
    options: Options, handler: Handler, backend: Backend, settings: JobsSettings, queue: str
) -> None:
    if handler.is_coroutine:
        raise InvalidOption(f"atomic=True needs a plain function; {handler.key} is a coroutine")
    if not isinstance(backend, SharesTransactions):
        raise NotSupported(
            f"atomic=True needs jobs in the handler's own database; the backend "
            f"{backend.alias!r} ({type(backend).__name__}) keeps them elsewhere"
        )
    requested = options.timeout
    timeout = settings.effective_timeout(queue) if requested is UNSET else requested
    limit = backend.longest_atomic(settings.effective_lease(queue))
    if limit is not None and (timeout is None or timeout >= limit):
        raise InvalidOption(
            f"atomic=True on this database needs a timeout below {limit:g} seconds (a third "
            f"of the lease, which cannot be renewed meanwhile); it is {timeout!r}"
        )


def resolved(
    handler: str, queue: str, options: Options, backend: str, settings: JobsSettings
) -> Terms:
    """The terms of a message, completed from the settings."""
    return Terms(
        job=handler,
        queue=queue,
        backend=backend,
        site=settings.site,
        priority=options.priority,
        max_retries=settings.max_retries if options.max_retries is None else options.max_retries,
        name=options.name,
        schedule=None if options.run_at is None else from_datetime(options.run_at),
        delay=options.delay or None,
        timeout=_timeout(options),
        max_crashes=options.max_crashes,
        retry=options.retry,
        idempotency_key=options.idempotency_key,
        single_instance=_single_instance(handler, options),
        concurrency_key=options.concurrency_key,
        concurrency=options.concurrency,
        atomic=options.atomic,
        unique_key=options.unique_key,
        result_ttl=options.result_ttl,
        tenant=options.tenant,
        meta=_meta(handler, options),
        expires_at=_expires_at(options, _clock.now()),
        trace_id=options.trace_id,
    )


def _single_instance(handler: str, options: Options) -> str | None:
    if options.single_instance is True:
        return options.name or handler
    return options.single_instance or None


def _timeout(options: Options) -> float | None:
    if options.timeout is UNSET:
        return None
    return 0 if options.timeout is None else options.timeout


def _meta(handler: str, options: Options) -> Any:
    if not options.meta:
        return None
    text = strict_json.dumps(options.meta, "meta")
    if len(text) > MAX_META_BYTES:
        raise InvalidPayload(
            f"{handler}: meta has {len(text):,} bytes as JSON, {MAX_META_BYTES:,} are allowed"
        )
    return options.meta


def _expires_at(options: Options, now: int) -> int | None:
    if options.expires is None:
        return None
    if isinstance(options.expires, datetime):
        return from_datetime(options.expires)
    return now + to_microseconds(options.expires)


# ------------------------------------------------------------------- from terms to a backend

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DEFAULT_QUEUE = "default"
SEALED_AT_ONCE = 1000
_clock = SystemClock()


class Plan:
    """A handler key and options, resolved against the settings once and remembered."""

    __slots__ = ("_resolved", "handler", "options")

    def __init__(self, handler: str, options: Options) -> None:
        self.handler = handler
        self.options = options
        self._resolved: tuple[JobsSettings, Backend, Seal] | None = None

    def resolve(self) -> tuple[Backend, Seal, JobsSettings]:
        """The backend and the seal of this plan's jobs; raises InvalidJob."""
        settings = get_settings()
        cached = self._resolved
        if cached is not None and cached[0] is settings:
            return cached[1], cached[2], settings
        queue = self.options.queue or DEFAULT_QUEUE
        if problem := settings.queue_problem(queue):
            raise QueueRefused(problem)
        handler = registry.find(self.handler)
        check_allowed(self.handler, queue, settings.queue(queue).handlers)
        backend = backends[self.options.backend or settings.backend_for(queue)]
        check(self.options, handler, backend, settings, queue)
        sealed_terms = resolved(self.handler, queue, self.options, backend.alias, settings)
        seal = Seal(sealed_terms, _signer(settings))
        # A duration that counts from now is resolved again for every enqueue.
        if not isinstance(self.options.expires, int | float):
            self._resolved = (settings, backend, seal)
        return backend, seal, settings


@dataclass(slots=True)
class PreparedJob(Generic[T_co]):
    """A job whose id is fixed: enqueueing it twice makes one job.

    It remembers that it was tried before: the second time it is stored unless the job is live or
    has ended, both checked in one step. A backend remembers ended jobs for an hour at least.
    """

    id: str
    plan: Plan
    payload: Any
    tried: bool = field(default=False, compare=False, repr=False)

    def enqueue(self) -> Handle[T_co]:
        return enqueue_prepared([self])[0]

    async def aenqueue(self) -> Handle[T_co]:
        return await sync_to_async(self.enqueue)()


class DefinedJob:
    """What ``define()`` returns: a handler key, its payload and options."""

    __slots__ = ("_plan", "payload")

    def __init__(self, handler: str, payload: Any, options: Options) -> None:
        self._plan = Plan(handler, options)
        self.payload = payload

    if not TYPE_CHECKING:  # type checkers should still report missing attributes

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, "a job made by define()", name, OF_DEFINED)

    @property
    def handler(self) -> str:
        return self._plan.handler

    @property
    def options(self) -> Options:
        return self._plan.options

    def using(self, **options: Any) -> DefinedJob:
        """The same job with other options; raises InvalidOption."""
        return DefinedJob(self.handler, self.payload, self.options.using(**options))

    def prepare(self) -> PreparedJob[Any]:
        payload = registry.find(self.handler).encode(self.payload)
        return PreparedJob(new_id(), self._plan, payload)

    def enqueue(self) -> Handle[Any]:
        return self.prepare().enqueue()

    async def aenqueue(self) -> Handle[Any]:
        return await self.prepare().aenqueue()


def define(handler: str, payload: Any = None, **options: Any) -> DefinedJob:
    """Describe a job by its handler's key, for handlers that are not ``@job`` functions.

    The options of a ``@job`` that is registered under the key are the starting point.
    """
    return DefinedJob(handler, payload, registry.options_of(handler).using(**options))


def enqueue_many(jobs: Iterable[PreparedJob[Any]]) -> list[Handle[Any]]:
    """Enqueue prepared jobs, one statement per thousand; all of them, or none and raise.

    The handles come in the order of the jobs. With several backends among them the
    promise of all or none holds for each backend by itself; on Redis, for 10,000 jobs: of
    more, some may run before the last are stored, and what is refused half-way is taken back.
    """
    return enqueue_prepared(_all_prepared(jobs))


async def aenqueue_many(jobs: Iterable[PreparedJob[Any]]) -> list[Handle[Any]]:
    """``enqueue_many`` for coroutines."""
    return await sync_to_async(enqueue_many)(jobs)


def _all_prepared(jobs: Any) -> list[PreparedJob[Any]]:
    """The jobs as a list; raises InvalidJob for anything but prepared jobs."""
    wanted = "enqueue_many() takes prepared jobs: enqueue_many(send.prepare(n) for n in numbers)"
    if isinstance(jobs, PreparedJob) or not isinstance(jobs, Iterable):
        raise InvalidJob(f"{wanted}, and not {jobs!r} alone")
    prepared = list(jobs)
    for job in prepared:
        if not isinstance(job, PreparedJob):
            why = "is none yet; call its prepare()" if hasattr(job, "prepare") else "is none"
            raise InvalidJob(f"{wanted}; {job!r}, a {type(job).__name__}, {why}")
    return prepared


IN_A_COROUTINE = (
    "enqueue() waits for the database, and a coroutine must not: write `await ….aenqueue(…)`, or "
    "`await aenqueue_many(…)` for many. To stay in one transaction call a function that does both "
    "through asgiref's sync_to_async"
)


def naming_coroutines_way(enqueue: Callable[P, T]) -> Callable[P, T]:
    """Make Django's error for a database used in a coroutine say what to write instead."""

    @wraps(enqueue)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return enqueue(*args, **kwargs)
        except SynchronousOnlyOperation as error:
            raise SynchronousOnlyOperation(IN_A_COROUTINE) from error

    return wrapped


@naming_coroutines_way
def enqueue_prepared(jobs: Sequence[PreparedJob[Any]]) -> list[Handle[Any]]:
    """Seal and store jobs, grouped by their backends."""
    if not jobs:
        return []
    # If one of them was tried before, all are checked, to keep the promise of all or none.
    again = any(job.tried for job in jobs)
    for job in jobs:
        job.tried = True
    backend = _in_parts(jobs) if len(jobs) > 1 else None
    if backend is None:
        return _enqueue_part(jobs, jobs, again=again)
    try:
        return backend.as_one(lambda: _enqueue_parts(jobs, again=again))
    except EnqueueOutcomeUnknown as error:
        raise EnqueueOutcomeUnknown(jobs, str(error.__cause__ or error)) from error.__cause__


def _in_parts(jobs: Sequence[PreparedJob[Any]]) -> SharesTransactions | None:
    """The backend that stores these jobs in parts, but as one step; None for most enqueues."""
    plans = {id(job.plan): job.plan for job in jobs}.values()
    answers = {plan.options.on_conflict for plan in plans}
    if len(jobs) <= SEALED_AT_ONCE and len(answers) == 1:
        return None
    targets: set[SharesTransactions | None] = set()
    for plan in plans:
        backend, seal, settings = plan.resolve()
        is_direct = way(settings, backend, seal.terms.queue) == Way()
        if not (is_direct and isinstance(backend, SharesTransactions)):
            return None
        targets.add(backend if backend.enqueues_in_parts else None)
    return targets.pop() if len(targets) == 1 else None


def _enqueue_parts(jobs: Sequence[PreparedJob[Any]], *, again: bool) -> list[Handle[Any]]:
    """Enqueue part after part, so that the bodies of all jobs are never in memory at once."""
    handles: list[Handle[Any]] = []
    for start in range(0, len(jobs), SEALED_AT_ONCE):
        handles += _enqueue_part(jobs[start : start + SEALED_AT_ONCE], jobs, again=again)
    return handles


def _enqueue_part(
    some: Sequence[PreparedJob[Any]], jobs: Sequence[PreparedJob[Any]], *, again: bool
) -> list[Handle[Any]]:
    """Enqueue some of the jobs of an enqueue, or all of them."""
    plan = some[0].plan
    if any(job.plan is not plan for job in some):
        return _enqueue_mixed(some, jobs, again=again)
    backend, conflict, first = _sealed(some[0])
    outgoing = [first, *(_sealed(job)[2] for job in some[1:])]
    route = Route(backend, conflict, way(get_settings(), backend, first.terms.queue), again)
    return _handles(backend, route.send(outgoing, some, jobs))


def _enqueue_mixed(
    some: Sequence[PreparedJob[Any]], jobs: Sequence[PreparedJob[Any]], *, again: bool
) -> list[Handle[Any]]:
    groups: dict[Route, list[tuple[int, Outgoing]]] = {}
    settings = get_settings()
    for place, job in enumerate(some):
        backend, conflict, outgoing = _sealed(job)
        route = Route(backend, conflict, way(settings, backend, outgoing.terms.queue), again)
        groups.setdefault(route, []).append((place, outgoing))
    handles: dict[int, Handle[Any]] = {}
    for route, members in groups.items():
        places = [place for place, _ in members]
        stored = route.send(
            [message for _, message in members], [some[place] for place in places], jobs
        )
        handles.update(zip(places, _handles(route.backend, stored), strict=True))
    return [handles[place] for place in range(len(some))]


def _sealed(job: PreparedJob[Any]) -> tuple[Backend, OnConflict, Outgoing]:
    backend, seal, settings = job.plan.resolve()
    text = payload_text(job.plan.handler, job.payload, settings)
    conflict = _CONFLICTS[job.plan.options.on_conflict]
    parent = tracing.parent_for(job.plan.handler, seal.terms.queue, job.id)
    return backend, conflict, seal.outgoing(job.id, text, _clock.now(), parent)


def payload_text(handler: str, payload: Any, settings: JobsSettings) -> str:
    """A payload as JSON; raises InvalidPayload if it cannot be encoded or is too large."""
    try:
        text = strict_json.dumps(payload)
    except strict_json.NotStrictJson as error:
        raise InvalidPayload(f"{handler}: {error}") from None
    most = settings.max_payload_bytes
    if len(text) > most and (size := strict_json.size(text)) > most:
        raise InvalidPayload(
            f"{handler}: the payload has {size:,} bytes as JSON, "
            f"MAX_PAYLOAD_BYTES allows {most:,}; store the data and pass a key to it"
        )
    return text


_CONFLICTS = {member.value: member for member in OnConflict}


def _handles(backend: Backend, stored: Sequence[Enqueued]) -> list[Handle[Any]]:
    return [Handle(job_id, backend.alias, created) for job_id, created in stored]


_last_signer: tuple[tuple[Any, ...], Signer] | None = None


def _signer(settings: JobsSettings) -> Signer:
    global _last_signer  # noqa: PLW0603 - one set of keys is in force at a time
    keys = settings.signing_keys
    if _last_signer is None or _last_signer[0] is not keys:
        _last_signer = (keys, Signer(keys))
    return _last_signer[1]


# --------------------------------------------------------- what an enqueue gives: the handle

UNKNOWN = "unknown"
_SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class Handle(Generic[T_co]):
    """A job that was enqueued. ``created`` is False if it existed already."""

    id: str
    backend: str
    created: bool = True

    @property
    def status(self) -> str:
        """The current status of the job, read each time.

        ``scheduled``, ``ready`` or ``running``; ``succeeded``, ``skipped``, ``cancelled``
        or ``dead``; ``unknown`` if it never existed, or its result is no longer kept.
        """
        # A job may end between the first two queries, so the result is looked up once more.
        with naming_missing_tables(self.backend):
            for look in (self._ended_status, self._live_status, self._ended_status):
                if status := look():
                    return status
        return UNKNOWN

    def result(self) -> T_co:
        """What the handler returned.

        Raises ResultUnavailable while the job has not ended or when its result is not
        kept, ResultNotKept when it succeeded and its return value could not be kept, and
        JobFailed when it ended in any other way than by success.
        """
        with naming_missing_tables(self.backend):
            ended = self._ended()
        if ended is None:
            raise ResultUnavailable(
                f"the job {self.id} is {self.status}; its result can be had from its end "
                "until its result_ttl is over"
            )
        if ended.status != _SUCCEEDED:
            raise JobFailed(self.id, ended)
        if why := why_not_kept(ended.value_json):
            raise ResultNotKept(self.id, why)
        return cast("T_co", json.loads(ended.value_json))

    @property
    def reason(self) -> str:
        """Why the job is cancelled, skipped or dead, read each time; empty otherwise.

        For a job that its handler cancelled, the argument of ``Cancel``. For a dead job a stable
        word; its error is in the dead letter, and in the exception of ``result()``.
        """
        with naming_missing_tables(self.backend):
            ended = self._ended()
        return ended.reason if ended else ""

    async def areason(self) -> str:
        """``reason`` for coroutines."""
        return await sync_to_async(lambda: self.reason)()

    async def astatus(self) -> str:
        """``status`` for coroutines."""
        return await sync_to_async(lambda: self.status)()

    async def aresult(self) -> T_co:
        """``result`` for coroutines."""
        return await sync_to_async(self.result)()

    def _ended(self) -> Ended | None:
        backend = backends[self.backend]
        if not isinstance(backend, Inspects):
            raise lacking(backend, "keep results", self.id)
        ended = backend.result(self.id)
        return outbox.ended(self.backend, self.id) if ended is None else ended

    def _ended_status(self) -> str | None:
        ended = self._ended()
        return ended.status if ended else None

    def _live_status(self) -> str | None:
        # In this order, because the job moves from the outbox to the backend.
        if (state := outbox.state(self.backend, self.id)) is not None:
            return state
        backend = backends[self.backend]
        if not isinstance(backend, Inspects):
            raise lacking(backend, "peek", self.id)
        live = backend.find(self.id)
        return live.state if live else None


# ----------------------------------------------------- enqueueing as other libraries name it

IN_OTHER_WORDS = {
    "delay": "enqueue(…), which takes what the function takes",
    "delay_on_commit": "enqueue(…): inside a transaction the job belongs to it",
    "apply_async": "using(delay=…).enqueue(…): options first, then what the function takes",
    "s": "prepare(…), for a job that is to be enqueued later",
    "send": "enqueue(…), which takes what the function takes",
    "send_with_options": "using(…).enqueue(…): options first, then what the function takes",
    "schedule": "using(delay=…).enqueue(…), or using(run_at=…) for a moment",
    "defer": "enqueue(…), which takes what the function takes",
    "apply": "call(…), which runs it here and now",
}
"""Attributes of other libraries, and what to write instead."""

_AS_DEFINED = "enqueue(), for define() took the payload already"
OF_DEFINED = {
    **dict.fromkeys(("delay", "send", "defer"), _AS_DEFINED),
    "delay_on_commit": "enqueue(): inside a transaction the job belongs to it",
    **dict.fromkeys(("apply_async", "send_with_options"), "using(delay=…).enqueue()"),
    "s": "prepare(), for a job that is to be enqueued later",
    "schedule": "using(delay=…).enqueue(), or using(run_at=…) for a moment",
}
"""The same for a job made by define(), whose enqueue() takes no arguments."""


def no_attribute(
    job: object, called: str, name: str, words: Mapping[str, str] = IN_OTHER_WORDS
) -> AttributeError:
    """The error for a missing attribute of a job; names of other libraries get a hint."""
    message = f"{called} has no attribute {name!r}"
    if name in words:
        message += f"; write {words[name]}"
    return AttributeError(message, name=name, obj=job)
