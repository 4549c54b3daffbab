"""Commands on a database that ``migrate`` has not reached yet, and on one that is ahead."""

import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext

from django_jobs.exceptions import TablesMissing
from django_jobs.management.schema import not_applied, require_tables
from django_jobs.models import Job
from testproject.shop.jobs import doomed
from tests.conftest import RUN_ON
from tests.integration.commands.conftest import ROOT
from tests.integration.missing import execute, without_table

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SECONDS = 30.0
TOLD = (
    "the database 'default' lacks tables or columns of django_jobs (missing: 0001_initial): "
    "run manage.py migrate --database default"
)


@pytest.fixture
def empty(site_environment, tmp_path):
    """The environment of a site whose database has no table."""
    if RUN_ON == "sqlite":
        yield {**site_environment, "DJANGO_JOBS_SQLITE_PATH": str(tmp_path / "empty.sqlite3")}
        return
    name = f"{connection.settings_dict['NAME']}_empty"
    both = (name, f"{name}_other")  # on MariaDB, Django 6.1 checks models with a connection to each
    for database in both:
        execute(f"DROP DATABASE IF EXISTS {database}")
        execute(f"CREATE DATABASE {database}")
    yield {**site_environment, f"DJANGO_JOBS_{RUN_ON.upper()}_NAME": name}
    for database in both:
        execute(f"DROP DATABASE {database}")


@pytest.fixture
def start(empty):
    """Starts commands there; none is left at the end."""
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "testproject/manage.py"), *arguments],
            env=empty,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def ended(process):
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


@pytest.mark.parametrize(
    "command",
    [
        "jobs_work --processes 0",
        "jobs_work --processes 2",
        "jobs_work --until-empty --wait-for-migrations 0.1",
        "jobs_cron",
        "jobs_cron --loop",
        "jobs_cron --list",
        "jobs_status",
        "jobs_list",
        "jobs_dlq list",
        "jobs_reap",
        "jobs_queue pause default",
        "jobs_enqueue testproject.shop.jobs.doomed",
        "jobs_explain 00000000-0000-7000-8000-000000000000",
        "jobs_purge --state all --older-than 7d --dry-run",
    ],
)
def test_without_tables_a_command_ends_with_one_line_that_says_what_to_run(start, command):
    code, out, err = ended(start(*command.split()))
    assert (code, err) == (1, f"CommandError: {TOLD}\n")
    assert out.count("\n") == ("wait" in command)


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_that_is_to_wait_begins_when_the_tables_are_there(start, processes):
    worker = start("jobs_work", "--processes", processes, "--until-empty", "--wait-for-migrations")
    assert worker.stdout.readline() == f"not serving database yet, and waiting: {TOLD}\n"
    assert ended(start("migrate"))[0] == 0
    code, out, err = ended(worker)
    assert (code, err) == (0, "")
    assert out == "serving every queue of the backend database\n0 jobs processed\n"


def test_a_worker_that_waits_for_tables_ends_with_a_signal(start):
    worker = start("jobs_work", "--wait-for-migrations")
    assert "waiting" in worker.stdout.readline()
    worker.send_signal(signal.SIGTERM)
    code, out, err = ended(worker)
    assert (code, out, err) == (0, "0 jobs processed\n", "")


# -- what counts as missing -------------------------------------------------------------------


def migrations(folder, monkeypatch, settings, **named):
    """Let the migrations of django_jobs be these: their names, and which each replaces."""
    package = folder / f"migrations_{time.monotonic_ns()}"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, replaces in named.items():  # no name begins with a digit
        (package / f"m{name}.py").write_text(
            "from django.db import migrations\n\n\nclass Migration(migrations.Migration):\n"
            f"    replaces = {[('django_jobs', one) for one in replaces]!r}\n"
        )
    monkeypatch.syspath_prepend(folder)
    settings.MIGRATION_MODULES = {"django_jobs": package.name}


