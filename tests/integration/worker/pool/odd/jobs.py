"""Handlers whose ends are out of the ordinary: odd delays, return values that run code."""

import contextlib
import functools
import time
from decimal import Decimal
from fractions import Fraction

from django_jobs import Retry, Snooze, job
from tests.integration.worker.pool.gang.jobs import write


class Seconds(float):
    """As numpy's: a float to everybody but those who look closely."""


DELAYS = {"decimal": Decimal("0.2"), "fraction": Fraction(1, 5), "own": Seconds(0.2)}


@job(key="odd.waits", max_retries=1, takes_context=True)
def waits(context, diary, what, how):
    """Come again once, after a delay that is no plain float."""
    write(diary, f"{what}-{how}")
    if what == "retry" and context.attempt == 1:
        raise Retry(DELAYS[how])
    if what == "snooze" and f"{what}-{how}" not in words_before(diary):
        raise Snooze(DELAYS[how])


def words_before(diary):
    with open(diary) as lines:  # noqa: PTH123 - short
        return [line.split()[1] for line in lines][:-1]


class Endless(dict):
    """What it holds is never told to the end."""

    def __init__(self, diary, how):
        super().__init__(a=1)
        self.diary, self.how = diary, how

    def items(self):
        write(self.diary, f"{self.how}-encodes")
        while True:
            with contextlib.suppress(BaseException if self.how == "swallows" else ()):
                time.sleep(60)


@job(key="odd.endless", timeout=0.4, max_retries=0)
def endless(diary, how):
    return Endless(diary, how)


@job(key="odd.async_endless", timeout=0.4, max_retries=0)
async def async_endless(diary, how):
    return Endless(diary, how)


def wrapped(function):
    """A decorator that knows nothing of generators."""

    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


@job(key="odd.yields", max_retries=0)
@wrapped
def yields(diary):
    write(diary, "never")
    yield


@job(key="odd.async_forgets", max_retries=0)
async def async_forgets(diary):
    """To await what does its work."""

    async def work():
        write(diary, "never")

    return work()
