"""Every record becomes one line of JSON that says all it carries."""

import json
import logging

import pytest

from django_jobs.telemetry import events, logs
from django_jobs.telemetry.json_lines import LONGEST_TEXT, JsonFormatter


class Unspeakable:
    def __str__(self):
        raise RuntimeError


def raise_it(text):
    raise ValueError(text)


@pytest.fixture
def line(caplog):
    def written(tell):
        with caplog.at_level(logging.INFO, "django_jobs"):
            tell()
        text = JsonFormatter().format(caplog.records[-1])
        assert "\n" not in text
        return json.loads(text)

    return written


def test_an_event_with_its_key_its_job_and_its_trace(line):
    about = {"job_id": "0190", "queue": "mail", "handler": "a.b", "trace_id": "ab" * 16}
    told = line(lambda: logs.write(events.JobSucceeded(**about, attempt=1, seconds=0.25)))
    assert told.items() >= {**about, "key": "job.succeeded", "seconds": 0.25, "attempt": 1}.items()
    assert (told["level"], told["logger"]) == ("INFO", "django_jobs")
    assert told["message"] == "a.b 0190 on mail succeeded in 0.250 s"
    assert told["at"].endswith("+00:00")


def test_lines_and_escapes_of_a_hostile_text_stay_inside(line):
    log = logging.getLogger("django_jobs.test")
    told = line(lambda: log.warning("a\nb \x1b[31m %s", '"}', extra={"odd": "\u2028\ud800"}))
    assert told["message"] == 'a\nb \x1b[31m "}'
    assert told["odd"] == "\u2028\ud800"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(float("inf"), "inf"), (1.5, 1.5), (None, None), (True, True), ([1], "[1]"),
     (Unspeakable(), "a Unspeakable")],
)  # fmt: skip
def test_facts_that_json_does_not_know(line, value, shown):
    log = logging.getLogger("django_jobs.test")
    assert line(lambda: log.warning("x", extra={"fact": value}))["fact"] == shown


def test_a_traceback_and_long_texts(line):
    log = logging.getLogger("django_jobs.test")

    def fail():
        try:
            raise_it("no" * LONGEST_TEXT)
        except ValueError:
            log.exception("it failed")

    told = line(fail)
    assert told["traceback"].startswith("Traceback")
    assert len(told["traceback"]) == LONGEST_TEXT + 1
