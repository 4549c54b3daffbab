"""Receivers. What they do besides noting it down, the job's error says."""

import contextlib
import os
import time

from django.db import connection, transaction

from tests.integration.worker.pool.gang.jobs import GARBAGE, own_channel, write

DIARY = os.environ.get("GANG_LISTENS")


def misbehave(sender, error_message, **facts):
    if error_message in KINDS:
        write(DIARY, f"{error_message}-begins")
        KINDS[error_message]()


def hang():
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


def leave_open():
    transaction.atomic().__enter__()


def exceed():
    time.sleep(60)


def leave():
    raise SystemExit(3)


def stumble():
    raise LookupError("a receiver stumbled")


def garble():
    own_channel().sock.sendall(GARBAGE["request"])


KINDS = {
    "garble": garble,
    "hang": hang,
    "exceed": exceed,
    "leave": leave,
    "stumble": stumble,
    "die": lambda: os._exit(9),
    "leave-open": leave_open,
}


def note_death(sender, job_id, handler, reason, error_type, error_message, **facts):
    tidy = not connection.in_atomic_block
    told = [job_id, handler, reason, error_type, error_message, facts["queue"], facts["attempt"]]
    write(DIARY, "|".join(["dead", *map(str, told), f"tidy={tidy}"]).replace(" ", "_"))


def note_crash(sender, job_id, handler, crashes, reason, **facts):
    write(DIARY, f"crashed|{handler}|{crashes}")
