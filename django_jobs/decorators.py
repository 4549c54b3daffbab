"""``@job`` and ``JobHandler``: functions and classes become handlers, and gain ``enqueue``.

The types carry the function's own parameters along, so that a wrong call of ``enqueue``
is an error in the editor already.
"""

from __future__ import annotations

import functools
import typing
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from asgiref.sync import async_to_sync, sync_to_async

from django_jobs.definition import JobOptions, Options, Reactions, name_among_tasks
from django_jobs.enqueue import DEFAULT_QUEUE, Plan, PreparedJob, no_attribute
from django_jobs.exceptions import ConfigurationError, InvalidJob, InvalidOption
from django_jobs.handlers.base import Conduct, JobContext
from django_jobs.handlers.classes import class_handler
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import registry
from django_jobs.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from django_jobs.enqueue import Handle
    from django_jobs.handlers.classes import ClassHandler, TypedContext


PayloadT = TypeVar("PayloadT")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HandlerJob(Generic[PayloadT, R]):
    """Jobs of a handler class with certain options."""

    handler: ClassHandler
    plan: Plan

    def using(self, **options: Unpack[JobOptions]) -> HandlerJob[PayloadT, R]:
        """The same with other options; raises InvalidOption."""
        return HandlerJob(self.handler, Plan(self.plan.handler, self.plan.options.using(**options)))

    def prepare(self, payload: PayloadT) -> PreparedJob[R]:
        """A job with its id fixed, to be enqueued later, or again; raises InvalidPayload."""
        return PreparedJob(new_id(), self.plan, self.handler.encode(payload))

    def enqueue(self, payload: PayloadT) -> Handle[R]:
        """Enqueue a job. Inside a transaction on the jobs' database it belongs to it."""
        return self.prepare(payload).enqueue()

    async def aenqueue(self, payload: PayloadT) -> Handle[R]:
        """``enqueue`` for coroutines."""
        return await sync_to_async(self.prepare(payload).enqueue)()


