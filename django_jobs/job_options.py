"""The options of jobs, as type checkers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from django_jobs.handlers.base import JobContext


class SharedOptions(TypedDict, total=False):
    """The options that jobs and Django's tasks have in common."""

    max_retries: int | None
    retry: str | Sequence[float] | Mapping[str, Any] | None
    timeout: float | timedelta | None
    expires: float | timedelta | datetime | None
    idempotency_key: str | None
    unique_key: str | None
    on_conflict: Literal["return", "raise", "replace"]
    single_instance: bool | str | None
    concurrency_key: str | None
    concurrency: int | None
    atomic: bool | None
    result_ttl: float | timedelta | None
    max_crashes: int | None
    tenant: None  # not supported yet
    trace_id: str | None
    meta: Mapping[str, Any] | None


class JobOptions(SharedOptions, total=False):
    """The options of ``@job`` and ``using()``; for some of them Tasks have words of their own."""

    queue: str | None
    backend: str | None
    name: str | None
    priority: int
    delay: float | timedelta | None
    run_at: datetime | timedelta | None


class Reactions(TypedDict, total=False):
    """What belongs to the code and not to a job: see ``Conduct``."""

    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    discard_on: type[BaseException] | tuple[type[BaseException], ...]


class HandlerOptions(JobOptions, Reactions, total=False):
    """What ``@job`` takes."""

    before: Callable[[JobContext], Any] | None
    after: Callable[[JobContext, BaseException | None], Any] | None