@pytest.fixture
def applied():
    """Record that migrations were applied, and forget it in the end."""
    recorder = MigrationRecorder(connection)
    recorded = []

    def apply(*names):
        for name in names:
            recorder.record_applied("django_jobs", name)
            recorded.append(name)

    yield apply
    for name in recorded:
        recorder.record_unapplied("django_jobs", name)


def test_a_database_that_is_ahead_of_the_code_is_well(applied, run):
    applied("0099_of_the_next_version")
    assert not_applied("default") == []
    assert run("jobs_work", "--until-empty", "--processes", "0").code == 0
    assert run("jobs_preflight").code == 0


def test_what_this_code_has_and_the_database_has_not_is_missing(
    tmp_path, monkeypatch, settings, run
):
    migrations(tmp_path, monkeypatch, settings, _0001=(), _0002=())
    assert not_applied("default") == ["m_0001", "m_0002"]
    with pytest.raises(TablesMissing, match="missing: m_0001, m_0002"):
        require_tables("default")
    told = run("jobs_work", "--until-empty", "--processes", "0")
    assert (told.code, "m_0002" in told.err) == (1, True)


def test_a_squashed_migration_is_there_when_all_that_it_replaces_are(
    tmp_path, monkeypatch, settings, applied
):
    migrations(tmp_path, monkeypatch, settings, _0001_squashed=("m_0001", "m_0002"))
    applied("m_0001")
    assert not_applied("default") == ["m_0001_squashed"]
    applied("m_0002")
    assert not_applied("default") == []


@pytest.fixture
def unrecorded():
    """Let no migration of ours be recorded as applied."""
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("django_jobs", "0001_initial")
    yield
    recorder.record_unapplied("django_jobs", "0001_initial")  # a test may have recorded it
    recorder.record_applied("django_jobs", "0001_initial")


@pytest.mark.parametrize("switched_off", [True, False], ids=["switched off", "no records at all"])
def test_tables_that_were_made_without_migrations_count_as_they_are(
    settings, run, unrecorded, switched_off
):
    if switched_off:
        settings.MIGRATION_MODULES = {"django_jobs": None}
    with nullcontext() if switched_off else without_table(MigrationRecorder.Migration):
        assert not_applied("default") == []
        doomed.enqueue()
        assert run("jobs_work", "--max-jobs", "1", "--processes", "0").code == 0
        with without_table(Job):
            missing = Job._meta.db_table if switched_off else "0001_initial"
            assert not_applied("default") == [missing]


def test_tables_do_not_count_while_their_migration_is_not_recorded(unrecorded, run):
    assert not_applied("default") == ["0001_initial"]
    told = run("jobs_work", "--until-empty", "--processes", "0")
    assert (told.code, "missing: 0001_initial" in told.err) == (1, True)


def test_tables_that_a_dba_made_are_to_be_recorded_first(unrecorded, run):
    first = "manage.py migrate django_jobs --fake --database default"
    with pytest.raises(TablesMissing) as told:
        require_tables("default")
    assert str(told.value) == TOLD.replace(
        "0001_initial",
        "0001_initial, not recorded as applied although the tables exist; if no migrate is "
        f"running now, first run {first}",
    )
    assert first in run("jobs_preflight").out
    with pytest.raises(DatabaseError):
        call_command("migrate", "django_jobs", verbosity=0)
    call_command(*first.split()[1:], verbosity=0)
    require_tables("default")
    call_command("migrate", verbosity=0)


def test_without_all_of_their_tables_migrations_are_not_to_be_recorded(unrecorded):
    with without_table(Job), pytest.raises(TablesMissing) as told:
        require_tables("default")
    assert str(told.value) == TOLD


def test_it_takes_two_queries_and_leaves_no_connection_behind():
    with CaptureQueriesContext(connection) as asked:
        require_tables("default")
    assert len(asked) <= 2
    connection.close()
    require_tables("default")
    assert connection.connection is None
