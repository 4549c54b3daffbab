"""A task with the options of a job."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Unpack,
    overload,
)

from django.utils.module_loading import import_string

from django_jobs.decorators import JobFunction, conduct_of
from django_jobs.definition import Options, Reactions, SharedOptions
from django_jobs.exceptions import UnknownOption
from django_jobs.tasks import finder
from django_jobs.tasks.compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_QUEUE_NAME,
    Task,
    task_backends,
)
from django_jobs.tasks.handler import IN_DJANGOS_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from django_jobs.handlers.base import Conduct
    from django_jobs.tasks.compat import TaskContext

P = ParamSpec("P")
T = TypeVar("T")

CODE_OPTIONS = tuple(Reactions.__annotations__)


class DeclaredOptions(SharedOptions, Reactions, total=False):
    """Options of a task besides Django's own. Only the decorator takes all of them."""

    key: str


if TYPE_CHECKING:

    class _CachingTask(Task[P, T]):
        """Type checkers know Django's Task as generic; at run time it is not."""

else:

    class _CachingTask(Task, Generic[P, T]):
        """A slot for a cache of the backend. It is no field: tasks are equal without it."""

        __slots__ = ("_made",)


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class JobsTask(_CachingTask[P, T]):
    """A Task with the options of a job: ``@task(max_retries=5)``, ``.using(timeout=30)``.

    ``key`` is its name in messages, by default its dotted path. ``dataclass`` makes a class with
    slots twice, so ``super()`` without arguments would not work here.
    """

    key: str | None
    options: Options
    conduct: Conduct

    def __init__(  # noqa: PLR0913 - Django's six, and ours
        self,
        *,
        func: Callable[..., Any],
        priority: int = 0,
        backend: str = DEFAULT_TASK_BACKEND_ALIAS,
        queue_name: str = DEFAULT_TASK_QUEUE_NAME,
        run_after: datetime | timedelta | None = None,
        takes_context: bool = False,
        key: str | None = None,
        options: Options | None = None,
        conduct: Conduct | None = None,
        **extra: Any,
    ) -> None:
        code: dict[str, Any] = {name: extra.pop(name) for name in CODE_OPTIONS if name in extra}
        options = (options or Options()).declared(**_checked_options(extra))
        values = {
            "func": func,
            "priority": priority,
            "backend": backend,
            "queue_name": queue_name,
            "run_after": run_after,
            "takes_context": takes_context,
            "key": key,
            "options": options,
            "conduct": conduct or conduct_of(code, options),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        self.get_backend().validate_task(self)
        finder.register(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        **options: Unpack[SharedOptions],
    ) -> JobsTask[P, T]:
        """The same task with other options. None leaves Django's four as they are."""
        named = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
        }
        changes: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        if options:
            changes["options"] = self.options.using(**_checked_options(dict(options)))
        return replace(self, **changes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path: the function cannot be pickled, because the task has its name."""
        kwargs = {field.name: getattr(self, field.name) for field in fields(self)}
        del kwargs["func"]
        return _restored, (self.module_path, kwargs)


def _restored(path: str, kwargs: dict[str, Any]) -> JobsTask[..., Any]:
    try:
        target = import_string(path)
    except ImportError as error:
        raise ValueError(f"{path!r} was to lead to a task: {error}") from error
    if isinstance(target, JobFunction):  # the task of a job: the path leads to the job
        return JobsTask(func=target.function, **kwargs)
    if not isinstance(target, JobsTask):
        raise ValueError(f"{path!r} was to lead to a task, and is {type(target).__name__}")  # noqa: TRY004 - Django's choice
    return JobsTask(func=target.func, **kwargs)


def _checked_options(options: dict[str, Any]) -> dict[str, Any]:
    for name in options:
        if name in IN_DJANGOS_WORDS:
            raise UnknownOption(f"a task knows no {name}=; use {IN_DJANGOS_WORDS[name]}")
    return options


@overload
def task(function: Callable[P, T], /) -> JobsTask[P, T]: ...
@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: Literal[False] = False,
    **options: Unpack[DeclaredOptions],
) -> Callable[[Callable[P, T]], JobsTask[P, T]]: ...
@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: Literal[True],
    **options: Unpack[DeclaredOptions],
) -> Callable[[Callable[Concatenate[TaskContext[P, T], P], T]], JobsTask[P, T]]: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    **options: Any,
) -> Any:
    """Django's ``@task`` with our options, on every version of Django.

    The decorators of Django 6.1 and of the package for 5.2 forward options to the backend's task
    class; that of Django 6.0 does not.
    """
    if "run_after" in options:
        raise TypeError("run_after is for .using(run_after=...): a decorator runs only once")

    def decorate(function: Callable[..., Any]) -> Any:
        return task_backends[backend].task_class(func=function, backend=backend, **options)

    return decorate if function is None else decorate(function)
