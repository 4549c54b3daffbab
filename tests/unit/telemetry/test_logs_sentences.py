"""Every event has a sentence that can be said, and says no more than is known."""

import logging
from inspect import get_annotations

import pytest

from django_jobs.telemetry import events, logs

JOB = {"job_id": "0190", "queue": "mail", "handler": "shop.send", "attempt": 3}
SECRET = "hunter" + "2"  # in no line of code, for these are shown
MADE_OF = {"int": 1, "float": 1.5, "str": "word", "BaseException": ValueError("no"), "bool": True}
FORGED = "x\nCRITICAL django_jobs all keys were revoked\x1b[2J\t\u202e\u2066\ufeff\ud800"
HOSTILE = {**MADE_OF, "str": FORGED, "BaseException": ValueError(FORGED)}


def example(kind, made_of=MADE_OF):
    types = {}
    for each in kind.__mro__:
        types |= get_annotations(each)
    return kind(**{name: made_of[types[name]] for name in kind.names})


def refuse(text):
    raise ValueError(text)


def raised(text):
    try:
        refuse(text)
    except ValueError as error:
        return error


@pytest.mark.parametrize("kind", logs.SENTENCES, ids=lambda kind: kind.__name__)
def test_every_sentence_finds_its_facts(kind):
    assert "%(" not in logs.in_words(example(kind))


@pytest.mark.parametrize("kind", logs.SENTENCES, ids=lambda kind: kind.__name__)
def test_no_fact_has_the_name_of_something_that_every_record_has(kind):
    every = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "key"}
    assert not every & set(kind.names)


def test_every_key_is_of_one_kind_of_events_only():
    keys = [key for key, _, _ in logs.SENTENCES.values()]
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
        logs.write_now(events.StoreLost(backend="redis", error=error, problem="no"))
    (record,) = caplog.records
    assert "no answer from redis://" in record.getMessage()
    assert "hunter2" not in record.getMessage() + str(vars(record)["error"])


@pytest.mark.parametrize("kind", logs.SENTENCES, ids=lambda kind: kind.__name__)
def test_no_name_and_no_error_begins_a_line_or_reaches_a_terminal_raw(kind, caplog):
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        logs.write_now(example(kind, HOSTILE))
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    carried = [getattr(record, name) for name in kind.names]
    assert all(text.isprintable() for text in carried if isinstance(text, str))


WITH_AN_ERROR = [kind for kind, told in logs.SENTENCES.items()
                 if told[0] in logs.WITH_TRACEBACK]  # fmt: skip


@pytest.mark.parametrize("kind", WITH_AN_ERROR, ids=lambda kind: kind.__name__)
def test_a_traceback_shows_where_but_no_secret_and_no_line_of_others(kind, caplog):
    told = example(kind, {**MADE_OF, "BaseException": raised(f"password={SECRET}{FORGED}")})
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        logs.write_now(told)
    (record,) = caplog.records
    shown = logging.Formatter().format(record)
    assert "in refuse" in shown
    assert SECRET not in shown
    assert not [line for line in shown.splitlines() if line.startswith("CRITICAL")]


@pytest.mark.parametrize("fact", ["why", "what", "problem"])
def test_what_a_store_said_is_told_without_the_password_it_names(fact, caplog):
    kind = next(kind for kind in logs.SENTENCES if fact in kind.names)
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        logs.write_now(example(kind, {**MADE_OF, "str": "redis://jobs:hunter2@cache is away"}))
    assert "redis://" in caplog.messages[0]
    assert "hunter2" not in getattr(caplog.records[0], fact)


def test_a_subscriber_that_raises_is_told_without_what_it_says_of_secrets(caplog):
    def broken(_event):
        raise raised("token=hunter2\nCRITICAL forged")

    events.subscribe(broken)
    try:
        events.emit(events.SchedulerStarted())
    finally:
        events.unsubscribe(broken)
    shown = logging.Formatter().format(caplog.records[0])
    assert "in broken" in shown
    assert shown.splitlines()[-1] == "ValueError: token=••••\\nCRITICAL forged"
