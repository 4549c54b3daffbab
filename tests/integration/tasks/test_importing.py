"""Tasks that wait in other tables become jobs, once, and in their order."""

import json
from datetime import timedelta
from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.management import imports
from django_jobs.models import Job, JobState
from django_jobs.worker import process_once
from tests.integration.tasks.chores import tasks as chores

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "tests.integration.tasks.chores.tasks"
NEVER = timezone.now().replace(year=9999, month=1, day=1)


@pytest.fixture(params=imports.SOURCES)
def source(request):
    """An empty table of another backend, with the columns that are read."""
    model = imports.SOURCES[request.param]
    with connection.schema_editor() as editor:
        editor.create_model(model)
    yield request.param
    with connection.schema_editor() as editor:
        editor.delete_model(model)


def put(source, function="add", args=(1,), kwargs=None, *, age=60, **values):
    """A row as the other package writes it; its id."""
    model = imports.SOURCES[source]
    call = {"args": list(args), "kwargs": kwargs or {}}
    own = (
        {"args_kwargs": call, "run_after": NEVER}
        if source == "django-tasks-db"
        else {**call, "attempts": 0, "max_attempts": 3, "run_after": None}
    )
    row = {
        "id": uuid4(),
        "task_path": f"{PATH}.{function}",
        "queue_name": "default",
        "priority": 0,
        "status": "READY",
        "enqueued_at": timezone.now() - timedelta(seconds=age),
        **own,
        **values,
    }
    model.objects.create(**row)
    return str(row["id"])


def left(source):
    return imports.SOURCES[source].objects.count()


def imported(*options):
    out = StringIO()
    try:
        call_command("jobs_import", *options, "--json", stdout=out)
        code = 0
    except SystemExit as exit_:
        code = exit_.code
    return code, json.loads(out.getvalue())


def test_what_waits_is_moved_and_runs_in_its_old_order(source):
    ids = [put(source, args=[n], age=age) for n, age in enumerate((10, 30, 20))]
    urgent = put(source, kwargs={"right": 2}, priority=50)
    code, told = imported(source)
    assert (code, told["moved"], told["refused"], left(source)) == (0, 4, [], 0)
    ran = [process_once().job_id for _ in range(4)]
    assert ran == [urgent, ids[1], ids[2], ids[0]]
    assert chores.add.get_result(urgent).return_value == 3


def test_what_is_not_due_waits_for_its_time(source):
    later = put(source, run_after=timezone.now() + timedelta(hours=1))
    imported(source)
    assert Job.objects.get(pk=later).state == JobState.SCHEDULED


def test_doing_it_again_is_safe(source):
    job_id = put(source)
    row = imports.SOURCES[source].objects.get()
    imported(source)
    row.save(force_insert=True)  # as if the deletion had been lost
    imported(source)
    assert (Job.objects.count(), left(source)) == (1, 0)
    assert process_once().job_id == job_id
    row.save(force_insert=True)
    imported(source)
    assert (Job.objects.count(), left(source)) == (0, 0)


def test_a_dry_run_changes_nothing(source):
    put(source)
    code, told = imported(source, "--dry-run")
    assert (code, told["moved"], told["dry_run"]) == (0, 1, True)
    assert (Job.objects.count(), left(source)) == (0, 1)


@pytest.mark.parametrize("dry", [True, False])
def test_it_says_what_it_signs_and_on_whose_word(source, dry):
    for n in range(2):
        put(source, args=[n])
    put(source, function="fails", args=[])
    table = imports.SOURCES[source]._meta.db_table
    key_id = get_settings().signing_keys[0].key_id
    out = StringIO()
    call_command("jobs_import", source, *(["--dry-run"] if dry else []), stdout=out)
    would = "would be " if dry else ""
    assert f"{would}signed  {PATH}.add x 2\n" in out.getvalue()
    assert f"{would}signed  {PATH}.fails x 1\n" in out.getvalue()
    assert f"as the table {table} of the database default has them" in out.getvalue()
    assert f"key {key_id} {'would vouch' if dry else 'vouches'} for them" in out.getvalue()


def test_it_tells_programs_the_same(source):
    put(source)
    _, told = imported(source)
    assert told["tasks"] == {f"{PATH}.add": 1}
    assert told["table"] == imports.SOURCES[source]._meta.db_table
    assert (told["database"], told["key_id"]) == ("default", get_settings().signing_keys[0].key_id)


def test_of_nothing_that_waits_nothing_is_said_to_be_signed(source):
    out = StringIO()
    call_command("jobs_import", source, stdout=out)
    assert "sign" not in out.getvalue()


def test_its_help_says_so(capsys):
    with pytest.raises(SystemExit):
        call_command("jobs_import", "--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "That table has no signatures" in said
    assert "signed here with this site's key" in said


def test_what_waits_in_a_queue_of_any_name_is_moved_to_that_queue(source):
    task = put(source, queue_name="Two words")
    assert imported(source)[1]["moved"] == 1
    assert str(Job.objects.get(queue="tq--_two_-words").pk) == str(task)


def test_a_task_that_no_worker_would_find_stays_there(source, settings):
    settings.DJANGO_JOBS = {}
    put(source)
    code, told = imported(source)
    assert (code, told["moved"], left(source)) == (1, 0, 1)
    assert "TASK_MODULES" in told["refused"][0]["why"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"function": "gone"}, "is no task of this site"),
        ({"task_path": "os.system"}, "is no task of this site"),
        ({"args": []}, "cannot be called so"),
        ({"queue_name": "x" * 65}, "is no queue name"),
    ],
)
def test_what_cannot_run_here_stays_there(source, values, words):
    bad, good = put(source, **values), put(source)
    code, told = imported(source)
    (refused,) = told["refused"]
    assert (code, refused["id"], told["moved"], left(source)) == (1, bad, 1, 1)
    assert words in refused["why"]
    assert str(Job.objects.get().pk) == good


def test_what_runs_or_has_ended_is_left_alone(source):
    put(source, status="RUNNING")
    for status in ("FAILED", "SUCCESSFUL"):
        put(source, status=status)
    code, told = imported(source)
    assert (code, told["moved"], told["running"], left(source)) == (0, 0, 1, 3)


def test_retries_that_were_left_are_left(source):
    if source == "django-ox":
        put(source, attempts=1, max_attempts=4)
    else:
        put(source, function="fails", args=[])
    imported(source)
    expected = 2 if source == "django-ox" else 1
    assert json.loads(Job.objects.get().body)["maxRetries"] == expected


def test_a_batch_is_moved_or_not_at_all(source):
    for _ in range(2):
        put(source, function="only_one", args=[])
    with pytest.raises(CommandError, match="is held by the live job"):
        call_command("jobs_import", source)
    assert (Job.objects.count(), left(source)) == (0, 2)


def test_a_task_goes_where_its_alias_leads(source, settings):
    database = {"BACKEND": "django_jobs.backends.database.DatabaseBackend"}
    memory = {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "BACKENDS": {"database": database, "second": memory},
        "QUEUES": {"default": {"BACKEND": "second"}},
    }
    put(source)
    assert (imported(source)[0], Job.objects.count()) == (0, 1)
    settings.TASKS = {
        "default": {**settings.TASKS["default"], "OPTIONS": {"BACKEND": "second"}},
    }
    put(source)
    assert (imported(source)[0], Job.objects.count()) == (0, 1)
    assert backends["second"].stats("default").ready == 1


def test_a_source_that_is_not_there_is_told():
    with pytest.raises(CommandError, match="the database refused"):
        call_command("jobs_import", "django-ox")
