"""Where the tables of django_jobs are read, written and migrated."""

from io import StringIO
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import router

from django_jobs.conf import DATABASE_BACKEND, BackendConfig
from django_jobs.routers import (
    JobsRouter,
    database_of,
    shipped_parent,
    tell_of_tables_not_made,
)

DATABASE = {"BACKEND": DATABASE_BACKEND}
SYNC = {"BACKEND": "django_jobs.backends.sync.SyncBackend"}
ELSEWHERE = {"BACKEND": "django_jobs.backends.redis.RedisBackend"}


def on(alias):
    return {**DATABASE, "OPTIONS": {"DATABASE": alias}}


@pytest.fixture
def job_model():
    return apps.get_model("django_jobs", "Job")


@pytest.fixture
def jobs_on(settings):
    def configure(default, **backends):
        settings.DJANGO_JOBS = {"BACKENDS": backends, "DEFAULT_BACKEND": default}
        return JobsRouter()

    return configure


def test_jobs_are_routed_to_the_database_of_the_default_backend(jobs_on, job_model):
    route = jobs_on("second", first=DATABASE, second=on("other"))
    assert route.db_for_read(job_model) == "other"
    assert route.db_for_write(job_model) == "other"


def test_a_broker_as_default_leaves_the_first_database_backend_in_charge(jobs_on, job_model):
    route = jobs_on("broker", broker=ELSEWHERE, store=on("other"))
    assert route.db_for_read(job_model) == "other"


def test_a_sync_alias_takes_charge_only_where_no_database_backend_can(jobs_on, job_model):
    route = jobs_on("broker", here=SYNC, broker=ELSEWHERE, store=on("other"))
    assert route.db_for_write(job_model) == "other"
    assert route.allow_migrate("default", "django_jobs") is True
    here = {**SYNC, "OPTIONS": {"DATABASE": "other"}}
    assert jobs_on("broker", broker=ELSEWHERE, here=here).db_for_write(job_model) == "other"
    assert jobs_on("here", store=on("other"), here=SYNC).db_for_write(job_model) == "default"


def test_without_a_database_backend_dead_letters_are_in_the_default_database(jobs_on, job_model):
    route = jobs_on("broker", broker=ELSEWHERE)
    assert route.db_for_write(job_model) == "default"
    assert route.allow_migrate("default", "django_jobs") is True
    assert route.allow_migrate("other", "django_jobs") is False


def test_a_row_of_a_second_job_database_stays_there(jobs_on, job_model):
    route = jobs_on("first", first=DATABASE, second=on("other"))
    row = SimpleNamespace(_state=SimpleNamespace(db="other"))
    assert route.db_for_write(job_model, instance=row) == "other"
    stray = SimpleNamespace(_state=SimpleNamespace(db="elsewhere"))
    assert route.db_for_write(job_model, instance=stray) == "default"
    assert route.db_for_write(job_model, instance=None) == "default"


def test_tables_are_made_only_where_a_backend_names_the_alias(jobs_on):
    route = jobs_on("only", only=on("other"))
    assert route.allow_migrate("other", "django_jobs") is True
    assert route.allow_migrate("default", "django_jobs") is False


def test_tables_are_made_in_every_job_database(jobs_on):
    route = jobs_on("first", first=DATABASE, second=on("other"))
    assert route.allow_migrate("default", "django_jobs") is True
    assert route.allow_migrate("other", "django_jobs") is True


def test_a_sync_alias_has_its_tables_too(jobs_on, job_model):
    route = jobs_on("first", first=on("other"), here=SYNC)
    assert route.allow_migrate("default", "django_jobs") is True
    assert route.allow_migrate("other", "django_jobs") is True
    assert route.db_for_read(job_model) == "other"


def test_wrong_settings_are_left_to_the_checks(settings, job_model):
    settings.DJANGO_JOBS = {"BACKENDS": {"jobs": on("other")}, "DEFAULT_BACKEND": "jbos"}
    route = JobsRouter()
    assert route.db_for_write(job_model) == "other"
    assert route.allow_migrate("other", "django_jobs") is True
    settings.DJANGO_JOBS = ["no dict"]
    assert route.allow_migrate("default", "django_jobs") is True


class OneMigration:
    app_label = "django_jobs"


@pytest.fixture
def told(jobs_on, settings):
    """What is said after ``migrate`` in an alias."""
    jobs_on("only", only=on("other"))
    settings.DATABASE_ROUTERS = ["django_jobs.routers.JobsRouter"]

    def tell(using, *plan, **options):
        out = StringIO()
        tell_of_tables_not_made(using=using, plan=plan, stdout=out, **options)
        return out.getvalue()

    return tell


def test_a_migration_that_made_nothing_is_told_with_the_command_that_does(told):
    said = told("default", (OneMigration, False))
    assert "were not made in 'default'" in said
    assert "run manage.py migrate django_jobs --database other" in said


def test_nothing_is_told_where_tables_were_made_or_nothing_was_asked_for(told):
    assert told("other", (OneMigration, False)) == ""
    assert told("default") == ""
    assert told("default", (OneMigration, True)) == ""
    assert told("default", (SimpleNamespace(app_label="auth"), False)) == ""
    assert told("default", (OneMigration, False), verbosity=0) == ""


def test_other_apps_are_nobodys_business_here(jobs_on):
    route = jobs_on("only", only=on("other"))
    assert route.db_for_read(User) is None
    assert route.db_for_write(User) is None
    assert route.allow_migrate("default", "auth") is None


def test_django_asks_the_router(settings, jobs_on, job_model):
    jobs_on("only", only=on("other"))
    settings.DATABASE_ROUTERS = ["django_jobs.routers.JobsRouter"]
    assert router.db_for_write(job_model) == "other"
    assert router.db_for_write(User) == "default"
    assert not router.allow_migrate_model("default", job_model)


def test_a_changed_setting_changes_the_route(jobs_on, job_model):
    assert jobs_on("a", a=on("other")).db_for_read(job_model) == "other"
    assert jobs_on("a", a=DATABASE).db_for_read(job_model) == "default"


@pytest.mark.parametrize(
    ("path", "parent"),
    [
        (DATABASE_BACKEND, "database"),
        ("django_jobs.backends.redis.RedisBackend", "redis"),
        ("django_jobs.backends.sync.SyncBackend", "sync"),
        ("tests.unit.backends_of_tests.OwnDatabase", "database"),
        ("tests.unit.backends_of_tests.OwnBroker", None),
        ("tests.unit.no_such_module.Backend", None),
        ("django_jobs.conf.DATABASE_BACKEND", None),
    ],
)
def test_a_class_is_known_by_what_it_descends_from(path, parent):
    assert shipped_parent(path) == parent
    assert (database_of(BackendConfig("x", path)) == "default") == (parent in {"database", "sync"})
