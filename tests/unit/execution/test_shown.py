"""What is kept of a run for people to read tells no secret."""

import pytest

from django_jobs.handlers.base import Cancel, Snooze
from django_jobs.redaction import HIDDEN
from tests.unit.execution.test_attempt import run


@pytest.mark.parametrize("ending", [Cancel, lambda told: Snooze(1, told)], ids=["cancel", "snooze"])
def test_neither_a_reason_nor_what_was_printed_tells_a_secret(ending):
    def handler():
        print("login with password=s3cret at amqp://me:s3cret@mq/")
        raise ending("token: s3cret at redis://:s3cret@cache/")

    outcome = run(handler)
    assert outcome.reason == f"token: {HIDDEN} at redis://{HIDDEN}@cache/"
    said = f"login with password={HIDDEN} at amqp://{HIDDEN}@mq/\n"
    assert getattr(outcome, "output", said) == said  # a snooze keeps none
