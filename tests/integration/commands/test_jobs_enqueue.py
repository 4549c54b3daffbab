"""jobs_enqueue: one job from the command line, many from a file, and clear refusals."""

import json
from uuid import UUID

import pytest

from django_jobs import job
from django_jobs.management import enqueue
from django_jobs.models import Job
from django_jobs.worker import process_once

DOOMED = "testproject.shop.jobs.doomed"
RECEIPT = "testproject.shop.jobs.send_receipt"

pytestmark = pytest.mark.django_db


@job(key="tests.commands.take", on_conflict="raise")
def take(*numbers, **named):
    return numbers, named


@job(key="tests.integration.commands.test_jobs_enqueue.did you mean")
def odd():
    pass


def body():
    return json.loads(Job.objects.get().body)


@pytest.mark.parametrize(
    ("payload", "args", "kwargs"),
    [
        ([], [], {}),
        (["[1, 2]"], [1, 2], {}),
        (['{"a": "ü \\ud83d\\ude00 😀"}'], [], {"a": "ü 😀 😀"}),
        (['{"args": [1], "kwargs": {"b": null}}'], [1], {"b": None}),
        (['{"args": [1]}'], [], {"args": [1]}),
        (['{"self": 1}'], [], {"self": 1}),
    ],
)
def test_the_payload_of_a_function(run, payload, args, kwargs):
    assert run("jobs_enqueue", take.key, *payload).code == 0
    assert body()["payload"] == {"args": args, "kwargs": kwargs}


def test_it_prints_the_id(run):
    done = run("jobs_enqueue", DOOMED)
    assert str(UUID(done.out.strip())) == str(Job.objects.get().pk)


def test_as_json(run):
    done = run("jobs_enqueue", DOOMED, "--json")
    assert done.json() == {"id": str(Job.objects.get().pk), "backend": "database", "created": True}


def test_what_the_decorator_says_holds(run):
    run("jobs_enqueue", RECEIPT, "[1]")
    assert (body()["queue"], body()["maxRetries"]) == ("mail", 3)


def test_the_work_of_an_idempotency_key_is_done_once(run):
    for _ in range(2):
        assert run("jobs_enqueue", take.key, "--idempotency-key", "report-7").code == 0
    assert [process_once().status for _ in range(3)] == ["acked", "skipped-idempotent", "empty"]


def test_every_option(run):
    done = run(
        *("jobs_enqueue", RECEIPT, "[1]", "--queue", "bulk", "--backend", "database"),
        *("--priority", "7", "--delay", "15m", "--expires", "2d", "--name", "Receipt"),
        *("--max-retries", "1", "--timeout", "90s", "--unique-key", "r-1"),
    )
    assert done.code == 0
    said = body()
    wanted = {"queue": "bulk", "priority": 7, "name": "Receipt", "maxRetries": 1, "timeout": 90.0}
    assert wanted.items() <= said.items()
    assert said["uniqueKey"] == "r-1"
    assert Job.objects.get().due > said["enqueuedAt"] + 800_000_000


def test_a_moment_and_no_time_limit(run):
    done = run(
        *("jobs_enqueue", DOOMED, "--run-at", "2099-01-31T18:30:00+01:00"),
        *("--timeout", "none", "--expires", "2099-02-01T00:00:00Z"),
    )
    assert done.code == 0, done.err
    assert Job.objects.get().due == 4073563800 * 10**6
    assert body()["timeout"] == 0


def test_a_duplicate_prints_the_existing_id_and_fails(run):
    first = run("jobs_enqueue", DOOMED, "--unique-key", "one")
    second = run("jobs_enqueue", DOOMED, "--unique-key", "one")
    assert (first.code, second.code) == (0, 1)
    assert first.out == second.out
    assert "holds this unique key" in second.err
    third = run("jobs_enqueue", DOOMED, "--unique-key", "one", "--json")
    assert third.json()["created"] is False


def test_the_words_of_a_key_are_no_suggestion(run):
    told = run("jobs_enqueue", "did you mean")
    assert told.err.endswith(f"; did you mean {odd.key}?")


