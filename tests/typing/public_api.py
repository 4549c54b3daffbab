"""How users write it, for type checkers only: nothing in here is ever run.

Every ``assert_type`` is a promise of the public names; every ``ignore`` is a mistake that must stay
an error, because an ignore that is not needed is reported.
"""

from collections.abc import Iterator
from typing import Any, assert_type

from django_jobs import Cancel, JobContext, Retry, Snooze, define, enqueue_many, job
from django_jobs.enqueue import DefinedJob, Handle, PreparedJob


@job
def plain(user_id: int) -> str:
    return str(user_id)


@job(queue="mail", max_retries=5, timeout=30)
def with_options(user_id: int, *, greeting: str = "Hello") -> None:
    if not greeting:
        raise Cancel("nothing to say")
    if user_id < 0:
        raise Retry(delay=60)
    raise Snooze(delay=5)


@job(takes_context=True)
def with_context(context: JobContext, user_id: int) -> int:
    return context.attempt + user_id


def a_call_is_the_function() -> None:
    assert_type(plain(1), str)
    with_options(1, greeting="Hi")


def enqueue_takes_the_functions_own_arguments() -> None:
    assert_type(plain.enqueue(1), Handle[str])
    assert_type(plain.enqueue(user_id=1), Handle[str])
    with_options.using(delay=60, priority=10).enqueue(1, greeting="Hi")
    plain.enqueue("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    plain.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def the_context_is_not_the_callers_business() -> None:
    assert_type(with_context.enqueue(1), Handle[int])


def options_are_checked() -> None:
    plain.using(priority="high")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    plain.using(colour="red")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def a_job_by_its_key() -> None:
    defined = define("command", ["clearsessions"], queue="maintenance")
    assert_type(defined, DefinedJob)
    assert_type(defined.enqueue(), Handle[Any])


def many_at_once() -> None:
    def prepared() -> Iterator[PreparedJob[str]]:
        for user_id in range(3):
            yield plain.prepare(user_id)

    assert_type(enqueue_many(prepared()), list[Handle[Any]])


async def from_a_coroutine() -> None:
    assert_type(await plain.aenqueue(1), Handle[str])
