"""What a handler is, and what it is shown of its job."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from django_jobs.definition import Options
from django_jobs.exceptions import NotSupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_jobs.wire.envelope import Terms


# Not frozen: it is made for every job, and setting each field past the guard costs as much again.
@dataclass(slots=True, kw_only=True)
class JobContext:
    """What a handler sees of its job. Queue state and scheduling are not among it."""

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
    """When its time is up, on the monotonic clock."""
    is_cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)
    terms: Terms | None = field(default=None, repr=False)
    """What the job was enqueued with, for handlers of ours that show it again."""

    @property
    def cancelled(self) -> bool:
        """Whether somebody has asked this run to stop. It is told anew each time."""
        return self.is_cancelled()

    def progress(self, fraction: float, note: str = "") -> NoReturn:
        """Reserved for telling how far the job is. Raises NotSupported until that is kept."""
        raise NotSupported(
            "context.progress() is not supported yet: nothing would keep or show it; remove the "
            "call, and look at context.cancelled to hear that the job is to stop"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """What a handler wants done around its runs. It stays with the code and never travels.

    ``retry_on``: when given, only these exceptions are worth a retry. ``discard_on``: these
    end the job without one, and without a dead letter. ``before(context)`` may refuse the
    run by raising; ``after(context, error)`` always runs, and its own error changes nothing.
    """

    retry_on: tuple[type[BaseException], ...] = ()
    discard_on: tuple[type[BaseException], ...] = ()
    before: Callable[[JobContext], Any] | None = None
    after: Callable[[JobContext, BaseException | None], Any] | None = None
    retry: Any = None


class Handler:
    """What runs the jobs of one key. A subclass defines ``handle`` and what else it needs.

    ``HANDLERS`` in the settings makes one without arguments, and gives it its key.
    """

    key: str = ""
    is_coroutine: bool = False
    """Whether ``handle`` is a coroutine function, which shares its event loop with others."""
    options: Options = Options()
    """The options of its jobs, where ``define()`` and ``using()`` begin."""
    retry: Any = None
    """The retry policy declared for its jobs; one of your own has to be named in code."""
    retry_on: tuple[type[BaseException], ...] = ()
    discard_on: tuple[type[BaseException], ...] = ()
    before: Callable[[JobContext], Any] | None = None
    after: Callable[[JobContext, BaseException | None], Any] | None = None
    """These four: see ``Conduct``. The hooks are attributes and no methods, because a coroutine
    that has none saves the way through a thread.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.is_coroutine = inspect.iscoroutinefunction(cls.handle)

    @property
    def code(self) -> Any:
        """What it runs: registered under its key once more, the same code is no mistake."""
        return self

    @property
    def takes(self) -> str:
        """How its payload is written, for people; empty where there is nothing to say."""
        return ""

    def validate(self, payload: Any) -> None:
        """Raise InvalidPayload unless this handler can run the payload."""

    def encode(self, payload: Any) -> Any:
        """The payload as it travels, in plain JSON; raises InvalidPayload."""
        self.validate(payload)
        return payload

    def admit(self, payload: Any) -> None:
        """Refuse once more before a run: raises as ``validate``, quickly, without user code."""

    def destination(self, payload: Any) -> Any:
        """What decides who gets the values of a payload, if anything does.

        Where that changes, an editor has to write hidden values anew.
        """

    def handle(self, context: JobContext) -> Any:
        """Run one attempt. A coroutine that is returned is awaited."""
        raise NotImplementedError("subclasses of Handler define handle(context)")
