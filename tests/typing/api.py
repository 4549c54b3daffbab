"""The public names in a user's hands, for type checkers only: nothing in here is ever run.

``assert_type`` is a promise kept, an ``ignore`` a mistake that both checkers must notice: one
that is not needed is an error of its own.
"""

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from django_jobs import (
    DefinedJob,
    Handle,
    JobContext,
    JobFunction,
    JobHandler,
    PreparedJob,
    TypedContext,
    aenqueue_many,
    define,
    enqueue_many,
    job,
)
from django_jobs.handlers.base import Handler
from django_jobs.tasks import task

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


# -- the decorator -------------------------------------------------------------------------


@job
def bare(user_id: int, /, greeting: str = "Hello", *, loud: bool = False) -> str:
    return f"{greeting} {user_id}{'!' * loud}"


@job()
def in_brackets(user_id: int) -> str:
    return str(user_id)


@job(queue="mail", priority=5, max_retries=3, retry=[1, 2.5], timeout=timedelta(seconds=30))
def with_options(user_id: int) -> list[int]:
    return [user_id]


@job(key="shop.with-key")
def with_key() -> None: ...


@job
async def coroutine(user_id: int) -> str:
    return str(user_id)


@job(queue="mail")
async def coroutine_with_options(user_id: int) -> list[str]:
    return [str(user_id)]


@job(takes_context=True)
def with_context(context: JobContext, user_id: int) -> int:
    return context.attempt + user_id


@job(takes_context=True, queue="mail")
async def coroutine_with_context(context: JobContext, user_id: int) -> float:
    assert not context.cancelled
    return user_id / 2


@job(takes_context=False)
def without_context(user_id: int) -> int:
    return user_id


@job
def any_arguments(*numbers: int, **words: str) -> int:
    return len(numbers) + len(words)


def a_decorated_function_keeps_its_signature() -> None:
    accepted: JobFunction[[int], str, str] = in_brackets
    refused: JobFunction[[str], str, str] = in_brackets  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    assert accepted.key == refused.key
    assert_type(bare(1, "Hi", loud=True), str)
    assert_type(in_brackets(1), str)
    assert_type(with_options(1), list[int])
    assert_type(without_context(1), int)
    assert_type(any_arguments(1, 2, three="3"), int)


async def a_decorated_coroutine_function_is_awaited_as_before() -> None:
    assert_type(await coroutine(1), str)
    assert_type(await coroutine_with_options(1), list[str])
    running: Coroutine[Any, Any, float] = coroutine_with_context(1)
    assert_type(await running, float)


def options_of_the_decorator_are_checked() -> None:
    job(colour="red")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    job(priority="high")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    job(takes_context="yes")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]
    job("mail")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]


# -- enqueue -------------------------------------------------------------------------------


def a_handle_knows_what_the_function_returns() -> None:
    assert_type(bare.enqueue(1), Handle[str])
    assert_type(bare.enqueue(1, "Hi", loud=True), Handle[str])
    assert_type(with_options.enqueue(user_id=1), Handle[list[int]])
    assert_type(with_key.enqueue(), Handle[None])
    assert_type(any_arguments.enqueue(1, 2, three="3"), Handle[int])
    assert_type(bare.enqueue(1).id, str)
    assert_type(bare.enqueue(1).backend, str)
    assert_type(bare.enqueue(1).created, bool)


def a_handle_of_a_coroutine_function_knows_what_awaiting_it_gives() -> None:
    assert_type(coroutine.enqueue(1), Handle[str])
    assert_type(coroutine_with_options.enqueue(1), Handle[list[str]])
    assert_type(coroutine_with_context.enqueue(1), Handle[float])


