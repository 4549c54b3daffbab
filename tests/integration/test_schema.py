"""The tables can be made, left, shared by two releases, and hold every text there is."""

import pkgutil
from importlib import import_module

import pytest
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ModelState

import django_jobs.migrations
from django_jobs.backends.base import AttemptRecord, Failure, ResultRecord, Settled
from django_jobs.backends.database import DatabaseBackend
from django_jobs.ids import new_id
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.wire import strict_json

APP = "django_jobs"
FIRST = "0001_initial"
every_table = [model._meta.db_table for model in (Job, FailedJob, JobAttempt, JobResult)]
committed = pytest.mark.django_db(transaction=True)


@pytest.fixture
def backend():
    return DatabaseBackend("database", {})


def outgoing(queue="default", payload=None, **terms):
    payload = {"args": [], "kwargs": {}} if payload is None else payload
    return make_outgoing(queue, payload, backend="database", **terms)


def tables():
    return set(connection.introspection.table_names())


# -- migrations ---------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_migrations_say_what_the_models_say(capsys):
    call_command("makemigrations", APP, check=True, dry_run=True)
    assert "No changes" in capsys.readouterr().out


@committed
def test_the_tables_can_be_left_and_made_again(backend):
    ours = {name for name in tables() if name.startswith(f"{APP}_")}
    assert ours >= set(every_table)
    try:
        call_command("migrate", APP, "zero", verbosity=0)
        assert not ours & tables()
    finally:
        call_command("migrate", APP, verbosity=0)
    assert ours <= tables()
    assert [one.created for one in backend.enqueue([outgoing(), outgoing()])] == [True, True]
    assert len(backend.fetch(["default"], 5, 30.0)) == 2


def later_migrations():
    names = sorted(module.name for module in pkgutil.iter_modules(django_jobs.migrations.__path__))
    return [name for name in names if name > FIRST]


def strangers_to_the_release_before(operation):
    """What an operation does that the release before it could not live with."""
    if isinstance(operation, migrations.AddField):
        field = operation.field
        if not field.null and field.db_default is models.NOT_PROVIDED:
            return f"{operation.name} is neither nullable nor has it a database default"
    harmless = (
        migrations.AddField,
        migrations.CreateModel,
        migrations.AddIndex,
        migrations.AlterModelOptions,
        migrations.AlterModelManagers,
        migrations.RunPython,
        migrations.RunSQL,
        migrations.SeparateDatabaseAndState,
    )
    return "" if isinstance(operation, harmless) else f"{operation.describe()} contracts"


def operations_of(migration):
    for operation in migration.operations:
        yield operation
        yield from getattr(operation, "database_operations", ())


def test_later_migrations_only_add_what_the_release_before_can_ignore():
    found = [
        f"{name}: {problem}"
        for name in later_migrations()
        for operation in operations_of(import_module(f"django_jobs.migrations.{name}").Migration)
        if (problem := strangers_to_the_release_before(operation))
    ]
    assert not found


@pytest.mark.parametrize(
    ("operation", "allowed"),
    [
        (migrations.AddField("job", "x", models.TextField(null=True)), True),
        (migrations.AddField("job", "x", models.IntegerField(db_default=0)), True),
        (migrations.AddField("job", "x", models.IntegerField(default=0)), False),
        (migrations.RemoveField("job", "queue"), False),
        (migrations.RenameField("job", "queue", "channel"), False),
        (migrations.AlterField("job", "queue", models.CharField(max_length=10)), False),
        (migrations.DeleteModel("job"), False),
        (migrations.AddIndex("job", models.Index(fields=["name"], name="x")), True),
    ],
)
def test_the_rule_tells_harmless_operations_from_others(operation, allowed):
    assert (strangers_to_the_release_before(operation) == "") is allowed


# -- two releases, one table --------------------------------------------------------------


@pytest.fixture
def newer_table(transactional_db):
    """The tables as a later release leaves them: each has two columns more."""
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        for table in every_table:
            cursor.execute(f"ALTER TABLE {quote(table)} ADD COLUMN later_text varchar(20) NULL")
            cursor.execute(
                f"ALTER TABLE {quote(table)} ADD COLUMN later_number integer DEFAULT 7 NOT NULL"
            )
    yield
    connection.close()
    with connection.cursor() as cursor:
        for table in every_table:
            for column in ("later_text", "later_number"):
                cursor.execute(f"ALTER TABLE {quote(table)} DROP COLUMN {column}")


