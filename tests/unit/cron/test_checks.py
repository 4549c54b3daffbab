"""The system checks of schedules: a set-up that triggers each, and one that does not."""

import pytest

from django_jobs import checks

A_JOB = "testproject.shop.jobs.doomed"
RIGHT = {"CRON": "@daily", "HANDLER": A_JOB}

triggered = {
    "E040": {"SCHEDULE": {"x": {**RIGHT, "HANDLER": "shop.nobody.knows"}}},
    "E041": {"SCHEDULE": {"x": {**RIGHT, "CRON": "0 25 * * *"}}},
    "E042": {"SCHEDULE": {"x": {**RIGHT, "TIMEZONE": "Mars/Olympus"}}},
    "E043": {"SCHEDULE": {"x": {**RIGHT, "DEPENDS_ON": "y"}}},
    "E044": {"SCHEDULE": {"x": {**RIGHT, "WHEN": "tests.unit.backends_of_tests.nothing"}}},
    "W040": {"SCHEDULE": {"x": {**RIGHT, "CRON": "59/15 * * * *"}}},
    "W041": {"SCHEDULE": {"x": {**RIGHT, "ENVIRONMENTS": ["live"]}}},
    "W042": {"SCHEDULE_HANDLERS": ["shop.nobody.knows"]},
}


def of_schedules(settings, jobs):
    settings.DJANGO_JOBS = jobs
    return [message for message in checks.check_jobs() if message.id[-3:-1] == "04"]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("JOBS_ENVIRONMENT", raising=False)


@pytest.mark.parametrize("check_id", sorted(triggered))
def test_a_set_up_triggers_its_check_and_no_other(check_id, settings):
    (message,) = of_schedules(settings, triggered[check_id])
    assert message.id == f"django_jobs.{check_id}"
    assert message.msg.endswith(".")
    assert message.hint


def test_there_is_nothing_to_say_of_right_ones(settings):
    schedules = {"x": {**RIGHT, "DEPENDS_ON": "y", "ENVIRONMENTS": "live"}, "y": RIGHT}
    found = of_schedules(
        settings, {"SCHEDULE": schedules, "SCHEDULE_HANDLERS": [A_JOB], "ENVIRONMENT": "live"}
    )
    assert found == []


@pytest.mark.parametrize("expression", ["0 25 * * *", "* * * *", "every day", "0 0 * * mon,fri#2"])
def test_a_wrong_expression_is_quoted(expression, settings):
    (message,) = of_schedules(settings, {"SCHEDULE": {"x": {**RIGHT, "CRON": expression}}})
    assert repr(expression) in message.msg


@pytest.mark.parametrize("queue", [None, "default"])
def test_a_built_in_handler_has_to_be_allowed_where_its_job_goes(queue, settings):
    entry = {"CRON": "@daily", "HANDLER": "command", "PAYLOAD": ["clearsessions"], "QUEUE": queue}
    jobs = {"SCHEDULE": {"x": entry}, "ALLOWED_COMMANDS": ["clearsessions"]}
    (message,) = of_schedules(settings, jobs)
    assert message.id == "django_jobs.E044"
    allowed = {"QUEUES": {queue or "inline": {"HANDLERS": ["command"]}}}
    assert of_schedules(settings, {**jobs, **allowed}) == []


def test_a_job_that_may_expire_before_its_jitter_is_over_is_noticed(settings):
    entry = {**RIGHT, "EXPIRES": 30, "JITTER": 60}
    (message,) = of_schedules(settings, {"SCHEDULE": {"x": entry}})
    assert message.id == "django_jobs.E044"
    assert "'x', with a jitter of 60 s: expires 30 is over before the job may run" in message.msg
    assert of_schedules(settings, {"SCHEDULE": {"x": {**entry, "JITTER": 29}}}) == []


def test_what_is_wrong_in_the_settings_is_told_once(settings):
    messages = of_schedules(settings, {"SCHEDULE": {"x": RIGHT}, "TIMEOUT": -1})
    assert messages == []
