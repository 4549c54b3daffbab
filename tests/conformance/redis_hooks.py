"""The suite's hooks for RedisBackend, on the server of the tests."""

import json
import os

from django_jobs.backends.base import AttemptRecord, ResultRecord
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.redis import backend as redis_backend
from django_jobs.backends.redis.connection import RedisClock
from django_jobs.clock import ManualClock, from_datetime
from django_jobs.models import FailedJob, JobAttempt
from django_jobs.testing.conformance import DeadLetter
from tests.conformance import statements
from tests.services import REDIS_URL

IN_STATE = {"attempts": 0, "deliveries": 1, "crashes": 2, "put_off_since": 8}
IN_LINE = {
    "signature": 0,
    "handler": 2,
    "concurrency_key": 5,
    "concurrency": 6,
    "idempotency_key": 7,
}
PREFIX = f"tests-{os.environ.get('DJANGO_JOBS_TEST_SUFFIX', '')}-{os.getpid()}"


def emptied(client, prefix):
    """Remove every key of a prefix, and no other."""
    for key in client.scan_iter(f"{{{prefix}*", count=1000):
        client.delete(key)


LISTED = {
    *statements.scripts_of(redis_backend.__doc__),
    *statements.statements_of(redis_backend.__doc__),
}


class RedisHooks:
    watch = None
    alias = "redis"
    options = {"URL": REDIS_URL, "PREFIX": PREFIX}

    def make_backend(self):
        self.manual = ManualClock()
        backend = RedisBackend(self.alias, self.options)
        backend.clock = RedisClock(self.manual)
        watch, connection = self.watch or statements.Watch(), backend.store.connection
        connection.make = watch.redis(connection.make)
        self.addCleanup(statements.compare, watch.seen, LISTED)
        self.client = self.administrator(backend)
        emptied(self.client, self.options["PREFIX"])
        self.addCleanup(emptied, self.client, self.options["PREFIX"])
        return backend

    def administrator(self, backend):
        """Who looks into the store and empties it."""
        return backend.store.connection.client

    def advance(self, seconds):
        self.manual.advance(seconds)

    def now(self):
        return self.manual.now()

    def base_of(self, job_id):
        queue = self.backend._reader.queue_of(job_id)
        return self.backend.store.layout.base(queue)

    def tamper(self, job_id, **columns):
        base = self.base_of(job_id)
        if columns.keys() <= IN_STATE.keys():
            self._tamper_state(base, job_id, columns)
            return
        raw = self.client.hget(base + "jobs", job_id)
        line, _, body = raw.partition(b"\n")
        head, told = line[:20], json.loads(line[20:])
        place = head[1:] + job_id.encode()
        held = "ready" if self.client.zscore(base + "ready", place) is not None else "later"
        self.client.zrem(base + held, place)
        if "queue" in columns:
            self.client.hdel(base + "jobs", job_id)
            base = self.backend.store.layout.base(columns["queue"])
        if "due" in columns:
            held, head = "ready", head[:4] + b"%016d" % max(columns["due"], 0)
        if "rank" in columns:
            head = head[:1] + b"%03d" % (columns["rank"] + 100) + head[4:]
        for column in columns.keys() & IN_LINE.keys():
            told[IN_LINE[column]] = columns[column]
        if "body" in columns:
            body = columns["body"].encode()
        self.client.hset(base + "jobs", job_id, head + json.dumps(told).encode() + b"\n" + body)
        score = 0 if held == "ready" else int(head[4:])
        self.client.zadd(base + held, {head[1:] + job_id.encode(): score})

    def _tamper_state(self, base, job_id, columns):
        token, _, told = self.client.hget(base + "state", job_id).partition(b"|")
        state = told.split(b":")
        for name, value in columns.items():
            state[IN_STATE[name]] = b"%d" % value
        self.client.hset(base + "state", job_id, token + b"|" + b":".join(state))

    def dead_letter(self, job_id):
        row = FailedJob.objects.filter(job_id=job_id, backend=self.alias).first()
        return row and DeadLetter(
            job_id=str(row.job_id),
            queue=row.queue,
            body=row.body,
            signature=row.signature,
            key_id=row.key_id,
            reason=row.reason,
            attempts=row.attempts,
            crashes=row.crashes,
            error_type=row.error_type,
            error_message=row.error_message,
        )

    def attempts_of(self, job_id):
        rows = JobAttempt.objects.filter(job_id=job_id).order_by("pk")
        if rows:
            return [
                AttemptRecord(
                    number=row.number,
                    outcome=row.outcome,
                    started_at=from_datetime(row.started_at),
                    finished_at=from_datetime(row.finished_at),
                    error_type=row.error_type,
                    error_message=row.error_message,
                    traceback=row.traceback,
                    output=row.output,
                    worker=row.worker,
                )
                for row in rows
            ]
        account = self.backend.account(job_id)
        return list(account.attempts) if account else []

    def result_of(self, job_id):
        for queue in self.backend.store.queues():
            raw = self.client.hget(self.backend.store.layout.base(queue) + "res", job_id)
            if raw:
                told = json.loads(raw.partition(b"\n")[0])
                return ResultRecord(
                    **{name: told[name] for name in ResultRecord._fields if name in told}
                )
        return None