def all_the_rows(table, *columns):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)} FROM {connection.ops.quote_name(table)}")  # noqa: S608 - ours
        return list(cursor.fetchall())


def test_this_release_works_on_the_tables_of_a_later_one(newer_table, backend):
    backend.enqueue([outgoing()])
    backend.enqueue([outgoing(unique_key="k"), outgoing(delay=60.0), outgoing(), outgoing()])
    assert all_the_rows(Job._meta.db_table, "later_text", "later_number") == [(None, 7)] * 5
    first, second, third = backend.fetch(["default"], 3, 30.0)
    record = AttemptRecord(number=1, outcome="failed", started_at=1, finished_at=2)
    result = ResultRecord(status="succeeded")
    assert backend.renew([first], 60.0) == [Settled.SETTLED]
    assert backend.ack([first], {first.id: result}) == [Settled.SETTLED]
    assert backend.nack(second, attempt=record) is Settled.SETTLED
    assert backend.abandon(third, Failure(reason="exhausted")) is Settled.SETTLED
    for table in every_table[1:]:
        assert all_the_rows(table, "later_text", "later_number") == [(None, 7)]
    assert backend.stats("default").ready == 2


@committed
def test_a_row_with_the_columns_of_the_first_release_is_a_whole_job(backend):
    """As another release would write it: the columns that have no default, by name."""
    message = outgoing()
    state = MigrationExecutor(connection).loader.project_state((APP, FIRST))
    fields = dict(state.models[APP, "job"].fields)
    assert isinstance(state.models[APP, "job"], ModelState)
    needed = [
        name
        for name, field in fields.items()
        if not field.null and field.db_default is models.NOT_PROVIDED
    ]
    native = connection.features.has_native_uuid_field
    row = {
        "id": message.id if native else message.id.replace("-", ""),
        "backend": "database",
        "queue": "default",
        "handler": "tests.noop",
        "body": message.body,
        "signature": message.signature,
        "key_id": message.key_id,
        "state": 1,
        "due": 1,
        "created_at": "2026-01-01 00:00:00",
    }
    assert sorted(row) == sorted(needed)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO django_jobs_job ({', '.join(row)}) "  # noqa: S608 - our own names
            f"VALUES ({', '.join(['%s'] * len(row))})",
            list(row.values()),
        )
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert make_opener("database").open(lease.message, "default").identifier == message.id
    assert lease.message.header.attempts == lease.message.header.crashes == 0


# -- texts --------------------------------------------------------------------------------


@pytest.mark.django_db
def test_keys_that_differ_in_case_accents_or_trailing_blanks_are_different(backend):
    keys = ["key", "KEY", "kéy", "key ", " key", "straße", "strasse", "İ", "i"]
    stored = [backend.enqueue([outgoing(unique_key=key)])[0] for key in keys]
    assert all(one.created for one in stored)
    again = [backend.enqueue([outgoing(unique_key=key)])[0] for key in keys]
    assert [one.id for one in again] == [one.id for one in stored]


@pytest.mark.django_db
def test_the_same_key_in_two_backends_is_two_keys(backend):
    other = DatabaseBackend("another", {})
    assert backend.enqueue([outgoing(unique_key="k")])[0].created
    assert other.enqueue([make_outgoing(backend="another", unique_key="k")])[0].created


NAMES = ["🦄 nightly", "Straße · Überweisung", "夜間バッチ", 'it\'s 100% "quoted" \\ %s', "a\tb"]


