"""``jobs_explain``, ``jobs_cancel``, ``jobs_drain`` and ``jobs_preflight``."""

import os
import pty
import subprocess
import sys

import pytest

from django_jobs.backends.registry import backends
from django_jobs.conf import DATABASE_BACKEND
from django_jobs.management import preflight
from django_jobs.models import Job, OperatorEvent, Worker
from django_jobs.operations.queues import pause_queue
from django_jobs.worker.duties import Presence
from testproject.shop.jobs import doomed
from tests.integration.commands.conftest import HOSTILE, ROOT, assert_harmless
from tests.unit import backends_of_tests as own

pytestmark = pytest.mark.django_db
NOBODY = "00000000-0000-7000-8000-000000000000"


class TestExplain:
    def test_tells_each_cause_and_its_way_out(self, run):
        handle = doomed.using(delay=600).enqueue()
        pause_queue("default", by="ada")
        told = run("jobs_explain", handle.id)
        assert told.code == 0
        assert told.out.startswith(f"{handle.id} is scheduled (testproject.shop.jobs.doomed on")
        for wanted in ("1. It is not due", "2. The queue default was paused by ada", "3. No wor"):
            assert wanted in told.out
        assert "jobs_queue resume default" in told.out

    def test_as_json(self, run):
        handle = doomed.using(delay=600).enqueue()
        told = run("jobs_explain", handle.id, "--json").json()
        assert [cause["kind"] for cause in told["causes"]] == ["not-due", "no-worker"]
        assert (told["found"], told["state"]) == (True, "scheduled")

    @pytest.mark.parametrize("unknown", [NOBODY, "elephant", HOSTILE])
    def test_of_nothing_fails(self, run, unknown):
        told = run("jobs_explain", unknown)
        assert told.code == 1
        assert_harmless(told.out)
        assert run("jobs_explain", unknown, "--json").json()["found"] is False

    def test_plays_no_tricks_on_a_terminal(self, run):
        handle = doomed.enqueue()
        Job.objects.update(handler=HOSTILE.replace("\x00", ""), worker="\x1b[2J")
        assert_harmless(run("jobs_explain", handle.id).out)


class TestCancel:
    def test_ends_what_waits_and_asks_what_runs(self, run):
        runs = doomed.enqueue()
        backends["database"].fetch(["default"], 1, 30)
        waits = doomed.enqueue()
        told = run("jobs_cancel", waits.id, runs.id, "--reason", "wrong order")
        assert told.code == 0
        assert f"{waits.id} cancelled" in told.out
        assert f"{runs.id} runs, and was asked to stop" in told.out
        assert set(OperatorEvent.objects.values_list("reason", flat=True)) == {"wrong order"}

    def test_of_what_is_not_there_fails(self, run):
        told = run("jobs_cancel", NOBODY, "--json")
        assert (told.code, told.json()["jobs"][0]["status"]) == (1, "gone")


class TestDrain:
    def test_asks_a_worker_by_its_name(self, run):
        Presence(backends["database"], "mail").write()
        name = str(Worker.objects.get())
        assert run("jobs_drain", name).out == f"{name} was asked to drain\n"
        assert Worker.objects.get().draining
        assert "had been asked" in run("jobs_drain", "--all").out

    def test_of_nobody(self, run):
        assert run("jobs_drain", "elephant:1").code == 1
        assert run("jobs_drain").code == 2
        assert run("jobs_drain", "--all", "elephant:1").code == 2
        assert run("jobs_drain", "--all").out == "No worker is known.\n"