def test_a_duplicate_of_a_handler_that_raises(run):
    first = run("jobs_enqueue", take.key, "--unique-key", "one")
    second = run("jobs_enqueue", take.key, "--unique-key", "one")
    assert (second.code, second.out) == (1, first.out)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name a HANDLER"),
        (("testproject.shop.jobs.domed",), f"did you mean '{DOOMED}'?"),
        (("doomed",), f"did you mean {DOOMED}?"),
        ((DOOMED, "hello"), "PAYLOAD is not strict JSON"),
        ((DOOMED, '"a"'), 'write ["a"]'),
        ((DOOMED, '{"a": 1, "a": 2}'), "occurs twice"),
        ((DOOMED, "[NaN]"), "NaN is not JSON"),
        ((DOOMED, r'["\ü"]'), "PAYLOAD is not strict JSON"),
        ((DOOMED, "[1]"), "cannot be called so"),
        ((DOOMED, "--priority", "101"), "priority is 101"),
        ((DOOMED, "--run-at", "2026-01-31T18:30:00"), "has no time zone"),
        ((DOOMED, "--run-at", "soon"), "write it as 2026-01-31T18:30:00+01:00"),
        ((DOOMED, "--delay", "5 minutes"), "write 30s, 15m, 12h, 7d or 2w"),
        ((DOOMED, "--delay", "-5"), "between 0 seconds and 100 years"),
        ((DOOMED, "--expires", "never"), "or as a length of time"),
        ((DOOMED, "--queue", "A"), "is no queue name"),
        ((DOOMED, "--backend", "no"), "there is no backend 'no'"),
        ((DOOMED, "--file", "x"), "leave HANDLER out"),
        (("--file", "/no/such/file"), "cannot be read: No such file"),
    ],
)
def test_refusals(run, arguments, told):
    refused = run("jobs_enqueue", *arguments)
    assert told in refused.err
    assert refused.out == ""
    assert not Job.objects.exists()


@pytest.fixture
def lines(tmp_path):
    def write(*given):
        path = tmp_path / "jobs.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in given]
        path.write_text("\n".join(texts), "utf-8")
        return path

    return write


def test_a_file(run, lines):
    path = lines(
        {"handler": DOOMED, "delay": "15m", "name": "ü", "timeout": None},
        "",
        {"handler": RECEIPT, "payload": [1], "queue": "own", "run_at": None},
    )
    done = run("jobs_enqueue", "--file", path, "--queue", "bulk")
    assert done.code == 0, done.err
    assert done.out.split() == [
        str(pk) for pk in Job.objects.order_by("pk").values_list("pk", flat=True)
    ]
    assert sorted(Job.objects.values_list("queue", flat=True)) == ["bulk", "own"]
    assert "2 enqueued" in done.err


def test_a_file_as_json_with_a_duplicate(run, lines):
    path = lines(*[{"handler": DOOMED, "unique_key": "one"}] * 2)
    done = run("jobs_enqueue", "--file", path, "--json")
    assert done.code == 1
    told = done.json()["jobs"]
    assert [(one["line"], one["created"]) for one in told] == [(1, True), (2, False)]
    assert told[0].keys() == {"line", "id", "backend", "created"}
    assert "1 were there before" in done.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 3: the line is not strict JSON"),
        ("[]", "line 3: it is no object"),
        ({"payload": []}, "line 3: it names no handler"),
        ({"handler": "nobody"}, "line 3: no handler is registered"),
        ({"handler": DOOMED, "qeue": "a"}, "line 3: unknown option 'qeue'; did you mean 'queue'?"),
        ({"handler": DOOMED, "tenant": "acme"}, "line 3: tenant is not supported yet"),
        ({"handler": DOOMED, "delay": "long"}, "line 3: delay: 'long' is no length of time"),
        ({"handler": take.key, "payload": ["x" * 300_000]}, "line 3: tests.commands.take: the pay"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_enqueued(run, lines, line, told):
    refused = run("jobs_enqueue", "--file", lines({"handler": DOOMED}, {"handler": DOOMED}, line))
    assert refused.code == 2
    assert told in refused.err
    assert "nothing was enqueued" in refused.err
    assert not Job.objects.exists()


def test_what_went_in_before_a_bad_line_is_told(run, lines, monkeypatch):
    monkeypatch.setattr(enqueue, "BATCH", 2)
    path = lines(*[{"handler": DOOMED}] * 3, "{")
    refused = run("jobs_enqueue", "--file", path)
    assert "lines 1 to 2 are enqueued, none from line 3 on" in refused.err
    assert len(refused.out.split()) == Job.objects.count() == 2


def test_an_invisible_payload_is_not_shown_raw(run):
    refused = run("jobs_enqueue", "\x1b[31mred")
    assert "\x1b" not in refused.err


@pytest.mark.django_db(transaction=True)
def test_exit_codes_in_a_process(manage):
    assert manage("jobs_enqueue", DOOMED, "--unique-key", "a").returncode == 0
    assert manage("jobs_enqueue", DOOMED, "--unique-key", "a").returncode == 1
    assert manage("jobs_enqueue", "nobody").returncode == 2
    done = manage("jobs_enqueue", "--file", "-", stdin=json.dumps({"handler": DOOMED}))
    assert done.returncode == 0
    assert str(UUID(done.stdout.strip()))


def test_a_handler_that_is_no_function_gets_the_payload_as_it_is():
    class Own:
        key = "own"

    assert enqueue.shape(Own(), {"a": 1}) == {"a": 1}
    assert enqueue.shape(Own(), enqueue.payload_argument(None)) is None
