"""Tasks for the tests, as an app would have them."""

import os
import time
from datetime import date
from pathlib import Path

from django.db import transaction

from django_jobs import Cancel, Retry, Snooze, job
from django_jobs.tasks import task
from testproject.shop.models import Order

PATIENCE_SECONDS = 60.0


@task
def echo(*args, **kwargs):
    return [list(args), kwargs]


@task
async def aecho(value):
    return value


@task
def add(left, right=0):
    return left + right


@task(takes_context=True)
def told(context, *_args):
    result = context.task_result
    return [result.id, context.attempt, str(result.status), len(result.errors), result.backend]


@task(takes_context=True)
def options(context):
    """The options of the task that the context shows."""
    task = context.task_result.task
    after = None if task.run_after is None else str(task.run_after)
    return [task.priority, task.queue_name, task.backend, after]


@task(max_retries=1, retry=[0])
def fails(message="as ever"):
    raise ValueError(message)


@task(max_retries=2, retry=[0])
def fails_until(marker):
    """Fail until the marker is a file, and make it one."""
    path = Path(marker)
    if path.exists():
        return "at last"
    path.touch()
    raise RuntimeError("not yet")


@task(takes_context=True, max_retries=2, retry=[0])
def fails_in_turn(context):
    """Fail with another error each time; the last one tells of those before."""
    if context.attempt > 2:
        raise LookupError(str([one.exception_class_path for one in context.task_result.errors]))
    raise [ValueError, OSError][context.attempt - 1]("no")


@task(takes_context=True, max_retries=3, retry=[0])
def third_time_lucky(context):
    if context.attempt < 3:
        raise RuntimeError(f"attempt {context.attempt}")
    return [len(context.task_result.errors), context.task_result.attempts]


@task(max_retries=5, retry_on=OSError)
def picky():
    raise LookupError("no use in trying again")


@task
def exits():
    raise SystemExit("out of here")


@task
def interrupts():
    raise KeyboardInterrupt("nobody pressed anything")


@task
def odd():
    raise ValueError("NUL \0, half a pair \ud800, a bell \a and ünïcode \N{SNOWMAN}")


@task(unique_key="chores.only-one", on_conflict="raise")
def only_one():
    """A second one is refused while the first one lives."""


@task
def misses():
    Order.objects.get(pk=0)


@task
def returns_a_date():
    return [date(2026, 1, 1)]


@task
async def areturns_a_date():
    return date(2026, 1, 1)


@task
def returns_a_generator():
    return (number for number in range(3))


@job
def dated_job():
    return date(2026, 1, 1)


@task
def returns_nan():
    return float("nan")


@task
def returns(size):
    return "x" * size


@task
def returns_bytes_and_tuples():
    return {"bytes": b"abc", "tuple": (1, 2), "range": range(2)}


@task
def cancels():
    raise Cancel("there is nothing to do")


@task(max_retries=1)
def asks_again():
    raise Retry(0)


@task
def snoozes():
    raise Snooze(3600)


@task(atomic=True, timeout=5)
def order(email):
    Order.objects.create(email=email, total=1)
    return transaction.get_connection().in_atomic_block


@task
def note(diary, word="ran"):
    write(diary, word)


@task(timeout=60)
def hold(diary, gate):
    """Run until the gate is a file."""
    write(diary, "begin")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not Path(gate).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    write(diary, "end")
    return "held"


@job(max_retries=2, queue="mail")
def plain_job(word):
    return word * 2


@job
async def coroutine_job(word):
    return word * 3


@job(key="chores.keyed", takes_context=True)
def keyed_job(context, word):
    return [context.attempt, word]


def write(diary, word):
    with Path(diary).open("a") as lines:
        lines.write(f"{os.getpid()} {word}\n")