class TestPreflight:
    def test_finds_nothing_to_complain_of(self, run):
        Presence(backends["database"], "every queue").write()
        told = run("jobs_preflight", "--strict")
        assert (told.code, "It is ready." in told.out) == (0, True)
        found = run("jobs_preflight", "--json").json()
        assert found["ok"]
        whats = {one["what"] for one in found["findings"]}
        assert whats == {
            "check", "keys", "database", "migrations", "encoding", "clock", "workers", "handlers",
            "messages",
        }  # fmt: skip

    def test_warns_of_a_queue_that_nobody_serves(self, run):
        Presence(backends["database"], "mail").write()
        doomed.enqueue()
        told = run("jobs_preflight")
        assert told.code == 0
        assert "no worker serves the queue default" in told.out
        assert "manage.py jobs_work --queue default" in told.out
        assert run("jobs_preflight", "--strict").code == 1

    def test_warns_of_jobs_whose_handler_is_gone(self, run):
        doomed.enqueue()
        Job.objects.update(handler="shop.jobs.renamed")
        assert "jobs of shop.jobs.renamed wait" in run("jobs_preflight").out

    def test_warns_of_messages_that_this_process_would_not_run(self, run, settings):
        settings.DJANGO_JOBS = {"SIGNING_KEYS": [("new", "n" * 32)]}
        doomed.enqueue()
        settings.DJANGO_JOBS = {"SITE": "web"}
        doomed.enqueue()
        settings.DJANGO_JOBS = {"SITE": "worker"}
        before = list(Job.objects.order_by("pk").values())
        told = run("jobs_preflight").out
        assert "1 of the first 2 that wait on database would not be run here (unknown-key" in told
        assert "Web and worker have different keys" in told
        assert "the job was made for the site 'web', not 'worker'" in told
        assert "Set SITE to the same word" in told
        assert list(Job.objects.order_by("pk").values()) == before

    def test_looks_at_the_other_backends_when_one_does_not_answer(self, run, settings):
        nowhere = {"URL": "redis://127.0.0.1:1/0", "TIMEOUT": 0.5}
        redis = {"BACKEND": "django_jobs.backends.redis.RedisBackend", "OPTIONS": nowhere}
        database = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}
        settings.DJANGO_JOBS = {"BACKENDS": {"redis": redis, "database": database}}
        told = run("jobs_preflight").out
        assert "those of redis cannot be read" in told
        assert "the first 0 that wait on database would be run here" in told

    def test_fails_on_settings_that_cannot_work(self, run, settings):
        settings.DJANGO_JOBS = {"TIMEOUTS": 3}
        told = run("jobs_preflight")
        assert told.code in {1, 2}
        assert "TIMEOUT" in told.out + told.err

    def test_asks_every_backend_and_waits_for_none_for_long(self, run, settings, monkeypatch):
        memory = "django_jobs.backends.memory.MemoryBackend"
        path = "tests.unit.backends_of_tests."
        settings.DJANGO_JOBS = {
            "BACKENDS": {
                "database": {"BACKEND": DATABASE_BACKEND},
                "memory": {"BACKEND": memory},
                "broken": {"BACKEND": path + "Broken"},
                "stuck": {"BACKEND": path + "Stuck"},
            }
        }
        monkeypatch.setattr(preflight, "PATIENCE_SECONDS", 0.2)
        told = run("jobs_preflight", "--json")
        own.Stuck.goes_on.set()
        found = [one for one in told.json()["findings"] if one["what"] == "backend"]
        assert (told.code, [one["state"] for one in found]) == (1, ["failed", "failed"])
        assert found[0]["text"] == "broken cannot be used: OSError: the cable is cut"
        assert "BACKENDS['broken']" in found[0]["way_out"]
        assert found[1]["text"] == "stuck did not answer within 0.2 seconds"

    def test_fails_where_the_tables_are_not_there(self, manage, tmp_path):
        where = {"DJANGO_JOBS_TEST_DB": "sqlite", "DJANGO_JOBS_SQLITE_PATH": str(tmp_path / "new")}
        told = manage("jobs_preflight", **where)
        assert told.returncode == 1
        assert "manage.py migrate --database default" in told.stdout


@pytest.mark.django_db(transaction=True)
def test_in_a_terminal_there_are_tables(site_environment):
    parent, child = pty.openpty()
    command = [sys.executable, str(ROOT / "testproject/manage.py"), "jobs_preflight"]
    environment = {**site_environment, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, env=environment, stdout=child, stderr=child, stdin=child)
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(parent, 4096):
            shown += chunk
    except OSError:
        pass  # its end was closed
    finally:
        os.close(parent)
    assert process.wait(60) == 0
    assert "┃" in shown.decode()
