"""Real commands of a site whose jobs have a database of their own, with the shipped router."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_MADE = "The tables of django_jobs were not made in 'default'"
SETTINGS = """
from testproject.settings import *
HERE = {here!r}
DATABASES = {{
    alias: {{
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": f"{{HERE}}/{{alias}}.sqlite3",
        "OPTIONS": {{"transaction_mode": "IMMEDIATE"}},
    }}
    for alias in ("default", "jobs")
}}
DATABASE_ROUTERS = ["django_jobs.routers.JobsRouter"]
BACKENDS = {{
    "database": {{
        "BACKEND": "django_jobs.backends.database.DatabaseBackend",
        "OPTIONS": {{"DATABASE": "jobs"}},
    }},
}}
SYNC = {{"BACKEND": "django_jobs.backends.sync.SyncBackend"}}
DJANGO_JOBS = {jobs}
"""


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.configure("{'BACKENDS': BACKENDS}")

    def configure(self, jobs):
        text = SETTINGS.format(here=str(self.folder), jobs=jobs)
        (self.folder / "two_databases.py").write_text(text)

    def manage(self, *command):
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "two_databases",
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        asked = [sys.executable, "testproject/manage.py", *command]
        return subprocess.run(
            asked, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    def tables(self, alias):
        with closing(sqlite3.connect(self.folder / f"{alias}.sqlite3")) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {name for (name,) in found if name.startswith("django_jobs_")}


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_migrate_says_where_the_tables_belong_that_it_did_not_make(site):
    ran = site.manage("migrate")
    assert ran.returncode == 0, ran.stderr
    assert not site.tables("default")
    assert NOT_MADE in ran.stdout
    assert "run manage.py migrate django_jobs --database jobs" in ran.stdout
    assert NOT_MADE not in site.manage("migrate").stdout


def test_migrate_says_nothing_of_the_kind_where_the_tables_were_made(site):
    ran = site.manage("migrate", "django_jobs", "--database=jobs")
    assert ran.returncode == 0, ran.stderr
    assert "django_jobs_job" in site.tables("jobs")
    assert NOT_MADE not in ran.stdout


def test_commands_name_the_whole_command_that_makes_the_tables(site):
    site.manage("migrate", "-v0")
    ran = site.manage("jobs_work", "--until-empty")
    assert ran.returncode == 1
    assert "run manage.py migrate django_jobs --database jobs" in ran.stderr


WRONG_TIMEOUT = "{'BACKENDS': BACKENDS, 'TIMEOUT': -1}"
WRONG_DEFAULT = "{'BACKENDS': BACKENDS, 'DEFAULT_BACKEND': 'databse'}"


@pytest.mark.parametrize(
    ("command", "jobs", "named"),
    [
        (("check", "--database=jobs"), WRONG_TIMEOUT, "E002"),
        (("migrate",), WRONG_TIMEOUT, "E002"),
        (("migrate", "--database=jobs"), WRONG_DEFAULT, "E005"),
        (("jobs_status",), WRONG_DEFAULT, "E005"),
    ],
)
def test_a_wrong_setting_is_the_error_of_a_check_and_no_traceback(site, command, jobs, named):
    site.configure(jobs)
    ran = site.manage(*command)
    assert "Traceback" not in ran.stderr
    assert ran.returncode
    assert named in ran.stderr


def test_a_sync_alias_has_its_tables_where_jobs_live_elsewhere(site):
    site.configure("{'BACKENDS': {**BACKENDS, 'here': SYNC}}")
    ran = site.manage("migrate")
    assert ran.returncode == 0, ran.stderr
    assert "django_jobs_job" in site.tables("default")
    assert NOT_MADE not in ran.stdout
    checked = site.manage("check")
    assert checked.returncode == 0, checked.stderr
    assert "W014" not in checked.stderr
    site.manage("jobs_enqueue", "testproject.shop.jobs.doomed", "--backend=here")
    with closing(sqlite3.connect(site.folder / "default.sqlite3")) as connection:
        died = connection.execute("SELECT backend FROM django_jobs_failedjob").fetchall()
    assert died == [("here",)]


def test_tables_that_a_router_once_kept_out_are_missed_and_the_way_to_them_is_named(site):
    site.manage("migrate", "-v0")
    site.configure("{}")
    ran = site.manage("jobs_work", "--until-empty")
    assert ran.returncode == 1
    assert "manage.py migrate django_jobs zero --fake --database default" in ran.stderr
    for command in (("zero", "--fake"), ()):
        assert site.manage("migrate", "django_jobs", *command, "-v0").returncode == 0
    assert site.manage("jobs_work", "--until-empty").returncode == 0
