"""From a definition to a sealed message in a backend.

Everything that can be known to be wrong is refused here, with an error that names it;
the worker checks again, because it does not trust what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from asgiref.sync import sync_to_async

from django_jobs.backends.base import Enqueued, OnConflict
from django_jobs.backends.registry import backends
from django_jobs.clock import SystemClock, from_datetime, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.definition import UNSAID, Options
from django_jobs.exceptions import (
    EnqueueOutcomeUnknown,
    InvalidOption,
    InvalidPayload,
    NotSupported,
    QueueRefused,
)
from django_jobs.execution.retry import built_in
from django_jobs.handlers.registry import check_allowed, registry
from django_jobs.ids import new_id
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import Outgoing, Seal, Terms
from django_jobs.wire.signing import Signer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings
    from django_jobs.handlers.base import Handler

T_co = TypeVar("T_co", covariant=True)

DEFAULT_QUEUE = "default"
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Handle(Generic[T_co]):
    """A job that was enqueued. ``created`` is False when it had been there before."""

    id: str
    backend: str
    created: bool = True


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
        known = self._resolved
        if known is not None and known[0] is settings:
            return known[1], known[2], settings
        queue = self.options.queue or DEFAULT_QUEUE
        if problem := settings.queue_problem(queue):
            raise QueueRefused(problem)
        handler = registry.find(self.handler)
        check_allowed(self.handler, queue, settings.queue(queue).handlers)
        backend = backends[self.options.backend or settings.backend_for(queue)]
        _check_capabilities(self.options, backend)
        _check_retry(self.options, handler, settings)
        if self.options.atomic:
            _check_atomic(self.options, handler, backend, settings, queue)
        terms = _terms(self.handler, queue, self.options, backend.alias, settings)
        seal = Seal(terms, _signer(settings))
        # A length of time that counts from now is sealed anew for every enqueue.
        if not isinstance(self.options.expires, int | float):
            self._resolved = (settings, backend, seal)
        return backend, seal, settings


@dataclass(frozen=True, slots=True)
class PreparedJob(Generic[T_co]):
    """A job whose id is fixed: enqueueing it twice makes one job."""

    id: str
    plan: Plan
    payload: Any

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
        registry.find(self.handler).validate(self.payload)
        return PreparedJob(new_id(), self._plan, self.payload)

    def enqueue(self) -> Handle[Any]:
        return self.prepare().enqueue()

    async def aenqueue(self) -> Handle[Any]:
        return await self.prepare().aenqueue()


def define(handler: str, payload: Any = None, **options: Any) -> DefinedJob:
    """Describe a job by its handler's key, for handlers that are not ``@job`` functions."""
    return DefinedJob(handler, payload, Options().using(**options))


def enqueue_many(jobs: Iterable[PreparedJob[Any]]) -> list[Handle[Any]]:
    """Enqueue prepared jobs, one statement per thousand; all of them, or none and raise.

    The handles come in the order of the jobs. With several backends among them the
    promise of all or none holds for each backend by itself.
    """
    return enqueue_prepared(list(jobs))


async def aenqueue_many(jobs: Iterable[PreparedJob[Any]]) -> list[Handle[Any]]:
    """``enqueue_many`` for coroutines."""
    return await sync_to_async(enqueue_many)(jobs)


def enqueue_prepared(jobs: Sequence[PreparedJob[Any]]) -> list[Handle[Any]]:
    """Seal and store jobs, grouped by what carries them."""
    if len(jobs) == 1:
        return _store(*_sealed(jobs[0]), jobs)
    groups: dict[tuple[Backend, OnConflict], list[tuple[int, Outgoing]]] = {}
    for place, job in enumerate(jobs):
        backend, conflict, outgoing = _sealed(job)
        groups.setdefault((backend, conflict), []).append((place, outgoing))
    handles: dict[int, Handle[Any]] = {}
    for (backend, conflict), members in groups.items():
        places = [place for place, _ in members]
        outgoing_of_group = [outgoing for _, outgoing in members]
        stored = _stored(backend, conflict, outgoing_of_group, [jobs[place] for place in places])
        handles.update(zip(places, _handles(backend, stored), strict=True))
    return [handles[place] for place in range(len(jobs))]


