"""System checks of the aliases of TASKS: a set-up that triggers each, and one that does not."""

import pytest
from django.core import checks as django_checks

from django_jobs.tasks.compat import checks as djangos
from tests.unit.test_checks import ON_TASKS, ids

OURS = "django_jobs.tasks.JobsBackend"
DATABASE = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}
TWO_BACKENDS = {
    "BACKENDS": {
        "database": DATABASE,
        "memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"},
    },
    "QUEUES": {"away": {"BACKEND": "memory"}},
    "STRICT_QUEUES": False,
}


def messages_of(settings, **alias):
    settings.TASKS = {"default": {"BACKEND": OURS, **alias}}
    return list(djangos.check_tasks())


@pytest.mark.parametrize("check_id", sorted(ON_TASKS))
def test_a_set_up_triggers_its_check_and_no_other(check_id, settings):
    settings.DJANGO_JOBS = TWO_BACKENDS
    (message,) = messages_of(settings, **ON_TASKS[check_id])
    assert ids([message]) == [check_id]
    assert (message.level >= django_checks.ERROR) == check_id.startswith("E")
    assert message.msg.endswith(".")
    assert "TASKS['default']" in message.msg
    assert message.hint


def test_there_is_nothing_to_say_of_a_set_up_that_works(settings):
    options = {"OPTIONS": {"BACKEND": "database"}, "QUEUES": []}
    assert messages_of(settings) == messages_of(settings, **options) == []


def test_a_queue_that_lives_where_its_alias_leads(settings):
    settings.DJANGO_JOBS = TWO_BACKENDS
    to_memory = {"OPTIONS": {"BACKEND": "memory"}, "QUEUES": ["away"]}
    assert messages_of(settings, **to_memory) == []
    assert messages_of(settings, QUEUES=["default"]) == messages_of(settings, QUEUES=[]) == []


def test_the_home_of_a_queue_is_named_as_our_settings_name_it(settings):
    queues = {"tq--_mail": {"BACKEND": "memory"}}
    settings.DJANGO_JOBS = {**TWO_BACKENDS, "QUEUES": queues}
    (message,) = messages_of(settings, QUEUES=["Mail"])
    assert "has 'Mail', whose" in message.msg
    assert "DJANGO_JOBS['QUEUES']['tq--_mail']['BACKEND']" in message.msg


def test_queues_that_are_no_texts(settings):
    (message,) = messages_of(settings, QUEUES=["default", 5])
    assert ids([message]) == ["W012"]
    assert "has 5, to which no task can be enqueued: 5 is no queue name" in message.msg


def test_options_that_are_no_dict(settings):
    assert ids(messages_of(settings, OPTIONS=["database"])) == ["E017"]


def test_a_queue_that_our_settings_do_not_know(settings):
    settings.DJANGO_JOBS = {"QUEUES": {"mail": {}}}
    (message,) = messages_of(settings, QUEUES=["mail", "default"])
    assert "'default', to which no task can be enqueued" in message.msg
    settings.DJANGO_JOBS = {"QUEUES": {"mail": {}}, "STRICT_QUEUES": False}
    assert messages_of(settings, QUEUES=["mail", "default"]) == []


def test_wrong_settings_of_jobs_do_not_hide_these(settings):
    settings.DJANGO_JOBS = {"TIMEOUT": -1}
    assert ids(messages_of(settings, OPTIONS={"BACKEND": "databse"})) == ["E018"]


def test_manage_py_check_runs_them():
    assert djangos.check_tasks in django_checks.registry.registry.get_checks()
