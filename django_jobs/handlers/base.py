"""The base class of handlers, their context, and the exceptions by which they steer their job."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from django_jobs.definition import Options
from django_jobs.exceptions import NotSupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_jobs.wire.envelope import Terms


# Not frozen: one is made for every job, and a frozen dataclass takes twice as long to make.
@dataclass(slots=True, kw_only=True)
class JobContext:
    """What a handler sees of its job; queue state and scheduling are left out."""

    id: str
    payload: Any
    name: str
    queue: str
    attempt: int = 1
    max_retries: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)
    trace_id: str = ""
    fence: int | None = None
    deadline: float | None = None
    timeout: float | None = None
    ends_at: float | None = field(default=None, repr=False)
    """When the time limit ends, on the monotonic clock."""
    is_cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)
    terms: Terms | None = field(default=None, repr=False)
    """The signed terms of the job, for built-in handlers that show them."""

    @property
    def cancelled(self) -> bool:
        """Whether this run was asked to stop. Asked anew at each access."""
        return self.is_cancelled()

    def progress(self, fraction: float, note: str = "") -> NoReturn:
        """Reserved for reporting progress. Raises NotSupported for now."""
        raise NotSupported(
            "context.progress() is not supported yet: nothing would keep or show it; remove the "
            "call, and look at context.cancelled to hear that the job is to stop"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a handler's runs are treated. It belongs to the code and never travels.

    ``retry_on``: if set, only these exceptions are retried. ``discard_on``: these end the job
    without a retry and without a dead letter. ``before(context)`` may refuse the run by raising;
    ``after(context, error)`` always runs, and its own error changes nothing.
    """

    retry_on: tuple[type[BaseException], ...] = ()
    discard_on: tuple[type[BaseException], ...] = ()
    before: Callable[[JobContext], Any] | None = None
    after: Callable[[JobContext, BaseException | None], Any] | None = None
    retry: Any = None


class Handler:
    """Runs the jobs of one key. A subclass defines ``handle`` and what else it needs.

    For an entry of ``HANDLERS`` the class is called without arguments and gets the entry's key.
    """

    key: str = ""
    is_coroutine: bool = False
    """Whether ``handle`` is a coroutine function, which shares its event loop with others."""
    options: Options = Options()
    """The default options of its jobs, which ``define()`` and ``using()`` change."""
    is_task: bool = False
    """Whether it runs a Task, whose queue, backend and priority are not among its options."""
    retry: Any = None
    """The retry policy declared for its jobs; a policy class of your own must be set in code."""
    retry_on: tuple[type[BaseException], ...] = ()
    discard_on: tuple[type[BaseException], ...] = ()
    before: Callable[[JobContext], Any] | None = None
    after: Callable[[JobContext, BaseException | None], Any] | None = None
    """See ``Conduct`` for these four. The hooks are attributes rather than methods: a coroutine
    handler without hooks then needs no thread for them.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "is_coroutine" not in vars(cls):
            cls.is_coroutine = inspect.iscoroutinefunction(cls.handle)

    @property
    def code(self) -> Any:
        """The code it runs: the same code may be registered again under its key."""
        return self

    @property
    def takes(self) -> str:
        """The form of its payload, for people; may be empty."""
        return ""

    def validate(self, payload: Any) -> None:
        """Raise InvalidPayload unless this handler can run the payload."""

    def encode(self, payload: Any) -> Any:
        """The payload as it travels, in plain JSON; raises InvalidPayload."""
        self.validate(payload)
        return payload

    def admit(self, payload: Any) -> None:
        """Check again before a run, as ``validate`` does, but quickly and without user code."""

    def destination(self, payload: Any) -> Any:
        """The part of a payload that decides where its values are sent, if any.

        When it changes, an editor must enter the hidden values again.
        """

    def handle(self, context: JobContext) -> Any:
        """Run one attempt. A returned coroutine is awaited."""
        raise NotImplementedError("subclasses of Handler define handle(context)")


class JobTimeout(BaseException):
    """The handler's time is up. No ``Exception``, so that ``except Exception`` lets it pass."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the job exceeded its timeout of {seconds:g} seconds")
        self.seconds = seconds


class HandlerSignal(Exception):
    """Base of what a handler raises on purpose to steer its own job."""


class Retry(HandlerSignal):
    """Fail this attempt and run again after ``delay`` (seconds or timedelta).

    Without a delay the job's own retry policy decides.
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked to be retried")
        self.delay = _seconds(delay)
        self.reason = reason


class Snooze(HandlerSignal):
    """Put the job back for ``delay`` (seconds or timedelta) without consuming an attempt.

    It waits for a second at least: it may be repeated without end.
    """

    def __init__(self, delay: float | timedelta, reason: str = "") -> None:
        super().__init__(reason or "the handler asked to be run later")
        self.delay = _seconds(delay) or 0.0
        self.reason = reason


class Cancel(HandlerSignal):
    """End the job here: neither a success nor a failure to be retried."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler cancelled the job")
        self.reason = reason


def _seconds(delay: float | timedelta | None) -> float | None:
    """A plain float: it is sent to another process and to database drivers."""
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if not seconds >= 0:
        raise ValueError(f"a delay of {delay!r} seconds lies in the past; give 0 or more")
    return seconds