async def coroutines_enqueue_with_the_same_words() -> None:
    assert_type(await bare.aenqueue(1), Handle[str])
    assert_type(await coroutine.aenqueue(user_id=1), Handle[str])
    assert_type(await with_context.aenqueue(1), Handle[int])
    assert_type(await bare.prepare(1).aenqueue(), Handle[str])
    await bare.aenqueue("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def the_context_is_not_given_by_the_caller() -> None:
    assert_type(with_context(1), int)
    assert_type(with_context.enqueue(1), Handle[int])
    assert_type(with_context.enqueue(user_id=1), Handle[int])
    with_context.enqueue("context", 1)  # type: ignore[call-arg, arg-type] # pyright: ignore[reportCallIssue]


def a_wrong_call_is_an_error() -> None:
    bare.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    bare.enqueue("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.enqueue(1, 2)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.enqueue(1, "Hi", True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    bare.enqueue(user_id=1)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    bare.enqueue(1, colour="red")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    with_key.enqueue(1)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    coroutine.enqueue(user_id="1")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    any_arguments.enqueue(1, two=2)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.prepare("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with_options("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def a_handle_is_of_one_type() -> None:
    wrong: Handle[int] = bare.enqueue(1)  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    wider: Handle[object] = bare.enqueue(1)
    assert_type(wrong, Handle[int])
    assert wider.created
    bare.enqueue(1).id = "x"  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]


# -- using ---------------------------------------------------------------------------------


def using_keeps_the_signature() -> None:
    same: JobFunction[[int], str, str] = in_brackets.using(priority=1)
    assert_type(in_brackets.call(1), str)
    assert_type(coroutine.call(1), str)
    assert_type(in_brackets.module_path, str)
    assert_type(same(1), str)
    assert_type(with_context.using(delay=5).enqueue(1), Handle[int])
    bare.using(delay=5).enqueue("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def using_takes_every_option() -> None:
    bare.using(queue="mail", backend="redis", name="Welcome", priority=-5)
    bare.using(max_retries=3, retry="exponential", max_crashes=1, timeout=None)
    bare.using(retry={"STRATEGY": "fixed", "BASE": 5}, timeout=0.5)
    bare.using(delay=60, expires=3600, result_ttl=60)
    bare.using(delay=timedelta(minutes=1), expires=NOON, result_ttl=timedelta(days=1))
    bare.using(run_at=NOON, expires=timedelta(hours=1))
    bare.using(run_at=timedelta(minutes=1))
    bare.using(unique_key="u", on_conflict="raise", trace_id="t", meta={"a": 1})
    bare.using(idempotency_key="i", single_instance=True, concurrency_key="c", concurrency=1)
    bare.using(single_instance="lock", atomic=True)


def options_are_checked() -> None:
    bare.using(colour="red")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    bare.using(priority="high")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.using(max_retries=1.5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.using(delay="soon")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.using(delay=NOON)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.using(run_at=60)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.using(on_conflict="ignore")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.using(meta=["a"])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    bare.using(key="other")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


# -- prepared, defined, many ---------------------------------------------------------------


def a_prepared_job_knows_its_result_too() -> None:
    prepared = bare.prepare(1)
    assert_type(prepared, PreparedJob[str])
    assert_type(prepared.id, str)
    assert_type(prepared.enqueue(), Handle[str])
    assert_type(coroutine.prepare(1).enqueue(), Handle[str])


def a_job_defined_by_its_key_may_return_anything() -> None:
    defined = define("command", ["clearsessions"], queue="maintenance")
    assert_type(defined, DefinedJob)
    assert_type(defined.using(priority=1), DefinedJob)
    assert_type(defined.prepare(), PreparedJob[Any])
    assert_type(defined.enqueue(), Handle[Any])


def many() -> Iterator[PreparedJob[str]]:
    for user_id in range(3):
        yield bare.prepare(user_id)


async def many_jobs_of_any_kind_at_once() -> None:
    assert_type(enqueue_many(many()), list[Handle[Any]])
    assert_type(enqueue_many([bare.prepare(1), with_key.prepare()]), list[Handle[Any]])
    assert_type(await aenqueue_many(many()), list[Handle[Any]])
    enqueue_many([bare])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    enqueue_many([bare.enqueue(1)])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    enqueue_many(bare.prepare(1))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


# -- tasks ---------------------------------------------------------------------------------


@task
def a_task(user_id: int, greeting: str = "Hello") -> str:
    return f"{greeting} {user_id}"


@task(queue_name="mail", max_retries=3, retry_on=OSError, timeout=timedelta(seconds=30))
def a_task_with_options(user_id: int) -> list[int]:
    return [user_id]


def a_task_keeps_the_arguments_of_its_function() -> None:
    copy = a_task.using(priority=1, run_after=timedelta(hours=1))
    assert_type(copy.enqueue(1).return_value, str)
    assert_type(a_task_with_options.enqueue(1).return_value, list[int])
    assert_type(a_task.get_result("id").return_value, str)
    a_task.enqueue("1")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    a_task.using(timeuot=1)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    a_task.using(unique_key=1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


# -- handler classes -----------------------------------------------------------------------


@dataclass(frozen=True)
class Mail:
    to: str
    copies: int = 1


@job(queue="mail", max_retries=3)
class SendMail(JobHandler[Mail, str]):
    def handle(self, context: TypedContext[Mail]) -> str:
        assert_type(context.payload, Mail)
        assert_type(context.attempt, int)
        return context.payload.to


@job
class Count(JobHandler[list[int], int]):
    async def handle(self, context: TypedContext[list[int]]) -> int:
        return sum(context.payload)


async def a_handler_class_knows_its_payload_and_its_result() -> None:
    assert_type(SendMail.enqueue(Mail("a")), Handle[str])
    assert_type(SendMail.using(delay=5).enqueue(Mail("a")), Handle[str])
    assert_type(SendMail.prepare(Mail("a")), PreparedJob[str])
    assert_type(await SendMail.aenqueue(Mail("a")), Handle[str])
    assert_type(Count.enqueue([1]), Handle[int])
    assert_type(enqueue_many([SendMail.prepare(Mail("a"))]), list[Handle[Any]])


def a_wrong_payload_is_an_error() -> None:
    SendMail.enqueue(Mail(5))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    SendMail.enqueue({"to": "a"})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    SendMail.enqueue("a")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    SendMail.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    SendMail.using(delay=5).enqueue("a")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    SendMail.using(colour="red")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    Count.enqueue(["1"])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]


# -- handlers of one's own -----------------------------------------------------------------


class Upload(Handler):
    retry_on = (OSError,)
    retry = "exponential"

    def __init__(self) -> None:
        self.before = self.check

    def admit(self, payload: Any) -> None:
        assert_type(self.key, str)

    def check(self, context: JobContext) -> None:
        assert_type(context.payload, Any)

    async def handle(self, context: JobContext) -> str:
        return context.id


class Wrong(Handler):
    key = 5  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    discard_on = ("OSError",)  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]

    def encode(self) -> Any: ...  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]


def a_handler_has_all_members() -> None:
    handler = Upload()
    assert_type(handler.is_coroutine, bool)
    assert_type(handler.destination([]), Any)
    handler.amdit([])  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
