"""Options become terms: what a job asks for, held against who is to carry it.

What a backend, a handler or this site's settings cannot give is refused here, with an
error that names it and the way out.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django_jobs.clock import SystemClock, from_datetime, to_microseconds
from django_jobs.exceptions import InvalidOption, InvalidPayload, NotSupported
from django_jobs.execution.retry import built_in
from django_jobs.outbox.ways import check as check_outbox
from django_jobs.outbox.ways import way
from django_jobs.unset import UNSET
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import Terms

if TYPE_CHECKING:
    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings
    from django_jobs.definition import Options
    from django_jobs.handlers.base import Handler

MAX_META_BYTES = 16 * 1024
_clock = SystemClock()


def check(
    options: Options, handler: Handler, backend: Backend, settings: JobsSettings, queue: str
) -> None:
    """Raise InvalidJob for what cannot be had."""
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


def _check_times(options: Options) -> None:
    """Refuse a job whose time is over before it may run."""
    if options.expires is None:
        return
    now = _clock.now()
    expires_at, told = _expires_at(options, now) or 0, _told_moment(options.expires)
    if expires_at <= now:
        raise InvalidOption(
            f"expires {told} is over already: the job would never run; give a later moment, or a "
            "number of seconds from now"
        )
    due = from_datetime(options.run_at) if options.run_at else 0
    due = now + to_microseconds(options.delay) if options.delay else due
    if expires_at <= due:
        given = "delay" if options.delay else "run_at"
        raise InvalidOption(
            f"expires {told} is over before the job may run ({given} "
            f"{_told_moment(options.delay or options.run_at or 0)}): it would never run; let it "
            "expire later. Seconds count from the enqueue"
        )


def _told_moment(value: datetime | float | None) -> str:
    return value.isoformat() if isinstance(value, datetime) else f"{value:g}"


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
    timeout = settings.effective_timeout(queue) if given is UNSET else given
    limit = backend.longest_atomic(settings.effective_lease(queue))
    if limit is not None and (timeout is None or timeout >= limit):
        raise InvalidOption(
            f"atomic=True on this database needs a timeout below {limit:g} seconds (a third "
            f"of the lease, which cannot be renewed meanwhile); it is {timeout!r}"
        )


def resolved(
    handler: str, queue: str, options: Options, backend: str, settings: JobsSettings
) -> Terms:
    """The terms that travel, with what the settings decide filled in."""
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
