"""A pool that would look every thirty seconds is woken at once. Processes and servers are real."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from django.db import connection, transaction

from django_jobs.models import Job, JobResult
from testproject.databases import server_details
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)

SELDOM = ("--poll-interval", "30")
TOLD = pytest.mark.only_on("postgres", "sqlite")


def sessions(like):
    """The server's sessions on this database whose last statement was such."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND query LIKE %s",
            [like],
        )
        return [pid for (pid,) in cursor.fetchall()]


def idle(pool, diary, word="warm"):
    """Let a pool run a first job, and wait until it waits."""
    gang.note.enqueue(str(diary), word)
    until(lambda: word in diary.words)
    until(JobResult.objects.exists)
    if connection.vendor == "postgresql":
        until(lambda: sessions("LISTEN%"))
    return pool


@TOLD
def test_jobs_wake_an_idle_pool(start, diary):
    pool = idle(start(*SELDOM), diary)
    began = time.monotonic()
    for number in range(5):
        gang.note.using(queue=f"new-{number}").enqueue(str(diary), f"n{number}")
        until(lambda: f"n{number}" in diary.words)  # noqa: B023 - called at once
    assert time.monotonic() - began < 15
    assert pool.process.poll() is None


@TOLD
def test_what_is_committed_wakes_it_and_what_is_not_never_runs(start, diary):
    idle(start(*SELDOM), diary)
    with transaction.atomic():
        gang.note.enqueue(str(diary), "undone")
        transaction.set_rollback(True)
    with transaction.atomic():
        gang.note.enqueue(str(diary), "done")
    until(lambda: "done" in diary.words)
    assert diary.words == ["warm", "done"]


def test_a_delayed_job_starts_when_it_is_due(start, diary):
    idle(start(), diary)
    delay = 1.5
    enqueued = time.monotonic()
    gang.note.using(delay=delay).enqueue(str(diary), "later")
    until(lambda: "later" in diary.words)
    late = diary.moment("later") - enqueued - delay
    assert 0 <= late < 5


@TOLD
def test_strict_order_holds_for_a_pool_that_is_woken(start, diary):
    pool = idle(start(*SELDOM, "--queue", "default,second", processes=1), diary)
    # It looks at one queue after the other, once more when it has settled: not between the two.
    until(lambda: all(pool.sleeps() for _ in range(100)))
    with transaction.atomic():
        gang.note.using(queue="second").enqueue(str(diary), "b")
        gang.note.enqueue(str(diary), "a")
    until(lambda: "b" in diary.words)
    assert diary.words == ["warm", "a", "b"]


def test_an_idle_pool_ends_at_once(start, diary):
    pool = idle(start(*SELDOM), diary)
    began = time.monotonic()
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert time.monotonic() - began < 3
    if connection.vendor == "postgresql":
        until(lambda: not sessions("LISTEN%"))


@pytest.mark.only_on("postgres")
def test_its_listening_connection_may_be_killed(start, diary):
    pool = idle(start(*SELDOM), diary)
    (killed,) = sessions("LISTEN%")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [killed])
    until(lambda: sessions("LISTEN%") not in ([], [killed]))
    gang.note.enqueue(str(diary), "after")
    until(lambda: "after" in diary.words)
    assert "Traceback" not in pool.said


@pytest.mark.only_on("postgres")
def test_all_its_connections_may_be_killed(start, diary):
    pool = idle(start(*SELDOM), diary)
    for pid in sessions("%"):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    until(lambda: sessions("LISTEN%"))
    gang.note.enqueue(str(diary), "after")
    until(lambda: "after" in diary.words)
    assert pool.said.count("does not answer") <= 1


@pytest.mark.only_on("postgres")
def test_with_notify_off_it_looks_as_often_as_it_is_told_to(start, diary):
    path = "django_jobs.backends.database.DatabaseBackend"
    off = {"database": {"BACKEND": path, "OPTIONS": {"NOTIFY": False}}}
    start(BACKENDS=off)
    gang.note.enqueue(str(diary), "first")
    until(lambda: JobResult.objects.count() == 1)
    gang.note.enqueue(str(diary), "second")
    until(lambda: "second" in diary.words)
    assert sessions("LISTEN%") == []


@pytest.fixture
def pooler(tmp_path, site_environment, monkeypatch):
    """A pgbouncer that lends sessions for one transaction at a time; its port."""
    details = server_details("postgres")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    users = tmp_path / "users.txt"
    users.write_text(f'"{details["USER"]}" "{details["PASSWORD"]}"\n')
    ini = tmp_path / "pgbouncer.ini"
    ini.write_text(
        f"[databases]\n* = host={details['HOST']} port={details['PORT']}\n"
        "[pgbouncer]\npool_mode = transaction\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = {'plain' if details['PASSWORD'] else 'any'}\n"
        f"{'auth_file = ' + str(users) if details['PASSWORD'] else ''}\n"
        "unix_socket_dir =\nignore_startup_parameters = extra_float_digits,options\n"
        "default_pool_size = 5\n"
    )
    if not details["PASSWORD"]:
        text = ini.read_text().replace("* = host", f"* = user={details['USER']} host")
        ini.write_text(text)
    tmp_path.chmod(0o755)
    command = [shutil.which("pgbouncer"), str(ini)]
    if os.geteuid() == 0:  # it refuses to be root
        for place in (ini, *ini.parents[:1]):
            shutil.chown(place, "postgres")
        command[1:1] = ["-u", "postgres"]
    log = tmp_path / "pgbouncer.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)

    def answers():
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    until(answers)
    yield port
    process.terminate()
    process.wait(10)
    print(log.read_text()[-2000:])


@pytest.mark.only_on("postgres")
@pytest.mark.needs("pgbouncer")
def test_behind_a_transaction_pooler_everything_works_at_the_poll_interval(
    start, diary, pooler, site_environment
):
    site_environment["DJANGO_JOBS_POSTGRES_PORT"] = str(pooler)
    pool = start("--poll-interval", "0.5")
    for word in ("first", "second", "third"):
        gang.note.enqueue(str(diary), word)
        until(lambda: word in diary.words)  # noqa: B023 - called at once
    until(lambda: not Job.objects.exists())
    assert sessions("LISTEN%") == [], "on a session that is somebody else's a moment later"
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert "Traceback" not in pool.said
    assert Path(str(diary)).exists()
