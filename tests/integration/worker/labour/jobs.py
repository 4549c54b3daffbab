"""Handlers for workers in other processes. Files tell what ran, and when it may end."""

import os
import time
from pathlib import Path

from django.db import connection, transaction

from django_jobs import job
from testproject.shop.models import Order

PATIENCE_SECONDS = 60.0


@job(key="labour.note")
def note(diary, word="ran"):
    write(diary, word)
    return word


@job(key="labour.hold")
def hold(diary, gate):
    """Run until the gate is a file."""
    write(diary, "begin")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not Path(gate).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    write(diary, "end")


@job(key="labour.query")
def query(diary):
    """Wait for an answer of the database."""
    asks = {"postgresql": "SELECT 'slow', pg_sleep(9)", "mysql": "SELECT 'slow', SLEEP(9)"}
    write(diary, "begin")
    with connection.cursor() as cursor:
        cursor.execute(asks[connection.vendor])
    write(diary, "end")


@job(key="labour.hooks", atomic=True, timeout=9)
def hooks(diary, how):
    def hook():
        write(diary, "hook")
        if how == "raises":
            raise ValueError(how)
        time.sleep(PATIENCE_SECONDS)

    transaction.on_commit(hook)
    transaction.on_commit(lambda: write(diary, "next"))


@job(key="labour.last")
def last(diary, seconds):
    write(diary, "begin")
    time.sleep(seconds)


@job(key="labour.fail")
def fail():
    raise RuntimeError("as ever")


@job(key="labour.order")
def order():
    Order.objects.create(email="a@example.com", total=1)


def write(diary, word):
    with Path(diary).open("a") as lines:
        lines.write(f"{os.getpid()} {word}\n")