class JobHandler(Generic[PayloadT, R]):
    """Base of handler classes: ``class SendMail(JobHandler[Mail, None])`` under ``@job``.

    The first type is that of the payload, mostly a dataclass; the second is what ``handle``
    returns. ``before(context)`` and ``after(context, error)`` may be defined beside it.
    """

    payload_type: ClassVar[Any]
    _jobs: ClassVar[HandlerJob[Any, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if typing.get_origin(base) is JobHandler:
                cls.payload_type = typing.get_args(base)[0]

    def handle(self, context: TypedContext[PayloadT]) -> R | Awaitable[R]:
        """Run one attempt. May be a coroutine."""
        raise NotImplementedError(f"{type(self).__qualname__} has no handle(context)")

    @classmethod
    def using(cls, **options: Unpack[JobOptions]) -> HandlerJob[PayloadT, R]:
        """Jobs of this handler with other options; raises InvalidOption."""
        return cls._registered().using(**options)

    @classmethod
    def prepare(cls, payload: PayloadT) -> PreparedJob[R]:
        """A job with its id fixed, to be enqueued later, or again; raises InvalidPayload."""
        return cls._registered().prepare(payload)

    @classmethod
    def enqueue(cls, payload: PayloadT) -> Handle[R]:
        """Enqueue a job. Inside a transaction on the jobs' database it belongs to it."""
        return cls._registered().enqueue(payload)

    @classmethod
    async def aenqueue(cls, payload: PayloadT) -> Handle[R]:
        """``enqueue`` for coroutines."""
        return await cls._registered().aenqueue(payload)

    @classmethod
    def registered_as(cls, handler: ClassHandler) -> None:
        """Remember the handler, the first one where there are several."""
        if not hasattr(cls, "payload_type"):
            raise InvalidJob(
                f"{cls.__qualname__} does not say what it takes; derive it from "
                "JobHandler[Payload, Result]"
            )
        if "_jobs" not in cls.__dict__:
            cls._jobs = HandlerJob(handler, Plan(handler.key, handler.options))

    @classmethod
    def _registered(cls) -> HandlerJob[PayloadT, R]:
        jobs: HandlerJob[PayloadT, R] | None = cls.__dict__.get("_jobs")
        if jobs is None:
            raise InvalidJob(f"{cls.__qualname__} is no handler yet; write @job before its class")
        return jobs


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
H = TypeVar("H", bound=JobHandler[Any, Any])

LONGEST_KEY = 255


class JobFunction(Generic[P, R_co, T_co]):
    """A function that is also a handler. Calling it runs it here and now."""

    def __init__(
        self, function: Callable[..., Any], handler: FunctionHandler, options: Options
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.handler = handler
        self.options = options
        self.made_task: Any = None
        self._plan = Plan(handler.key, options)

    @property
    def key(self) -> str:
        return self.handler.key

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if self.handler.takes_context:
            context = self._context_of_a_call(args, kwargs)
            return self.function(context, *args, **kwargs)  # type: ignore[no-any-return]  # bound by P and R
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]  # bound by P and R

    if not TYPE_CHECKING:  # type checkers should still report missing attributes

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that failed: its own error, not this one
                return object.__getattribute__(self, name)
            raise no_attribute(self, f"the job {self.__dict__.get('__name__', '')}", name)

    @property
    def task(self) -> Any:
        """The job as a Task of Django, for code that expects one.

        Raises InvalidJob where no alias of TASKS leads to the backend of the job.
        """
        if task_of is None:
            raise ConfigurationError(
                "Django's Tasks come with Django 6.0; for Django 5.2 set TASKS and install the "
                "package django-tasks (django-durable-jobs[tasks], as its README says under "
                "Installing)"
            )
        return task_of(self)

    # Attributes of a Task that a job does not have otherwise.

    @property
    def func(self) -> Callable[..., Any]:
        return self.function

    @property
    def name(self) -> str:
        return str(self.function.__name__)

    @property
    def module_path(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def takes_context(self) -> bool:
        return self.handler.takes_context

    @property
    def priority(self) -> int:
        return self.options.priority

    @property
    def queue_name(self) -> str:
        return name_among_tasks(self.options.queue or DEFAULT_QUEUE)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Run it here and now, a coroutine function to its end."""
        run: Any = async_to_sync(self.acall) if self.handler.is_coroutine else self
        return run(*args, **kwargs)  # type: ignore[no-any-return]  # bound by P and T

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """``call`` for coroutines."""
        run: Any = self if self.handler.is_coroutine else sync_to_async(self)
        return await run(*args, **kwargs)  # type: ignore[no-any-return]  # as above

    def get_result(self, result_id: str) -> Any:
        """The result of a job of this function, as Django's Tasks show it."""
        return self.task.get_result(result_id)

    async def aget_result(self, result_id: str) -> Any:
        """``get_result`` for coroutines."""
        return await self.task.aget_result(result_id)

    def get_backend(self) -> Any:
        """The backend of Tasks that leads to the backend of the job."""
        return self.task.get_backend()

    def using(self, **options: Unpack[JobOptions]) -> JobFunction[P, R_co, T_co]:
        """The same function with other options; raises InvalidOption."""
        return JobFunction(self.function, self.handler, self.options.using(**options))

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedJob[T_co]:
        """A job with its id fixed, to be enqueued later, or again; raises InvalidPayload."""
        return PreparedJob(new_id(), self._plan, self.handler.payload(args, kwargs))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T_co]:
        """Enqueue a call. Inside a transaction on the jobs' database it belongs to it."""
        return self.prepare(*args, **kwargs).enqueue()

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T_co]:
        """``enqueue`` for coroutines."""
        return await sync_to_async(self.prepare(*args, **kwargs).enqueue)()

    def _context_of_a_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobContext:
        """The context of a plain call, which belongs to no job."""
        payload = {"args": list(args), "kwargs": kwargs}
        queue = self.options.queue or ""
        return JobContext(id="", payload=payload, name=self.options.name or self.key, queue=queue)

    def __repr__(self) -> str:
        return f"<job {self.key}>"


task_of: Callable[[JobFunction[..., Any, Any]], Any] | None = None
"""Makes a Task of a job. Set when the app is ready, if Tasks are installed."""


class Decorator(Protocol):
    """What ``@job(...)`` returns."""

    @overload
    def __call__(self, handler: type[H], /) -> type[H]: ...  # type: ignore[overload-overlap]  # a class is callable too, and the first that fits is meant
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> JobFunction[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> JobFunction[P, T, T]: ...


class HandlerOptions(JobOptions, Reactions, total=False):
    """What ``@job`` takes."""

    before: Callable[[JobContext], Any] | None
    after: Callable[[JobContext, BaseException | None], Any] | None


class ContextDecorator(Protocol):
    """What ``@job(takes_context=True, ...)`` returns: the context is not an argument of the job."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, T]], /
    ) -> JobFunction[P, Coroutine[Any, Any, T], T]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], T], /
    ) -> JobFunction[P, T, T]: ...


@overload
def job(handler: type[H], /) -> type[H]: ...  # type: ignore[overload-overlap]  # as above
@overload
def job(
    function: Callable[P, Coroutine[Any, Any, T]], /
) -> JobFunction[P, Coroutine[Any, Any, T], T]: ...
@overload
def job(function: Callable[P, T], /) -> JobFunction[P, T, T]: ...
@overload
def job(
    *, key: str | None = None, takes_context: Literal[True], **options: Unpack[HandlerOptions]
) -> ContextDecorator: ...
@overload
def job(
    *,
    key: str | None = None,
    takes_context: Literal[False] = False,
    **options: Unpack[HandlerOptions],
) -> Decorator: ...
def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    key: str | None = None,
    takes_context: bool = False,
    **options: Unpack[HandlerOptions],
) -> Any:
    """Make a function a handler, or a subclass of JobHandler. Bare, or with options.

    ``key`` is the name messages carry; by default the dotted path. Give one to be free
    to move the function or class while jobs wait.
    """
    remaining: dict[str, Any] = dict(options)
    conduct_options = {name: remaining.pop(name) for name in _CONDUCT if name in remaining}
    checked = Options().declared(**remaining)
    conduct = conduct_of(conduct_options, checked)

    def decorate(function: Callable[..., Any]) -> Any:
        if isinstance(function, type) and issubclass(function, JobHandler):
            if takes_context:
                raise InvalidOption("takes_context is for functions; a handler class always does")
            made = class_handler(_path_or(key, function), function, conduct, checked)
            registry.register(made)
            return function
        handler = FunctionHandler(
            checked_key(function, key),
            function,
            takes_context=takes_context,
            conduct=conduct,
            options=checked,
        )
        registry.register(handler)
        return JobFunction(function, handler, checked)

    return decorate if function is None else decorate(function)


_CONDUCT = ("retry_on", "discard_on", "before", "after")


def conduct_of(conduct_options: dict[str, Any], options: Options) -> Conduct:
    """The checked options of a decorator about its own code; raises InvalidOption."""
    for name in ("retry_on", "discard_on"):
        if name in conduct_options:
            conduct_options[name] = _exceptions(name, conduct_options[name])
    for name in ("before", "after"):
        hook = conduct_options.get(name)
        if hook is not None and not callable(hook):
            raise InvalidOption(f"{name} is {hook!r}; give a function")
    return Conduct(**conduct_options, retry=options.retry)


def _exceptions(name: str, value: Any) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple | list) else (value,)
    for exception in classes:
        if not (isinstance(exception, type) and issubclass(exception, BaseException)):
            raise InvalidOption(f"{name} holds {exception!r}; it takes exception classes")
    return tuple(classes)


def checked_key(function: Callable[..., Any], key: Any) -> str:
    """The key of a function: ``key``, or else its dotted path; raises InvalidJob."""
    if isinstance(function, type) or not hasattr(function, "__qualname__"):
        raise InvalidJob(f"@job takes a function or a subclass of JobHandler, not {function!r}")
    return _path_or(key, function)


def _path_or(key: Any, function: Callable[..., Any]) -> str:
    if key is not None:
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
            raise InvalidOption(
                f"key is {key!r}; it is a text of 1 to {LONGEST_KEY} printable characters"
            )
        return key
    path = f"{function.__module__}.{function.__qualname__}"
    if "<" in path:
        raise InvalidJob(
            f"{path} cannot be found by a worker; define it at module level, or give it a key="
        )
    if len(path) > LONGEST_KEY:
        raise InvalidJob(
            f"the path {path} has more than {LONGEST_KEY} characters; give the job a key="
        )
    return path
