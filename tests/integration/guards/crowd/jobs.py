"""Handlers for a crowd of workers. What overlapped is told by what they wrote, not by locks."""

import os
import random
import time
from pathlib import Path

from django_jobs import job


def write(diary, *words):
    line = " ".join([str(os.getpid()), *map(str, words), f"{time.monotonic():.6f}"]) + "\n"
    descriptor = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@job(key="crowd.work", takes_context=True)
def work(context, diary, name, seconds=0.02):
    write(diary, "begin", name, context.fence)
    time.sleep(random.uniform(seconds / 2, seconds))
    write(diary, "end", name, context.fence)
    return name


@job(key="crowd.moody", takes_context=True, max_retries=20, retry="none")
def moody(context, diary, name):
    """Fails now and then, before its work is done."""
    write(diary, "begin", name, context.fence)
    fails = random.random() < 0.5
    write(diary, "end", name, context.fence)
    if fails:
        raise RuntimeError("not this time")
    write(diary, "done", name, context.fence)


@job(key="crowd.broken", takes_context=True)
def broken(context, diary, name, fails):
    """Fails until so many runs have begun."""
    write(diary, "begin", name, context.fence)
    time.sleep(0.05)
    write(diary, "end", name, context.fence)
    if Path(diary).read_text().count(" begin ") <= fails:
        raise RuntimeError("the other side is down")
    write(diary, "done", name, context.fence)


@job(key="crowd.stamp", takes_context=True)
def stamp(context, diary, name):
    """When it was claimed and when it began, by the clock of the jobs' database."""
    from django.db import connection  # noqa: PLC0415 - the environment chooses its settings

    from django_jobs.db.clock import StoreClock  # noqa: PLC0415 - as above
    from django_jobs.models import Job  # noqa: PLC0415 - as above

    write(diary, "began", name, StoreClock().read(connection))
    write(
        diary, "claimed", name, Job.objects.values_list("leased_at", flat=True).get(pk=context.id)
    )
