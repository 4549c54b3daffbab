"""What the schedules of these tests run."""

import os
import signal
import time

from django_jobs import JobContext, job
from django_jobs.cron.decide import WHEN_AT_ONCE
from testproject.shop.models import Order
from tests.integration.worker.pool.conftest import children_of


@job(queue="clockwork")
def chime() -> str:
    return "ding"


@job
def inline_chime() -> int:
    Order.objects.create(email="inline@example.com", total=1)
    return os.getpid()


@job
def inline_failure() -> None:
    raise RuntimeError("the bell is cracked")


@job
def inline_suicide() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@job
def inline_long() -> None:
    Order.objects.create(email=f"long-{os.getpid()}@example.com", total=1)
    time.sleep(600)


def yes() -> bool:
    Order.objects.create(email=f"when-{os.getpid()}@example.com", total=1)
    return True


def no() -> bool:
    return False


def breaks() -> bool:
    raise ValueError("the moon is not full")


def dies() -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def hangs() -> bool:
    time.sleep(600)
    return True


def hangs_beside_a_long_job() -> bool:
    """No, until that job runs; then it is asked and does not answer."""
    if not Order.objects.filter(email__startswith="long-").exists():
        return False
    Order.objects.create(email=f"when-{os.getpid()}@example.com", total=1)
    return hangs()


def with_few_others() -> bool:
    """Look for a while whether many children of the scheduler run beside this one."""
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        if len(children_of(os.getppid())) > WHEN_AT_ONCE + int(os.environ["OTHER_CHILDREN"]):
            return False
    return True


@job(takes_context=True)
def fails_once(context: JobContext) -> None:
    if context.attempt == 1:
        raise RuntimeError("not yet")
