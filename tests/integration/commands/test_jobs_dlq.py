"""jobs_dlq: look, replay and discard; each once, with who and why, and asked before many."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models import F

from django_jobs.management import base
from django_jobs.models import FailedJob, Job, OperatorEvent
from testproject.shop.jobs import flaky
from tests.integration.commands.conftest import assert_harmless

pytestmark = pytest.mark.django_db
SHORT_KEYS = [
    *("number", "id", "backend", "queue", "handler", "name", "reason", "attempts", "crashes"),
    *("error_type", "error_message", "enqueued_at", "failed_at", "replay_of", "resolution"),
]


def forge(failed):
    FailedJob.objects.filter(pk=failed.pk).update(signature="0" * 64)


@pytest.fixture
def terminal(monkeypatch):
    """Somebody sits there and gives this answer."""

    def answer(text):
        def asked(question):
            asked.question = question
            if text is None:
                raise EOFError
            return text

        monkeypatch.setattr(base.sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", asked)
        return asked

    return answer


def test_no_dead_letters(run):
    done = run("jobs_dlq", "list")
    assert (done.code, done.out) == (0, "There are no dead letters like that.\n")
    assert run("jobs_dlq", "list", "--json").json() == {"dead_letters": [], "more": False}


def test_list(run, die):
    first, second = die(2)
    headers, latest, earlier = run("jobs_dlq", "list").out.splitlines()
    assert headers.split() == [
        "number",
        "job",
        "queue",
        "handler",
        "reason",
        "attempts",
        "died",
        "error",
    ]
    assert latest.split()[:2] == [str(second.pk), str(second.job_id)]
    assert earlier.endswith("RuntimeError: this handler never succeeds")
    told = run("jobs_dlq", "list", "--limit", "1", "--json").json()
    assert told["more"] is True
    assert [list(one) for one in told["dead_letters"]] == [SHORT_KEYS]
    assert "--limit 10 shows more" in run("jobs_dlq", "list", "--limit", "1").out
    assert told["dead_letters"][0]["number"] == second.pk != first.pk


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (("--queue", "mail"), 1),
        (("--handler", "nobody"), 0),
        (("--reason", "exhausted"), 3),
        (("--reason", "crashed"), 0),
        (("--older-than", "1h"), 1),
    ],
)
def test_list_filters(run, die, filters, count):
    (old,) = die()
    FailedJob.objects.filter(pk=old.pk).update(failed_at=F("failed_at") - timedelta(hours=2))
    die()
    die(queue="mail")
    told = run("jobs_dlq", "list", *filters, "--json").json()
    assert len(told["dead_letters"]) == count


def test_show_by_number_and_by_id(run, die):
    (failed,) = die(meta={"api_key": "s3cret", "by": "x"})
    page = run("jobs_dlq", "show", failed.pk)
    assert page.code == 0
    assert page.out == run("jobs_dlq", "show", failed.job_id).out
    for told in (
        "RuntimeError: this handler never succeeds",
        '"args": []',
        "Traceback",
        "1: failed",
    ):
        assert told in page.out
    assert "replay:      possible" in page.out
    document = run("jobs_dlq", "show", failed.pk, "--json").json()
    assert list(document) == [
        *SHORT_KEYS,
        *("replayable", "obstacle", "payload", "meta", "traceback", "output", "runs"),
    ]
    assert document["replayable"] is True
    assert document["meta"] == {"api_key": "••••", "by": "x"}
    assert [one["number"] for one in document["runs"]] == [1]


def test_show_what_cannot_be_replayed(run, die):
    (failed,) = die()
    forge(failed)
    assert "rejected-signature" in run("jobs_dlq", "show", failed.pk).out
    assert run("jobs_dlq", "show", failed.pk, "--json").json()["replayable"] is False


def test_show_nothing(run):
    missing = run("jobs_dlq", "show", "1")
    assert (missing.code, missing.out[:26]) == (1, "There is no dead letter 1;")
    assert run("jobs_dlq", "show", uuid4(), "--json").json() is None


def test_hostile_texts_are_written_out(run, hostile_letter):
    for command in (("list",), ("show", hostile_letter.pk), ("replay", hostile_letter.pk)):
        for options in ((), ("--json",)):
            assert_harmless(run("jobs_dlq", *command, *options).out)
    FailedJob.objects.update(body="[" * 100_000)
    assert "(cannot be read)" in run("jobs_dlq", "show", hostile_letter.pk).out


def test_replay_is_done_once(run, die):
    first, second = die(2)
    done = run("jobs_dlq", "replay", first.pk, second.job_id, "--by", "ann", "--note", "back up")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "2 replayed"
    ids = {str(pk) for pk in Job.objects.values_list("pk", flat=True)}
    assert {line.split()[-1] for line in done.out.splitlines()[:-1]} == ids
    again = run("jobs_dlq", "replay", first.pk, "--json")
    assert again.code == 0
    told = again.json()
    assert list(told) == ["action", "dry_run", "matched", "counts", "results", "missing"]
    assert list(told["results"][0]) == ["failed_id", "job_id", "status", "new_id", "why"]
    assert told["counts"] == {"already-replayed": 1}
    assert Job.objects.count() == 2
    event = OperatorEvent.objects.filter(action="replay").first()
    assert (event.actor, event.reason) == ("ann", "back up")
    page = run("jobs_dlq", "show", first.pk).out
    assert "by ann" in page
    assert "(back up)" in page
    resolution = run("jobs_dlq", "show", first.pk, "--json").json()["resolution"]
    assert list(resolution) == ["how", "by", "at", "note", "replayed_as"]


def test_the_user_of_the_system_is_recorded(run, die, monkeypatch):
    monkeypatch.setattr(base.getpass, "getuser", lambda: "operator")
    (failed,) = die()
    assert run("jobs_dlq", "discard", failed.pk).code == 0
    failed.refresh_from_db()
    assert (failed.resolution, failed.resolved_by) == ("discarded", "operator")

    def nobody():
        raise KeyError("uid")

    monkeypatch.setattr(base.getpass, "getuser", nobody)
    assert base.system_user() == "unknown"


def test_what_went_wrong_fails(run, die):
    forged, discarded, fine = die(3)
    forge(forged)
    assert run("jobs_dlq", "discard", discarded.pk).code == 0
    assert run("jobs_dlq", "discard", discarded.pk).code == 0
    foreseen = run("jobs_dlq", "replay", forged.pk, discarded.pk, fine.pk, "--dry-run", "--json")
    assert foreseen.json()["counts"] == {"discarded": 1, "refused": 1, "would-replay": 1}
    done = run("jobs_dlq", "replay", forged.pk, discarded.pk, fine.pk, 12345)
    assert done.code == 1
    assert f"{forged.pk} {forged.job_id} refused: rejected-signature" in done.out
    assert f"{discarded.pk} {discarded.job_id} discarded: discarded by" in done.out
    assert "there is no dead letter 12345" in done.out
    assert done.out.splitlines()[-1] == "1 discarded, 1 refused, 1 replayed"
    assert run("jobs_dlq", "discard", fine.pk).code == 1


def test_a_dry_run_changes_nothing(run, die):
    die(2)
    for verb in ("replay", "discard"):
        done = run("jobs_dlq", verb, "--all", "--dry-run")
        assert (done.code, done.out.splitlines()[-1]) == (0, f"2 would-{verb}")
    assert FailedJob.objects.filter(resolution="").count() == 2
    assert not OperatorEvent.objects.exists()


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 1), ("n", 1, 3), (None, 1, 3)])
def test_all_is_asked_for(run, die, terminal, answer, code, left):
    die(2)
    die(queue="mail")
    asked = terminal(answer)
    done = run("jobs_dlq", "replay", "--all", "--queue", "default")
    assert asked.question == "Replay 2 dead letters? [y/N] "
    assert done.code == code
    assert FailedJob.objects.filter(resolution="").count() == left


def test_all_without_a_question(run, die):
    die(2)
    assert run("jobs_dlq", "discard", "--all", "--no-input").out.endswith("2 discarded\n")
    assert run("jobs_dlq", "discard", "--all").out == "0 discarded\n"


def test_very_many_are_counted_with_progress(run, die):
    (failed,) = die()
    copies = [FailedJob.objects.get(pk=failed.pk) for _ in range(60)]
    for copy in copies:
        copy.pk, copy.job_id = None, uuid4()
    FailedJob.objects.bulk_create(copies)
    done = run("jobs_dlq", "discard", "--all", "--no-input")
    assert done.out == "61 discarded\n"
    assert done.err.splitlines()[-1] == "discard: 61 of 61"
    assert 2 <= len(done.err.splitlines()) <= 10


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("replay",), "ids of dead letters, or --all"),
        (("replay", "1", "--all"), "not both"),
        (("replay", "1", "--queue", "mail"), "narrow --all"),
        (("show", "x"), "neither the number of a dead letter nor a job's id"),
        (("show", "9" * 30), "neither the number"),
        (("list", "--older-than", "7"), "write 30s, 15m, 12h, 7d or 2w"),
        (("list", "--older-than", "99999w"), "longer than 100 years"),
        (("list", "--database", "other"), "holds no jobs; use default"),
    ],
)
def test_usage(run, arguments, told):
    refused = run("jobs_dlq", *arguments)
    assert refused.code == 2 or "Error:" in refused.err
    assert told in refused.err


def test_nobody_is_there_to_be_asked(run, die, terminal):
    die()
    terminal("y")
    assert "add --no-input" in run("jobs_dlq", "replay", "--all", "--json").err
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_exit_codes_in_a_process(manage, die):
    (failed,) = die()
    assert manage("jobs_dlq").returncode == 2
    asked = manage("jobs_dlq", "replay", "--all")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "there is no terminal to ask" in asked.stderr
    assert manage("jobs_dlq", "replay", "999").returncode == 1
    done = manage("jobs_dlq", "replay", "--all", "--no-input", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["counts"] == {"replayed": 1}
    assert manage("jobs_dlq", "discard", failed.pk).returncode == 1


def test_a_job_that_lives_is_no_dead_letter(run):
    assert run("jobs_dlq", "show", flaky.enqueue().id).code == 1
