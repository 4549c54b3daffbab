"""Errors for other libraries' ways to enqueue, and for coroutines; each names the way here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from django_jobs.exceptions import InvalidJob

P = ParamSpec("P")
T = TypeVar("T")

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


def no_attribute(
    job: object, called: str, name: str, words: Mapping[str, str] = IN_OTHER_WORDS
) -> AttributeError:
    """The error for a missing attribute of a job; names of other libraries get a hint."""
    message = f"{called} has no attribute {name!r}"
    if name in words:
        message += f"; write {words[name]}"
    return AttributeError(message, name=name, obj=job)


def no_attribute_of_defined(job: object, name: str) -> NoReturn:
    """``__getattr__`` of what define() returns."""
    raise no_attribute(job, "a job made by define()", name, OF_DEFINED)


def all_prepared(jobs: Any, kind: type[T]) -> list[T]:
    """The jobs as a list; raises InvalidJob for anything but prepared jobs."""
    wanted = "enqueue_many() takes prepared jobs: enqueue_many(send.prepare(n) for n in numbers)"
    if isinstance(jobs, kind) or not isinstance(jobs, Iterable):
        raise InvalidJob(f"{wanted}, and not {jobs!r} alone")
    prepared = list(jobs)
    for job in prepared:
        if not isinstance(job, kind):
            why = "is none yet; call its prepare()" if hasattr(job, "prepare") else "is none"
            raise InvalidJob(f"{wanted}; {job!r}, a {type(job).__name__}, {why}")
    return prepared