@pytest.mark.django_db
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_every_text_comes_back_as_it_went(backend, name, size):
    terms = {
        "name": name,
        "tenant": name[::-1],
        "trace_id": name,
        "meta": {name: [name]},
        "unique_key": None,
    }
    payload = {"args": [name], "kwargs": {}}
    first = outgoing(payload=payload, **terms)
    messages = [first, *(first._replace(id=new_id()) for _ in range(size - 1))]
    backend.enqueue(messages)
    lease = backend.fetch(["default"], 1, 30.0)[0]
    assert lease.message.body == first.body
    assert (lease.message.index["name"], lease.message.index["tenant"]) == (name, name[::-1])
    envelope = make_opener("database").open(lease.message, "default")
    assert envelope.payload == payload
    assert envelope.terms.meta == {name: [name]}
    assert Job.objects.get(pk=lease.id).meta == {name: [name]}


@pytest.mark.only_on("postgres")
@pytest.mark.django_db
@pytest.mark.parametrize("setting", ["backslash_quote", "standard_conforming_strings"])
@pytest.mark.parametrize("size", [1, 3])
def test_no_setting_for_strings_of_the_server_changes_a_text(backend, setting, size):
    name = "\\' it''s \\\\' 100%s %% E'\\x27' $$ \\"
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL {setting} = off")
    first = outgoing(name=name, trace_id=name, meta={name: name})
    backend.enqueue([first, *(first._replace(id=new_id()) for _ in range(size - 1))])
    assert [(row.name, row.trace_id, row.meta) for row in Job.objects.all()] == [
        (name, name, {name: name})
    ] * size


@pytest.mark.django_db
def test_a_body_of_250_kilobytes_comes_back_byte_for_byte(backend):
    text = "".join(chr(code) for code in range(32, 0x2500) if code != 0x7F)
    payload = {"args": [text * 4, "x" * 20_000], "kwargs": {}}
    first = outgoing(payload=payload)
    assert 200_000 < len(first.body) < 262_144
    backend.enqueue([first])
    backend.enqueue([outgoing(payload=payload), outgoing(payload=payload)])
    leases = backend.fetch(["default"], 3, 30.0)
    assert leases[0].message.body == first.body
    assert make_opener("database").open(leases[0].message, "default").payload == payload
    assert backend.abandon(leases[0], Failure(reason="exhausted")) is Settled.SETTLED
    assert FailedJob.objects.get().body == first.body


@pytest.mark.parametrize("value", ["a\x00b", {"a\x00": 1}, ["\ud800"]])
def test_text_that_a_store_cannot_hold_is_refused_before_it_gets_there(value):
    with pytest.raises(strict_json.NotStrictJson):
        strict_json.dumps(value)


@pytest.mark.django_db
@pytest.mark.parametrize("field", ["error_message", "traceback", "output"])
def test_a_failure_that_speaks_of_strange_characters_is_settled(backend, field):
    backend.enqueue([outgoing()])
    (lease,) = backend.fetch(["default"], 1, 30.0)
    strange = "🦄 \u202e ﷽ " * 1000
    failure = Failure(reason="exhausted", **{field: strange})
    assert backend.abandon(lease, failure) is Settled.SETTLED
    assert getattr(FailedJob.objects.get(), field) == strange


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "length"),
    [("queue", 64), ("job", 255), ("name", 255), ("tenant", 255)],
)
def test_the_longest_texts_fit_their_columns_and_indexes(backend, field, length):
    text = ("q" if field == "queue" else "🦄") * length
    queue = text if field == "queue" else "default"
    terms = {} if field == "queue" else {field: text}
    backend.enqueue([outgoing(queue, **terms)])
    (lease,) = backend.fetch([queue], 1, 30.0)
    assert lease.message.index["handler" if field == "job" else field] == text


@pytest.mark.only_on("mariadb", "mysql")
@pytest.mark.django_db
def test_no_index_is_longer_than_innodb_allows_anywhere():
    """3072 bytes with today's row format; ours leave a third of them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT s.index_name, sum(coalesce(s.sub_part * 4, c.character_octet_length, 16)) "
            "FROM information_schema.statistics s JOIN information_schema.columns c "
            "USING (table_schema, table_name, column_name) "
            "WHERE s.table_schema = database() AND s.table_name LIKE 'django_jobs_%%' "
            "GROUP BY s.table_name, s.index_name"
        )
        lengths = dict(cursor.fetchall())
    assert {"dj_job_claim", "dj_failed_queue"} <= set(lengths)
    assert max(lengths.values()) <= 3072 * 2 / 3
