"""Corrupt entries in every structure that Redis keeps, and real workers among them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from django_jobs.backends.registry import backends
from django_jobs.ids import new_id
from django_jobs.models import FailedJob, JobAttempt
from django_jobs.wire.envelope import MAX_MOMENT, key_digest
from tests.fuzz.hostile import Place
from tests.fuzz.targets import ALLOWED
from tests.fuzz.test_stored import here
from tests.redis_servers import running

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]
BASE, SHARED = "{django_jobs:default}:3:", "{django_jobs}:3:"
TOKEN = "f" * 32
HEAD = b"-100" + b"0" * 16
NOISE = (
    b"", b"\xff\x00\x17 noise", b"[" * 100_000, b'{"a":' * 50_000, b"1e999", b"-1e999", b"nan",
    b"inf", b"9" * 400, b"9" * 5000, b"null", b"[[],{},1.5,true]", b'["\\ud800"]', b"1:2:3", b"|",
)  # fmt: skip
VALUES = ([], {}, True, 1.5, -1, 10**30, "\ud800", "\x00", "x" * 1000, [[[[]]]])
SCORES = ("-inf", "+inf", 0, 1e300)
LAST_ID = "ffffffff-ffff-7fff-bfff-ffffffffffff"


class Spoiler:
    """Spoils what there is, and counts the jobs that cannot be believed any more."""

    def __init__(self, client, backend, place):
        self.client, self.backend, self.place = client, backend, place
        self.spoiled, self.sound = set(), []

    def put(self, **terms):
        message = self.place.sound("fuzz.function", **terms)
        self.backend.enqueue([message])
        return message

    def bad(self, **terms):
        message = self.put(**terms)
        self.spoiled.add(message.id)
        return message.id

    def messages(self):
        for noise in NOISE:
            self.client.hset(BASE + "jobs", self.bad(), noise)
            for keys in ({}, {"concurrency_key": "disk"}, {"idempotency_key": new_id()}):
                job_id = self.bad(**keys)
                head, body = self.parts(job_id)
                self.client.hset(BASE + "jobs", job_id, head + noise + b"\n" + body)
        for field in range(12):
            for value in VALUES:
                # Of the others some tell nothing that a body does not tell again.
                put = self.bad if field in {0, 2} else lambda **terms: self.put(**terms).id
                job_id = put(concurrency_key="disk", tenant="one")
                head, body = self.parts(job_id)
                line = json.loads(self.client.hget(BASE + "jobs", job_id)[20:].split(b"\n")[0])
                told = [*line, *[None] * (12 - len(line))]
                told[field] = value
                self.client.hset(
                    BASE + "jobs", job_id, head + json.dumps(told).encode() + b"\n" + body
                )

    def parts(self, job_id):
        raw = self.client.hget(BASE + "jobs", job_id)
        return raw[:20], raw.partition(b"\n")[2]

    def states(self):
        for noise in NOISE[:-1]:
            self.client.hset(BASE + "state", self.bad(), noise or b"-")
        numbers = ["0", "1", "0", "0", "5", "1", "0", "0", "0"]
        for at in range(len(numbers)):
            for value in ("9" * 400, "-1", "x", ""):
                told = ":".join([*numbers[:at], value, *numbers[at + 1 :], "", "w"])
                for token in ("-" * 32, TOKEN):
                    # It may still be read, and is as good as any then.
                    self.client.hset(BASE + "state", self.put().id, f"{token}|{told}")

    def places(self):
        for noise in NOISE:
            self.client.zadd(
                BASE + "ready", {noise: 0, b"1" * 19 + noise: 0, noise + LAST_ID.encode(): 0}
            )
            for score in SCORES:
                self.client.zadd(BASE + "later", {noise + str(score).encode(): score})
                self.client.zadd(BASE + "leased", {noise + str(score).encode(): score})
        # Its own place comes before this one, and takes it to a worker.
        self.sound.append(twice := self.put())
        self.client.zadd(BASE + "ready", {b"x" * 19 + twice.id.encode(): 0})
        self.client.zadd(BASE + "ready", {b"0" * 19 + self.bad(delay=3600).encode(): 0})
        self.client.hset(BASE + "jobs", LAST_ID, HEAD + b'["","","fuzz.function"]\n{}')
        self.client.zadd(BASE + "ready", {HEAD[1:] + LAST_ID.encode(): 0})
        for odd in (b"\xff" * 36, b"a b", b"|:|", b"x" * 500):
            self.client.hset(BASE + "jobs", odd, HEAD + b"[]\n{}")
            self.client.zadd(BASE + "ready", {HEAD[1:] + odd: 0})

    def guards(self):
        lock = str(key_digest("concurrency", "redis", "disk"))
        once = str(key_digest("idempotency", "redis", "once", "fuzz.function"))
        for noise in NOISE:
            self.client.hset(BASE + "blocked", noise, noise)
            self.client.hset(BASE + "blocked", new_id(), noise)
            self.client.zadd(BASE + "w:c:" + lock, {noise: 0, HEAD[1:] + noise: 0})
            self.client.sadd(SHARED + "h:c:" + lock, noise)
            self.client.sadd(SHARED + "h:i:" + once, noise)
            self.client.sadd(SHARED + "q:c:" + lock, noise)
            self.client.sadd(SHARED + "queues", noise)
            self.client.hset(BASE + "suspects", noise, noise)
            self.client.lpush(BASE + "wake", noise)
            self.client.hset(BASE + "rate", noise, noise)
            self.client.hset(BASE + "rate", str(len(noise)), noise)
            self.client.hset(SHARED + "breakers", b"handler:" + noise, noise)
        self.client.set(SHARED + "d:" + once, b"9" * 400 + b":a:b|c")
        self.client.set(SHARED + "u:" + str(key_digest("unique", "redis", "one")), b"|||\xff")
        self.client.set(SHARED + "fence", b"inf")

    def breakers(self):
        for value in (*VALUES, "1e999"):
            told = json.dumps([1, 1, "x", *[value] * 3]).replace('"1e999"', "1e999")
            self.client.hset(
                SHARED + "breakers", f"handler:{value!r}"[:90].encode(errors="replace"), told
            )
        self.client.hset(SHARED + "breakers", "handler:fuzz.function", "[1e999,1e999,1,1,1,1e999]")
        self.client.hset(SHARED + "breakers", "queue:default", '[12,-1,"x","\\ud800","\\ud800",-5]')

    def letters(self):
        for number, noise in enumerate(NOISE):
            self.client.hset(BASE + "dead", noise, noise)
            job_id = new_id()
            failure = {"message": noise.decode("latin-1"), "failure": noise.decode("latin-1")}
            counters = {"now": "9" * 400, "attempts": 10**30, "crashes": -1, "deliveries": []}
            self.client.hset(BASE + "dead", job_id, json.dumps({**failure, **counters}))
            self.client.rpush(BASE + "att:" + job_id, noise)
            for value in VALUES:
                record = {"number": 1, "outcome": "x", "started_at": 1, "finished_at": 2}
                for name in (*record, "error_type", "worker"):
                    self.client.rpush(BASE + "att:" + job_id, json.dumps({**record, name: value}))
            self.client.hset(BASE + "res", str(number), noise)
            self.client.zadd(BASE + "kept", {str(number): MAX_MOMENT, noise: float("-inf")})


@pytest.fixture
def server():
    with running() as server:
        yield server


@pytest.fixture
def work(server, settings, site_environment):
    jobs = {
        **ALLOWED,
        "UNKNOWN_HANDLER": "dead-letter",  # and not when patience is over
        "QUEUES": {"default": {**ALLOWED["QUEUES"]["default"], "RATE_LIMIT": "100000/m"}},
        "BACKENDS": {
            "redis": {
                "BACKEND": "django_jobs.backends.redis.RedisBackend",
                "OPTIONS": {"URL": server.url},
            }
        },
        "DEFAULT_BACKEND": "redis",
        "CIRCUIT_BREAKER": {"REJECTIONS": 100_000, "HANDLERS": {"fuzz.function": {}}},
    }
    settings.DJANGO_JOBS = jobs
    environment = {
        **site_environment,
        "DJANGO_SETTINGS_MODULE": "tests.fuzz.site",
        "FUZZ_JOBS": json.dumps(
            {**jobs, "HANDLERS": {"fuzz.function": "tests.fuzz.targets.bystander"}}
        ),
    }

    options = ["--until-empty", "--processes", "2", "-v0"]

    def work():
        done = subprocess.run(
            [sys.executable, "testproject/manage.py", "jobs_work", *options],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        said = done.stderr + done.stdout
        assert done.returncode == 0, said[-3000:]
        assert " died (of its own)" not in said
        assert "Traceback" not in said, said[-3000:]

    return work


def test_corrupt_entries_end_no_worker_and_what_cannot_be_read_is_a_dead_letter(server, work):
    backend = backends["redis"]
    place = Place(here().site, "redis", "default", here().signer)
    spoiler = Spoiler(server.client, backend, place)
    keys = ({}, {"concurrency_key": "disk"}, {"idempotency_key": "once"}, {"unique_key": "one"})
    spoiler.sound += [spoiler.put(**one) for one in keys]
    spoiler.messages()
    spoiler.states()
    spoiler.sound += [spoiler.put(**one) for one in keys[:2]]
    spoiler.places()
    spoiler.guards()
    spoiler.breakers()
    spoiler.letters()
    spoiler.sound += [spoiler.put(**one) for one in keys[:2]]
    for _ in range(3):  # what no look finds, housekeeping frees
        work()
        backend.reap_expired()
        backend.clean_up()
    work()  # which takes along what the last housekeeping buried
    told = dict(FailedJob.objects.values_list("job_id", "reason"))
    dead = {str(job_id): reason for job_id, reason in told.items()}
    reasons = Counter(dead.values())
    print(f"{reasons.total()} dead letters: {dict(reasons)}; {JobAttempt.objects.count()} attempts")
    assert spoiler.spoiled <= dead.keys()
    reasons = {dead[job_id] for job_id in spoiler.spoiled} - {"unknown-key"}
    assert all(reason.startswith("rejected-") for reason in reasons)
    assert {one.id for one in spoiler.sound} & dead.keys() == set()
    assert {backend.account(one.id).status for one in spoiler.sound} == {"succeeded"}
    stats = backend.stats("default")
    assert (stats.ready, stats.running, stats.blocked) == (0, 0, 0)
    assert server.client.hlen(BASE + "dead") == 0
