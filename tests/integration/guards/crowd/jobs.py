"""Handlers for a crowd of workers. What overlapped is told by what they wrote, not by locks."""

import os
import random
import time

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


@job(key="crowd.moody", takes_context=True, max_retries=20)
def moody(context, diary, name):
    """Fails now and then, before its work is done."""
    write(diary, "begin", name, context.fence)
    fails = random.random() < 0.5
    write(diary, "end", name, context.fence)
    if fails:
        raise RuntimeError("not this time")
    write(diary, "done", name, context.fence)
