"""Every event has a sentence that can be said, and says no more than is known."""

import logging
from dataclasses import fields

import pytest

from django_jobs.telemetry import events, logs, sentences

JOB = {"job_id": "0190", "queue": "mail", "handler": "shop.send", "attempt": 3}
MADE_OF = {"int": 1, "float": 1.5, "str": "word", "BaseException": ValueError("no"), "bool": True}


def example(kind):
    told = {name: word for name, word in kind.__init__.__annotations__.items() if name != "return"}
    return kind(**{name: MADE_OF[word] for name, word in told.items()})


@pytest.mark.parametrize("kind", sentences.SENTENCES, ids=lambda kind: kind.__name__)
def test_every_sentence_finds_its_facts(kind):
    assert "%(" not in logs.in_words(example(kind))


@pytest.mark.parametrize("kind", sentences.SENTENCES, ids=lambda kind: kind.__name__)
def test_no_fact_has_the_name_of_something_that_every_record_has(kind):
    every = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "key"}
    assert not every & {field.name for field in fields(kind)}


def test_every_key_is_of_one_kind_of_events_only():
    keys = [key for key, _, _ in sentences.SENTENCES.values()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"error_type": "ValueError", "error_message": "no"}, "ValueError: no"),
        ({"error_message": "killed by SIGKILL"}, "killed by SIGKILL"),
        ({"error_type": "ValueError"}, "ValueError"),
    ],
)
def test_a_death_without_an_exception_leaves_no_gap(wrong, told):
    died = events.JobDied(**JOB, reason="crashed", **wrong)
    assert logs.in_words(died) == f"shop.send 0190 on mail is dead (crashed): {told}"


def test_a_record_carries_its_key_and_its_facts(caplog):
    with caplog.at_level(logging.INFO, "django_jobs"):
        logs.write(events.JobSucceeded(**JOB, trace_id="abc", seconds=0.5))
    (record,) = caplog.records
    assert (record.key, record.job_id, record.trace_id) == ("job.succeeded", "0190", "abc")
    assert record.getMessage() == "shop.send 0190 on mail succeeded in 0.500 s"


def test_a_sentence_without_facts_is_told_too(caplog):
    with caplog.at_level(logging.INFO, "django_jobs"):
        logs.write(events.SchedulerStarted())
    assert caplog.messages == ["the scheduler ticks"]


def test_an_error_of_a_store_is_told_without_the_password_it_names(caplog):
    error = OSError("no answer from redis://jobs:hunter2@cache:6379, password='hunter2'")
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        logs.write_now(events.StoreLost(backend="redis", error=error, trouble="no"))
    (record,) = caplog.records
    assert "no answer from redis://" in record.getMessage()
    assert "hunter2" not in record.getMessage() + str(vars(record)["error"])
