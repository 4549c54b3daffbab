"""What an enqueue refuses, with an error that names it, and without storing anything."""

from datetime import UTC, datetime

import pytest
from django.test import override_settings

from django_jobs import define, enqueue_many, job
from django_jobs.backends.base import Capabilities
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.registry import backends
from django_jobs.exceptions import (
    DuplicateJob,
    HandlerRefused,
    InvalidBackend,
    InvalidJob,
    InvalidOption,
    InvalidPayload,
    NotSupported,
    QueueRefused,
    UnknownHandler,
)


class NothingSpecial(MemoryBackend):
    """A backend that can do nothing beyond the contract."""

    capabilities = Capabilities()


SITE = {
    "BACKENDS": {
        "memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"},
        "plain": {"BACKEND": f"{__name__}.NothingSpecial"},
    },
    "DEFAULT_BACKEND": "memory",
}


@job
def send(user_id, note=""):
    return user_id


@job
def count(*numbers):
    return sum(numbers)


@pytest.fixture(autouse=True)
def _site(settings):
    settings.DJANGO_JOBS = SITE


def changed(**settings):
    return override_settings(DJANGO_JOBS=SITE | settings)


def nothing_was_stored():
    return not any(backends[alias].jobs for alias in SITE["BACKENDS"])


def test_a_payload_that_is_too_large_is_refused_with_its_size_and_the_limit():
    with changed(MAX_PAYLOAD_BYTES=100), pytest.raises(InvalidPayload) as refused:
        send.enqueue("x" * 76)
    assert str(refused.value) == (
        f"{send.key}: the payload has 101 bytes as JSON, MAX_PAYLOAD_BYTES allows 100; "
        "store the data and pass a key to it"
    )
    with changed(MAX_PAYLOAD_BYTES=100):
        assert send.enqueue("x" * 75).created


def test_the_limit_is_256_kilobytes_unless_said_otherwise():
    assert send.enqueue("x" * (262_144 - 25)).created
    with pytest.raises(InvalidPayload, match=r"has 262,145 bytes .* allows 262,144"):
        send.enqueue("x" * (262_144 - 24))


def test_a_letter_counts_as_many_bytes_as_it_has_in_utf_8():
    with changed(MAX_PAYLOAD_BYTES=100):
        assert send.enqueue("é" * 37).created
        with pytest.raises(InvalidPayload, match="101 bytes as JSON, MAX_PAYLOAD_BYTES allows 100"):
            send.enqueue("é" * 38)


def test_an_argument_that_is_not_json_is_refused_with_its_place():
    with pytest.raises(InvalidPayload, match=r"send: payload\.args\[0\] is of type datetime"):
        send.enqueue(datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidPayload, match=r"send: payload\.kwargs\.note is nan"):
        send.enqueue(1, note=float("nan"))
    with pytest.raises(InvalidPayload, match="send: payload holds a NUL character"):
        send.enqueue("\x00")


def test_meta_that_is_too_large_is_refused():
    send.using(meta={"a": "x" * (16 * 1024 - 8)}).enqueue(1)
    with pytest.raises(InvalidPayload, match=r"meta has 16,385 bytes as JSON, 16,384 are allowed"):
        send.using(meta={"a": "x" * (16 * 1024 - 7)}).enqueue(1)


def test_a_handler_that_is_not_registered_is_refused_with_the_nearest_one():
    with pytest.raises(UnknownHandler, match=f"did you mean '{send.key}'"):
        define(f"{send.key}d", {"args": [1], "kwargs": {}}).enqueue()


def test_a_payload_that_does_not_fit_the_handler_is_refused():
    with pytest.raises(InvalidPayload, match="takes a payload of the form"):
        define(send.key).enqueue()
    with pytest.raises(InvalidPayload, match="missing a required argument"):
        define(send.key, {"args": [], "kwargs": {}}).enqueue()


def test_a_queue_that_is_not_listed_is_refused_with_the_nearest_one():
    with changed(QUEUES={"mail": {}, "default": {}}):
        with pytest.raises(QueueRefused, match=r"'mial' is not in .*did you mean 'mail'"):
            send.using(queue="mial").enqueue(1)
        send.using(queue="mail").enqueue(1)
    with changed(QUEUES={"mail": {}}, STRICT_QUEUES=False):
        send.using(queue="mial").enqueue(1)