def _sealed(job: PreparedJob[Any]) -> tuple[Backend, OnConflict, Outgoing]:
    backend, seal, settings = job.plan.resolve()
    try:
        text = strict_json.dumps(job.payload)
    except strict_json.NotStrictJson as error:
        raise InvalidPayload(f"{job.plan.handler}: {error}") from None
    if len(text) > settings.max_payload_bytes:
        raise InvalidPayload(
            f"{job.plan.handler}: the payload has {len(text):,} bytes as JSON, "
            f"MAX_PAYLOAD_BYTES allows {settings.max_payload_bytes:,}; "
            "store the data and pass a key to it"
        )
    conflict = _CONFLICTS[job.plan.options.on_conflict]
    return backend, conflict, seal.outgoing(job.id, text, _clock.now())


_CONFLICTS = {member.value: member for member in OnConflict}


def _store(
    backend: Backend, conflict: OnConflict, outgoing: Outgoing, jobs: Sequence[PreparedJob[Any]]
) -> list[Handle[Any]]:
    return _handles(backend, _stored(backend, conflict, [outgoing], jobs))


def _stored(
    backend: Backend,
    conflict: OnConflict,
    outgoing: Sequence[Outgoing],
    jobs: Sequence[PreparedJob[Any]],
) -> list[Enqueued]:
    try:
        return backend.enqueue(outgoing, on_conflict=conflict)
    except EnqueueOutcomeUnknown as error:
        # The backend knows messages; the caller needs the jobs, to enqueue them again.
        raise EnqueueOutcomeUnknown(jobs, str(error.__cause__ or error)) from error.__cause__


def _handles(backend: Backend, stored: Sequence[Enqueued]) -> list[Handle[Any]]:
    return [Handle(job_id, backend.alias, created) for job_id, created in stored]


def _check_capabilities(options: Options, backend: Backend) -> None:
    asked = {
        "delay": options.delay is not None or options.run_at is not None,
        "priority": options.priority != 0,
        "unique": options.unique_key is not None,
    }
    for capability, wanted in asked.items():
        if wanted and not getattr(backend.capabilities, capability):
            raise NotSupported(
                f"the backend {backend.alias!r} ({type(backend).__name__}) has no "
                f"{capability}, which the options of this job ask for"
            )


def _check_retry(options: Options, handler: Handler, settings: JobsSettings) -> None:
    """A worker imports no policy that only a message names, so such a one is refused here."""
    spec = options.retry
    if not isinstance(spec, str) or built_in(spec) is not None:
        return
    named = [settings.retry, *(queue.retry for queue in settings.queues.values())]
    if spec not in named and spec != getattr(handler, "retry", None):
        raise InvalidOption(
            f"retry {spec!r} is a policy of your own; name it in the @job decorator, in "
            "QUEUES or as RETRY, so that workers know it without trusting a message"
        )


def _check_atomic(
    options: Options, handler: Handler, backend: Backend, settings: JobsSettings, queue: str
) -> None:
    if getattr(handler, "is_coroutine", False):
        raise InvalidOption(f"atomic=True needs a plain function; {handler.key} is a coroutine")
    if not backend.capabilities.transactional_enqueue:
        raise NotSupported(
            f"atomic=True needs jobs in the handler's own database; the backend "
            f"{backend.alias!r} ({type(backend).__name__}) keeps them elsewhere"
        )
    given = options.timeout
    timeout = settings.effective_timeout(queue) if given is UNSAID else given
    limit = backend.longest_atomic(settings.effective_lease(queue))
    if limit is not None and (timeout is None or timeout >= limit):
        raise InvalidOption(
            f"atomic=True on this database needs a timeout below {limit:g} seconds (a third "
            f"of the lease, which cannot be renewed meanwhile); it is {timeout!r}"
        )


def _terms(
    handler: str, queue: str, options: Options, backend: str, settings: JobsSettings
) -> Terms:
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
        atomic=options.atomic,
        unique_key=options.unique_key,
        result_ttl=options.result_ttl,
        tenant=options.tenant,
        meta=_meta(handler, options),
        expires_at=_expires_at(options),
        trace_id=options.trace_id,
    )


def _timeout(options: Options) -> float | None:
    if options.timeout is UNSAID:
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


MAX_META_BYTES = 16 * 1024


def _expires_at(options: Options) -> int | None:
    if options.expires is None:
        return None
    if isinstance(options.expires, datetime):
        return from_datetime(options.expires)
    return _clock.now() + to_microseconds(options.expires)


_last_signer: tuple[tuple[Any, ...], Signer] | None = None


def _signer(settings: JobsSettings) -> Signer:
    global _last_signer  # noqa: PLW0603 - one set of keys is in force at a time
    keys = settings.signing_keys
    if _last_signer is None or _last_signer[0] is not keys:
        _last_signer = (keys, Signer(keys))
    return _last_signer[1]
