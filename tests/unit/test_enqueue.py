"""From a call to a sealed message in a backend: what is refused, and what is stored."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.test import override_settings

from django_jobs import aenqueue_many, define, enqueue_many, job
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND, SystemClock
from django_jobs.conf import get_settings
from django_jobs.exceptions import (
    DuplicateJob,
    EnqueueOutcomeUnknown,
    QueueRefused,
)
from django_jobs.wire.opening import Opener
from django_jobs.wire.signing import Signer

MEMORY = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}


class Unanswering(MemoryBackend):
    """Stores what it is given, and loses the connection before it can say so, once."""

    def enqueue(self, outgoing, **options):
        known = len(self.jobs)
        stored = super().enqueue(outgoing, **options)
        if known == 0:
            raise EnqueueOutcomeUnknown(outgoing, "lost") from ConnectionError("reset by peer")
        return stored


SITE = {
    "BACKENDS": {
        "memory": MEMORY,
        "other": MEMORY,
        "third": MEMORY,
        "unanswering": {"BACKEND": f"{__name__}.Unanswering"},
    },
    "DEFAULT_BACKEND": "memory",
    "SITE": "tests.enqueue",
}


@job
def send(user_id, note=""):
    return user_id


@job(queue="mail", priority=5, max_retries=2, name="Count", meta={"by": "tests"})
def count(*numbers):
    return sum(numbers)


@pytest.fixture(autouse=True)
def _site(settings):
    settings.DJANGO_JOBS = SITE


def stored(handle):
    return backends[handle.backend].jobs[handle.id]


def body_of(handle):
    return json.loads(stored(handle).body)


def changed(**settings):
    return override_settings(DJANGO_JOBS=SITE | settings)


def nothing_was_stored():
    return not any(backends[alias].jobs for alias in SITE["BACKENDS"])


# -- what is stored ----------------------------------------------------------------------------


def test_an_enqueued_call_is_in_the_backend_under_the_id_of_its_handle():
    handle = send.enqueue(1, note="Hi")
    assert UUID(handle.id).version == 7
    assert (handle.backend, handle.created) == ("memory", True)
    assert body_of(handle)["payload"] == {"args": [1], "kwargs": {"note": "Hi"}}


def test_the_body_says_where_it_belongs_and_what_was_asked():
    body = body_of(count.enqueue(1, 2))
    assert body == {
        "v": 1,
        "identifier": body["identifier"],
        "payload": {"args": [1, 2], "kwargs": {}},
        "enqueuedAt": body["enqueuedAt"],
        "priority": 5,
        "maxRetries": 2,
        "name": "Count",
        "meta": {"by": "tests"},
        "job": f"{__name__}.count",
        "queue": "mail",
        "backend": "memory",
        "site": "tests.enqueue",
    }


def test_what_is_stored_opens_with_the_keys_of_the_site():
    handle = count.enqueue(1)
    opener = Opener("memory", "tests.enqueue", 1000, Signer(get_settings().signing_keys))
    assert opener.open(stored(handle).message(), "mail").payload == {"args": [1], "kwargs": {}}


def test_every_option_arrives_in_the_body():
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    body = body_of(
        send.using(
            queue="slow", priority=-5, max_retries=7, retry=[1, 2], timeout=None, run_at=moment,
            expires=moment + timedelta(hours=1), unique_key="u", result_ttl=60, max_crashes=1,
            trace_id="t", name="N", meta={"a": [1]},
        ).enqueue(1)
    )  # fmt: skip
    at = 1_893_456_000 * SECOND
    assert {name: body[name] for name in body.keys() - {"identifier", "enqueuedAt"}} == {
        "v": 1, "payload": {"args": [1], "kwargs": {}}, "job": f"{__name__}.send",
        "queue": "slow", "backend": "memory", "site": "tests.enqueue", "priority": -5,
        "maxRetries": 7, "retry": [1, 2], "timeout": 0, "schedule": at,
        "expiresAt": at + 3600 * SECOND,
        "uniqueKey": "u", "resultTtl": 60, "maxCrashes": 1, "traceId": "t",
        "name": "N", "meta": {"a": [1]},
    }  # fmt: skip


def test_a_delay_is_counted_by_the_store_and_not_by_us():
    body = body_of(send.using(delay=timedelta(minutes=1)).enqueue(1))
    assert body["delay"] == 60
    assert "schedule" not in body
    assert "delay" not in body_of(send.using(delay=0).enqueue(1))


def test_the_options_of_one_enqueue_do_not_leak_into_another():
    send.enqueue(1)
    send.using(queue="slow", priority=9, meta={"a": 1}).enqueue(1)
    body = body_of(send.enqueue(1))
    assert (body["queue"], body["priority"]) == ("default", 0)
    assert "meta" not in body


def test_a_job_can_be_defined_by_the_key_of_its_handler():
    defined = define(send.key, {"args": [1], "kwargs": {}}, queue="slow")
    assert (defined.handler, defined.options.queue) == (send.key, "slow")
    assert body_of(defined.enqueue())["payload"] == {"args": [1], "kwargs": {}}
    assert body_of(defined.using(queue="mail").enqueue())["queue"] == "mail"
    assert body_of(asyncio.run(defined.aenqueue()))["queue"] == "slow"


def test_a_queue_can_name_its_backend_and_an_option_overrules_it():
    with changed(QUEUES={"default": {"BACKEND": "other"}}):
        assert send.enqueue(1).backend == "other"
        assert send.using(backend="third").enqueue(1).backend == "third"


# -- prepared jobs -----------------------------------------------------------------------------


def test_preparing_fixes_the_id_and_stores_nothing():
    prepared = send.prepare(1)
    assert nothing_was_stored()
    assert prepared.enqueue().id == prepared.id


def test_enqueueing_the_same_prepared_job_again_changes_nothing():
    prepared = send.prepare(1)
    first, second = prepared.enqueue(), prepared.enqueue()
    assert (first.created, second.created) == (True, False)
    assert first.id == second.id
    assert len(backends["memory"].jobs) == 1


def test_each_enqueue_of_a_call_is_a_job_of_its_own():
    assert send.enqueue(1).id != send.enqueue(1).id


def test_a_unique_key_leads_to_the_job_that_holds_it():
    first = send.using(unique_key="u").enqueue(1)
    again = send.using(unique_key="u").enqueue(2)
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(DuplicateJob) as refused:
        send.using(unique_key="u", on_conflict="raise").enqueue(2)
    assert refused.value.existing_id == first.id
    replaced = send.using(unique_key="u", on_conflict="replace").enqueue(2)
    assert replaced.created
    assert list(backends["memory"].jobs) == [replaced.id]


def test_many_jobs_come_back_in_the_order_they_were_given():
    aliases = ["memory", "other", "third", "other"] * 5
    prepared = [send.using(backend=alias).prepare(n) for n, alias in enumerate(aliases)]
    handles = enqueue_many(one for one in prepared)
    assert [handle.id for handle in handles] == [one.id for one in prepared]
    assert [handle.backend for handle in handles] == aliases
    assert [body_of(handle)["payload"]["args"] for handle in handles] == [[n] for n in range(20)]


def test_many_jobs_with_different_answers_to_a_conflict_keep_their_own():
    held = send.using(unique_key="u").enqueue(0)
    returned, created, replaced = enqueue_many(
        [
            send.using(unique_key="u").prepare(1),
            send.prepare(2),
            send.using(unique_key="u", on_conflict="replace").prepare(3),
        ]
    )
    assert (returned.id, returned.created) == (held.id, False)
    assert created.created
    assert replaced.created
    assert held.id not in backends["memory"].jobs


def test_no_jobs_at_all_are_no_handles():
    assert enqueue_many([]) == []
    assert asyncio.run(aenqueue_many(iter([]))) == []


def test_coroutines_enqueue_with_the_same_words():
    async def all_of_them():
        prepared = send.prepare(2)
        return [
            await send.aenqueue(1),
            await prepared.aenqueue(),
            *await aenqueue_many([send.prepare(3), send.prepare(4)]),
        ]

    handles = asyncio.run(all_of_them())
    assert [body_of(handle)["payload"]["args"] for handle in handles] == [[1], [2], [3], [4]]


# -- what is remembered between two enqueues, and what is not ------------------------------------


def test_expires_as_a_length_of_time_counts_from_each_enqueue():
    short_lived = send.using(expires=60)
    first, second = body_of(short_lived.enqueue(1)), body_of(short_lived.enqueue(1))
    assert first["expiresAt"] < second["expiresAt"]
    for body in (first, second):
        assert 59 * SECOND < body["expiresAt"] - body["enqueuedAt"] <= 60 * SECOND


def test_each_enqueue_tells_its_own_moment():
    before = SystemClock().now()
    told = [body_of(send.enqueue(1))["enqueuedAt"] for _ in range(3)]
    assert before <= told[0] < told[1] < told[2] <= SystemClock().now()


def test_a_change_of_settings_is_seen_by_the_next_enqueue():
    assert body_of(send.enqueue(1))["maxRetries"] == 0
    with changed(MAX_RETRIES=4, SITE="elsewhere", DEFAULT_BACKEND="other"):
        handle = send.enqueue(1)
        assert handle.backend == "other"
        assert (body_of(handle)["maxRetries"], body_of(handle)["site"]) == (4, "elsewhere")
        with changed(QUEUES={"mail": {}}), pytest.raises(QueueRefused):
            send.enqueue(1)
    handle = send.enqueue(1)
    assert (handle.backend, body_of(handle)["site"]) == ("memory", "tests.enqueue")


def test_a_change_of_keys_is_seen_by_the_next_enqueue():
    before = stored(send.enqueue(1)).key_id
    with changed(SIGNING_KEYS=[("2026", "a key that is longer than its id")]):
        assert stored(send.enqueue(1)).key_id == "2026"
    with override_settings(SECRET_KEY="another secret key for this test"):
        assert stored(send.enqueue(1)).key_id not in {before, "2026"}
    assert stored(send.enqueue(1)).key_id == before


# -- when the store does not answer ----------------------------------------------------------------


def test_an_unknown_outcome_carries_the_jobs_to_enqueue_again():
    prepared = [send.using(backend="unanswering").prepare(n) for n in range(5)]
    with pytest.raises(EnqueueOutcomeUnknown) as unknown:
        enqueue_many(prepared)
    assert list(unknown.value.prepared) == prepared
    assert "reset by peer" in str(unknown.value)
    assert prepared[0].id in str(unknown.value)
    assert "and 2 more" in str(unknown.value)
    handles = enqueue_many(unknown.value.prepared)
    assert [handle.id for handle in handles] == [one.id for one in prepared]
    assert not any(handle.created for handle in handles)


def test_an_unknown_outcome_of_one_job_carries_that_job():
    prepared = send.using(backend="unanswering").prepare(1)
    with pytest.raises(EnqueueOutcomeUnknown) as unknown:
        prepared.enqueue()
    assert list(unknown.value.prepared) == [prepared]
    assert isinstance(unknown.value.__cause__, ConnectionError)
    assert unknown.value.prepared[0].enqueue().created is False


def test_defining_a_job_by_its_key_starts_from_the_options_of_its_decorator():
    @job(key="tests.enqueue.optioned", queue="mail", max_retries=4)
    def optioned():
        """Nothing."""

    assert define("tests.enqueue.optioned").options == optioned.options
    changed = define("tests.enqueue.optioned", max_retries=1).options
    assert (changed.queue, changed.max_retries) == ("mail", 1)