def test_a_handler_that_the_queue_does_not_name_is_refused():
    with changed(QUEUES={"default": {"HANDLERS": [count.key]}, "none": {"HANDLERS": []}}):
        with pytest.raises(HandlerRefused, match="'default' does not allow the handler"):
            send.enqueue(1)
        with pytest.raises(HandlerRefused, match="none at all"):
            count.using(queue="none").enqueue(1)
        assert count.using(queue="default").enqueue(1).created


@pytest.mark.parametrize(
    ("capability", "options"),
    [
        ("delay", {"delay": 5}),
        ("delay", {"run_at": datetime(2030, 1, 1, tzinfo=UTC)}),
        ("priority", {"priority": 1}),
        ("unique", {"unique_key": "u"}),
    ],
    ids=["delay", "run_at", "priority", "unique_key"],
)
def test_a_capability_that_the_backend_lacks_is_refused(capability, options):
    with pytest.raises(NotSupported) as refused:
        send.using(backend="plain", **options).enqueue(1)
    assert str(refused.value) == (
        f"the backend 'plain' (NothingSpecial) has no {capability}, "
        "which the options of this job ask for"
    )
    assert nothing_was_stored()
    assert send.using(backend="plain").enqueue(1).created


def test_a_backend_that_is_not_there_is_refused_with_the_nearest_one():
    with pytest.raises(InvalidBackend, match="no backend 'memori'; did you mean 'memory'"):
        send.using(backend="memori").enqueue(1)


def test_a_policy_that_only_a_message_would_name_is_refused():
    with pytest.raises(InvalidOption, match=r"'shop\.retry\.Own' is a policy of your own"):
        send.using(retry="shop.retry.Own").enqueue(1)


def test_of_many_jobs_none_is_stored_when_one_is_refused():
    with pytest.raises(InvalidPayload):
        enqueue_many([send.prepare(1), send.prepare({1, 2}), count.prepare(1)])
    assert nothing_was_stored()


# -- times -----------------------------------------------------------------------------------------

PAST = datetime(2020, 1, 1, tzinfo=UTC)
FUTURE = datetime(2090, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"expires": 0}, "expires 0 is over already"),
        ({"expires": PAST}, r"expires 2020-01-01T00:00:00\+00:00 is over already"),
        ({"expires": 60, "delay": 60}, r"over before the job may run \(delay 60\)"),
        ({"expires": 60, "delay": 90}, r"expires 60 is over before the job may run \(delay 90\)"),
        ({"expires": 60, "run_at": FUTURE}, r"may run \(run_at 2090-01-01T00:00:00\+00:00\)"),
        ({"expires": FUTURE, "run_at": FUTURE}, "over before the job may run"),
    ],
)
def test_a_job_whose_time_is_over_before_it_may_run_is_refused(options, says):
    with pytest.raises(InvalidOption, match=says):
        send.using(**options).enqueue(1)
    assert nothing_was_stored()


@pytest.mark.parametrize(
    "options",
    [{"expires": 60, "delay": 59}, {"expires": 1e-6}, {"run_at": PAST, "expires": 5}],
)
def test_a_job_that_has_time_left_is_not(options):
    assert send.using(**options).enqueue(1).created


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["raise", "replace"])
def test_on_conflict_without_a_unique_key_is_refused(answer):
    with pytest.raises(InvalidOption, match="give unique_key too, or leave it out"):
        send.using(on_conflict=answer)
    with pytest.raises(InvalidOption, match="give unique_key too"):
        define(send.key, on_conflict=answer)


def test_a_decorator_may_say_on_conflict_for_keys_that_come_with_each_enqueue():
    send_once = job(key="refused.once", on_conflict="raise")(lambda: None)
    first = send_once.using(unique_key="k").enqueue()
    with pytest.raises(DuplicateJob, match=first.id):
        send_once.using(unique_key="k").enqueue()


# -- many ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([send], "a JobFunction, is none yet; call its prepare"),
        ([send.using(delay=5)], "a JobFunction, is none yet; call its prepare"),
        ([define("refused.once")], "a DefinedJob, is none yet; call its prepare"),
        ([send.prepare(1), 5], "5, a int, is none"),
        (send.prepare(1), "alone"),
        (send, "alone"),
    ],
    ids=["function", "using", "defined", "number", "one alone", "function alone"],
)
def test_enqueue_many_says_what_it_takes(given, says):
    with pytest.raises(InvalidJob, match=says) as refused:
        enqueue_many(given)
    assert "enqueue_many(send.prepare(n) for n in numbers)" in str(refused.value)
    assert nothing_was_stored()
