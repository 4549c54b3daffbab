"""Every check: a set-up that triggers it, and one that does not."""

import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.core import checks as django_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.postgresql.psycopg_any import IsolationLevel

from django_jobs import checks
from django_jobs.checks import databases, handlers
from django_jobs.conf import DATABASE_BACKEND, read
from django_jobs.definition import Options
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import Registry
from tests.unit import backends_of_tests as own

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "django_jobs"
PLACES = ("conf/parsers.py", "checks/*.py", "tasks/checks.py", "backends/*/checks.py")
SOURCES = [path for place in PLACES for path in sorted(PACKAGE.glob(place))]
DOCS = ROOT / "docs" / "reference" / "checks.md"
OWN = "tests.unit.backends_of_tests"
A_SIGNAL = "django.core.signals.request_started"
GOOD_KEY = "0123456789abcdefghijklmnopqrstuvwxyz"
DATABASE = {"BACKEND": DATABASE_BACKEND}

triggered: dict[str, dict] = {
    "E001": {"LEASE": 5},
    "E002": {"TIMEOUT": -1},
    "E003": {"BACKENDS": {"database": {"BACKEND": "tests.unit.no_such.Backend"}}},
    "E004": {"BACKENDS": {"database": {"BACKEND": f"{OWN}.NotABackend"}}},
    "E005": {"DEFAULT_BACKEND": "databse"},
    "E006": {"QUEUES": {"Mail": {}}},
    "E007": {"BACKENDS": {"database": {**DATABASE, "OPTIONS": {"DATABASE": "othr"}}}},
    "E009": {
        "VERIFY_SIGNATURES": False,
        "BACKENDS": {"database": {"BACKEND": f"{OWN}.OwnBroker"}},
    },
    "E010": {"SIGNING_KEYS": ["guess me"]},
    "E011": {"SIGNING_KEYS": [("k", GOOD_KEY), ("k", GOOD_KEY[::-1])]},
    "E012": {"SIGNING_KEYS": [""]},
    "E013": {"LEASE_SECONDS": 2.5, "KILL_GRACE": 1},
    "E014": {"HANDLERS": {"resize": "tests.unit.no_such.resize"}},
    "E015": {"RETRY": f"{OWN}.NotABackend"},
    "E016": {"BACKENDS": {"database": {"BACKEND": f"{OWN}.NeedsUrl"}}},
    "E020": {"ALLOWED_EVENTS": [f"{OWN}.a_function"]},
    "E030": {"ALLOWED_URLS": ["https://a.example"]},
    "E031": {"ALLOWED_URLS": [{"URL": "https://a.example/", "METHODS": ["CONNECT"]}]},
    "E032": {"ALLOWED_URLS": [{"URL": "https://a.example/", "HEADERS": ["Host"]}]},
    "E033": {"ALLOWED_URLS": [{"URL": "https://a.example/", "PRIVATE": ["0.0.0.0/0"]}]},
    "E034": {"ALLOWED_URLS": [{"URL": "https://a.example/", "CA_FILE": "/no/such.pem"}]},
    "E050": {"METRICS": [f"{OWN}.NotABackend"]},
    "W001": {"VERIFY_SIGNATURES": False},
    "W002": {"SIGNING_KEYS": ["only twenty-one bytes"]},
    "W003": {"KILL_GRACE": 0},
    "W004": {"KILL_GRACE": 60},
    "W005": {"QUEUES": {"mail": {"HANDLERS": ["shop.nobody.knows"]}}},
    "W006": {"QUEUES": {"mail": {"HANDLERS": ["command"]}}, "ALLOWED_EVENTS": [A_SIGNAL]},
    "W007": {"BACKENDS": {"database": {**DATABASE, "OPTIONS": {"DATABASE": "other"}}}},
    "W014": {"BACKENDS": {"database": DATABASE, "slow": DATABASE}},
    "W020": {"ALLOWED_COMMANDS": ["clearsesions"]},
    "W021": {"ALLOWED_COMMANDS": {"flush": None}},
    "W022": {"ALLOWED_SHELL_COMMANDS": ["/usr/bin/env"]},
    "W024": {"ALLOWED_SHELL_COMMANDS": ["/usr/bin/no-such-program"]},
    "W030": {"ALLOWED_URLS": ["https://*/*"]},
    "W031": {"ALLOWED_URLS": ["http://a.example/*"]},
}
ON_A_DATABASE = {
    "E008": {"vendor": "oracle", "display_name": "Oracle", "settings_dict": {"NAME": "x"}},
    "W008": {"vendor": "sqlite", "settings_dict": {"NAME": "file:x?mode=memory&cache=shared"}},
    "W009": {
        "vendor": "mysql",
        "settings_dict": {"NAME": "x", "OPTIONS": {"isolation_level": "repeatable read"}},
    },
    "W010": {"vendor": "sqlite", "settings_dict": {"NAME": "x.sqlite3"}},
    "W011": {
        "vendor": "postgresql",
        "settings_dict": {"NAME": "x", "OPTIONS": {"isolation_level": 3}},
    },
    "E019": {"vendor": "postgresql", "settings_dict": {"NAME": "x", "AUTOCOMMIT": False}},
}
ON_REDIS = {"E060", "E061", "W015", "W060", "W061"}  # tests/integration/redis
TESTED_WITH_FILES = {"E021", "W023"}  # tests/unit/test_checks_reach.py
OF_SCHEDULES = {*(f"E04{n}" for n in range(5)), "W040", "W041", "W042"}  # tests/unit/cron
OF_JOBS_AND_NAMES = {"W016", "W017", "W018"}  # below
ON_AN_OUTBOX = {"E070", "W070"}  # tests/unit/test_outbox_settings.py

ON_TASKS = {
    "E017": {"OPTIONS": {"BACKENT": "database"}},
    "E018": {"OPTIONS": {"BACKEND": "databse"}},
    "W012": {"QUEUES": ["default", "x" * 65]},
    "W013": {"QUEUES": ["default", "away"]},
}

WITHOUT_THE_APP = "E022"  # tests/unit/tasks/test_before_apps.py


def ids(messages):
    return [message.id.removeprefix("django_jobs.") for message in messages]


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch):
    monkeypatch.delenv("JOBS_SIGNING_KEY", raising=False)


@pytest.fixture(autouse=True)
def jobs(monkeypatch):
    """The jobs of no other test."""
    registry = Registry()
    monkeypatch.setattr(handlers, "registry", registry)
    return registry


@pytest.fixture
def database(monkeypatch):
    """Lets the default alias look like another database; nothing connects."""

    def pretend(**looks):
        monkeypatch.setattr(
            databases,
            "_connections",
            lambda _settings, vendor="": (
                [("default", SimpleNamespace(**looks))] if vendor in {"", looks["vendor"]} else []
            ),
        )

    return pretend


@pytest.fixture
def plain_database(database):
    database(vendor="postgresql", display_name="PostgreSQL", settings_dict={"NAME": "x"})


@pytest.mark.parametrize("check_id", sorted(triggered))
def test_a_set_up_triggers_its_check_and_no_other(check_id, settings, plain_database):
    settings.DJANGO_JOBS = triggered[check_id]
    messages = checks.check_jobs()
    assert ids(messages) == [check_id]
    (message,) = messages
    is_error = message.level >= django_checks.ERROR
    assert is_error == check_id.startswith("E")
    assert message.msg.endswith(".")
    assert message.hint


@pytest.mark.parametrize("check_id", sorted(ON_A_DATABASE))
def test_a_database_triggers_its_check_and_no_other(check_id, settings, database):
    settings.DJANGO_JOBS = {}
    database(**ON_A_DATABASE[check_id])
    assert ids(checks.check_jobs()) == [check_id]


def test_there_is_nothing_to_say_of_the_defaults(settings, plain_database):
    settings.DJANGO_JOBS = {}
    assert checks.check_jobs() == []


def test_every_id_has_a_test_and_every_id_is_documented_in_order():
    used = set()
    for source in SOURCES:
        used |= set(re.findall(r"django_jobs\.([EW]\d{3})", source.read_text()))
    files = TESTED_WITH_FILES | OF_JOBS_AND_NAMES | OF_SCHEDULES | ON_REDIS | ON_AN_OUTBOX
    files |= {WITHOUT_THE_APP}
    tested = ON_A_DATABASE.keys() | ON_TASKS.keys() | files
    assert used == triggered.keys() | tested
    documented = re.findall(r"^### `django_jobs\.([EW]\d{3})`", DOCS.read_text(), re.MULTILINE)
    assert documented == sorted(used)


def test_manage_py_check_runs_them(settings, plain_database):
    settings.DJANGO_JOBS = {"KILL_GRACE": 0}
    assert checks.check_jobs in django_checks.registry.registry.get_checks()
    assert ids(django_checks.run_checks(tags=[checks.TAG])) == ["W003"]


def test_checks_of_another_app_leave_ours_out(settings):
    settings.DJANGO_JOBS = {"KILL_GRACE": 0}
    assert checks.check_jobs(app_configs=[apps.get_app_config("auth")]) == []
    assert "W003" in ids(checks.check_jobs(app_configs=[apps.get_app_config("django_jobs")]))


def test_no_check_connects(settings, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a check connected")

    for alias in connections:
        monkeypatch.setattr(connections[alias], "connect", refuse)
    settings.DJANGO_JOBS = {"BACKENDS": {"a": DATABASE}, "DEFAULT_BACKEND": "a"}
    checks.check_jobs()


# ------------------------------------------------------------------------------ the details


def messages_of(settings, **jobs):
    settings.DJANGO_JOBS = jobs
    return checks.check_jobs()


def test_a_sync_backend_shares_a_table_with_any_other(settings, plain_database):
    sync = {"BACKEND": "django_jobs.backends.sync.SyncBackend"}
    assert ids(messages_of(settings, BACKENDS={"here": sync, "database": DATABASE})) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{OWN}.OwnDatabase", ["W001"]),
        (f"{OWN}.OwnBroker", ["E009"]),
        (f"{OWN}.OwnMemory", []),
        ("django_jobs.backends.sync.SyncBackend", []),
        ("tests.unit.no_such.Backend", ["E003"]),
        (f"{OWN}.NotABackend", ["E004"]),
    ],
)
def test_unverified_messages_are_judged_by_where_they_wait(
    path, expected, settings, plain_database
):
    found = messages_of(settings, VERIFY_SIGNATURES=False, BACKENDS={"database": {"BACKEND": path}})
    assert ids(found) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("x" * 15, ["E010"]),
        ("abcdefghijklmnop", ["W002"]),
        ("a" * 64, ["W002"]),
        (GOOD_KEY, []),
    ],
    ids=["15 bytes", "16 bytes", "one letter", "good"],
)
def test_keys_are_judged_by_length_and_variety_and_not_shown(
    key, expected, settings, plain_database
):
    found = messages_of(settings, SIGNING_KEYS=[GOOD_KEY[::-1], ("second", key)])
    assert ids(found) == expected
    assert all("'second'" in m.msg and key not in f"{m.msg}{m.hint}" for m in found)


def test_an_empty_key_in_the_environment_is_told(settings, monkeypatch, plain_database):
    monkeypatch.setenv("JOBS_SIGNING_KEY", "")
    found = messages_of(settings)
    assert ids(found) == ["E012"]
    assert "JOBS_SIGNING_KEY" in found[0].msg


def test_a_short_lease_of_a_queue_is_told(settings, plain_database):
    (message,) = messages_of(settings, QUEUES={"q": {"LEASE_SECONDS": 2}}, KILL_GRACE=1)
    assert message.id == "django_jobs.E013"
    assert "QUEUES['q']['LEASE_SECONDS'] is 2 seconds" in message.msg


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (f"{OWN}.NOT_CALLABLE", "neither a function"),
        (f"{OWN}.missing", "cannot be imported"),
        (f"{OWN}.a_function", None),
        (f"{OWN}.HANDLER_OBJECT", None),
    ],
)
def test_a_handler_path_leads_to_something_to_run(path, says, settings, plain_database):
    found = messages_of(settings, HANDLERS={"x": path})
    assert ids(found) == ([] if says is None else ["E014"])
    assert says is None or says in found[0].msg


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (f"{OWN}.missing", "cannot be imported"),
        (f"{OWN}.a_function", "no delay"),
        (f"{OWN}.NeedyPolicy", "needs arguments"),
        (f"{OWN}.Policy", None),
        (f"{OWN}.POLICY_OBJECT", None),
        ("exponential", None),
        ([1, 2], None),
        ({"STRATEGY": "fixed"}, None),
    ],
    ids=str,
)
def test_a_retry_policy_of_a_queue_can_be_used(spec, says, settings, plain_database):
    found = messages_of(settings, QUEUES={"q": {"RETRY": spec}})
    assert ids(found) == ([] if says is None else ["E015"])
    assert says is None or says in found[0].msg


def test_handlers_that_exist_may_be_allowed(settings, plain_database):
    found = messages_of(
        settings,
        HANDLERS={"mine": f"{OWN}.a_function"},
        ALLOWED_COMMANDS=["clearsessions"],
        QUEUES={"q": {"HANDLERS": ["mine", "command"]}},
    )
    assert found == []


def test_a_backend_speaks_for_itself(settings, plain_database):
    found = messages_of(settings, BACKENDS={"database": {"BACKEND": f"{OWN}.Complaining"}})
    assert found == own.COMPLAINTS


def test_the_error_of_a_backend_may_hold_a_password_and_is_not_shown(settings, plain_database):
    config = {"BACKEND": f"{OWN}.NeedsUrl", "OPTIONS": {"PASSWORD": "hush"}}
    (message,) = messages_of(settings, BACKENDS={"database": config})
    assert message.id == "django_jobs.E016"
    assert "hush" not in f"{message.msg}{message.hint}"


def test_a_refused_path_is_told_once(settings, plain_database):
    found = messages_of(settings, BACKENDS={"database": {"BACKEND": "database"}})
    assert ids(found) == ["E002"]


def test_the_router_of_the_package_satisfies_the_route_check(settings, plain_database):
    settings.DATABASE_ROUTERS = ["django_jobs.routers.JobsRouter"]
    assert messages_of(settings, **triggered["W007"]) == []


def test_a_router_of_ones_own_does_as_well(settings, plain_database):
    settings.DATABASE_ROUTERS = [f"{OWN}.EverythingToOther"]
    assert messages_of(settings, **triggered["W007"]) == []
    assert ids(messages_of(settings)) == ["W007"]


def test_the_router_does_not_hide_a_wrong_setting(settings, plain_database):
    settings.DATABASE_ROUTERS = ["django_jobs.routers.JobsRouter"]
    assert ids(messages_of(settings, TIMEOUT=-1)) == ["E002"]


def test_a_router_that_keeps_the_tables_away_is_told(settings, plain_database):
    settings.DATABASE_ROUTERS = [f"{OWN}.NothingMigrates"]
    (message,) = messages_of(settings)
    assert message.id == "django_jobs.W007"
    assert "may not be migrated" in message.msg


def test_each_database_is_looked_at_once_and_those_without_a_driver_not_at_all(monkeypatch):
    backends = {
        "one": DATABASE,
        "two": DATABASE,
        "broker": {"BACKEND": f"{OWN}.OwnBroker"},
        "gone": {**DATABASE, "OPTIONS": {"DATABASE": "gone"}},
        "driverless": {**DATABASE, "OPTIONS": {"DATABASE": "driverless"}},
    }
    parsed, problems = read({"BACKENDS": backends, "DEFAULT_BACKEND": "one"}, secret_key="x")
    assert problems == []
    monkeypatch.setattr(databases, "connections", PretendedConnections())
    assert [alias for alias, _ in databases._connections(parsed)] == ["default"]
    assert [alias for alias, _ in databases._connections(parsed, "mysql")] == ["default"]
    assert list(databases._connections(parsed, "sqlite")) == []


class PretendedConnections:
    settings = {"default": {}, "driverless": {}}

    def __getitem__(self, alias):
        if alias == "driverless":
            raise ImproperlyConfigured("no driver")
        return SimpleNamespace(vendor="mysql")


@pytest.mark.only_on("sqlite")
def test_the_real_connection_is_read(settings, monkeypatch):
    assert messages_of(settings) == []
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {})
    assert ids(messages_of(settings)) == ["W010"]
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", ":memory:")
    assert ids(messages_of(settings)) == ["W008"]


@pytest.mark.parametrize("level", ["read committed", "READ COMMITTED"])
def test_read_committed_is_fine(level, settings, database):
    database(vendor="mysql", settings_dict={"NAME": "x", "OPTIONS": {"isolation_level": level}})
    assert messages_of(settings) == []


def test_the_isolation_level_of_the_server_is_not_trusted(settings, database):
    database(
        vendor="mysql",
        display_name="MySQL",
        settings_dict={"NAME": "x", "OPTIONS": {"isolation_level": None}},
    )
    assert ids(messages_of(settings)) == ["W009"]


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"isolation_level": IsolationLevel.REPEATABLE_READ}, "REPEATABLE READ"),
        ({"isolation_level": IsolationLevel.SERIALIZABLE}, "SERIALIZABLE"),
        ({"options": "-c default_transaction_isolation=serializable"}, "SERIALIZABLE"),
        ({"options": r"-c default_transaction_isolation=repeatable\ read"}, "REPEATABLE READ"),
        ({"isolation_level": IsolationLevel.READ_COMMITTED}, ""),
        ({"options": "-c statement_timeout=5000"}, ""),
        ({"options": "-c default_transaction_isolation=read\\ committed"}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_levels_of_postgresql_that_decide_by_old_snapshots_are_named(
    options, level, settings, database
):
    database(vendor="postgresql", settings_dict={"NAME": "x", "OPTIONS": options})
    messages = messages_of(settings)
    assert ids(messages) == (["W011"] if level else [])
    assert all(f"makes transactions {level}:" in message.msg for message in messages)


@pytest.mark.parametrize("vendor", ["postgresql", "mysql", "sqlite"])
def test_without_autocommit_nothing_works(vendor, settings, database):
    options = {"transaction_mode": "IMMEDIATE"} if vendor == "sqlite" else {}
    told = {"NAME": "x.sqlite3", "OPTIONS": options, "AUTOCOMMIT": False}
    database(vendor=vendor, settings_dict=told)
    (message,) = messages_of(settings)
    assert ids([message]) == ["E019"]
    assert message.is_serious()


@pytest.mark.parametrize("mode", ["IMMEDIATE", "immediate", "EXCLUSIVE"])
def test_a_locking_sqlite_is_fine(mode, settings, database):
    options = {"transaction_mode": mode}
    database(vendor="sqlite", settings_dict={"NAME": "x.sqlite3", "OPTIONS": options})
    assert messages_of(settings) == []


@pytest.mark.parametrize(
    "entry",
    [
        "https://a.example/*",
        {"URL": "http://a.example/*", "PRIVATE": ["10.0.0.0/8"]},
    ],
    ids=str,
)
def test_an_entry_that_opens_what_it_seems_to_is_fine(entry, settings, plain_database):
    settings.DJANGO_JOBS = {"ALLOWED_URLS": [entry]}
    assert checks.check_jobs() == []


def test_an_entry_without_a_readable_url_is_reported_once(settings, plain_database):
    settings.DJANGO_JOBS = {
        "ALLOWED_URLS": ["no url", {"URL": 5}, "https://*/*", "http://a.example"]
    }
    messages = checks.check_jobs()
    assert ids(messages) == ["E002", "E002", "W030", "E030"]
    assert [message.msg.split("]")[0] for message in messages] == [
        *("ALLOWED_URLS[0", "ALLOWED_URLS[1", "ALLOWED_URLS[2", "ALLOWED_URLS[3"),
    ]


# -- jobs and names --------------------------------------------------------------------------------


def register(jobs, key, queue=None, function=print, **options):
    declared = Options(queue=queue).using(**options)
    jobs.register(FunctionHandler(key, function, takes_context=False, options=declared))


def test_a_job_whose_queue_is_not_in_queues_is_noticed(settings, plain_database, jobs):
    for key, queue in {
        "a.send": "mial",
        "a.note": "mial",
        "a.other": "mail",
        "a.bare": None,
    }.items():
        register(jobs, key, queue)
    settings.DJANGO_JOBS = {"QUEUES": {"mail": {}}}
    (message,) = checks.check_jobs()
    assert (message.id, message.level) == ("django_jobs.W016", django_checks.WARNING)
    assert message.msg == (
        "The queue 'mial' of a.note, a.send is not in QUEUES (did you mean 'mail'?): "
        "an enqueue to it is refused."
    )
    assert "STRICT_QUEUES" in message.hint


def test_of_many_jobs_of_such_a_queue_some_are_named(settings, plain_database, jobs):
    for number in range(5):
        register(jobs, f"a.n{number}", "mial")
    settings.DJANGO_JOBS = {"QUEUES": {"mail": {}}}
    assert "of a.n0, a.n1, a.n2 and 2 more is not" in checks.check_jobs()[0].msg


@pytest.mark.parametrize("raw", [{}, {"QUEUES": {"mail": {}}, "STRICT_QUEUES": False}])
def test_where_every_queue_is_allowed_none_is_noticed(settings, plain_database, jobs, raw):
    register(jobs, "a.send", "mial")
    settings.DJANGO_JOBS = raw
    assert checks.check_jobs() == []


UNABLE = {"unable": {"BACKEND": f"{OWN}.OwnBroker"}}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"priority": 5}, "has no priority"),
        ({"delay": 60}, "has no delay"),
        ({"unique_key": "one"}, "has no unique"),
        ({"idempotency_key": "one"}, "has no keys"),
        ({"concurrency_key": "one", "concurrency": 2}, "has no keys"),
        ({"single_instance": True}, "has no keys"),
        ({"atomic": True}, "atomic=True needs jobs in the handler's own database"),
        ({"delay": 60, "expires": 60}, "has no delay"),
        ({"timeout": 5, "max_retries": 3}, ""),
    ],
    ids=str,
)
@pytest.mark.parametrize("place", [{"queue": "away"}, {"backend": "unable"}, {}], ids=str)
def test_a_job_that_its_backend_cannot_enqueue_as_declared_is_noticed(
    settings, plain_database, jobs, options, why, place
):
    register(jobs, "a.send", **options, **place)
    settings.DJANGO_JOBS = {
        "BACKENDS": {"database": DATABASE, **UNABLE},
        "DEFAULT_BACKEND": "database" if place else "unable",
        "QUEUES": {"away": {"BACKEND": "unable"}, "default": {}},
    }
    messages = checks.check_jobs()
    assert ids(messages) == (["W018"] if why else [])
    queue = place.get("queue", "default")
    for message in messages:
        assert message.level == django_checks.WARNING
        assert message.msg.startswith(f"An enqueue of a.send to the queue {queue!r} is refused: ")
        assert why in message.msg


def test_jobs_that_are_refused_for_one_reason_are_told_together(settings, plain_database, jobs):
    for number in range(5):
        register(jobs, f"a.n{number}", priority=number)
    settings.DJANGO_JOBS = {"BACKENDS": UNABLE, "DEFAULT_BACKEND": "unable"}
    (message,) = checks.check_jobs()
    assert message.msg == (
        "An enqueue of a.n1, a.n2, a.n3 and 1 more to the queue 'default' is refused: the backend "
        "'unable' (OwnBroker) has no priority, which the options of this job ask for."
    )


def test_what_the_enqueue_refuses_for_other_reasons_is_noticed_too(settings, plain_database, jobs):
    async def send():
        pass

    register(jobs, "a.send", function=send, atomic=True)
    register(jobs, "a.late", delay=60, expires=60)
    settings.DJANGO_JOBS = {}
    late, send = checks.check_jobs()
    assert ids([late, send]) == ["W018", "W018"]
    assert "atomic=True needs a plain function; a.send is a coroutine" in late.msg + send.msg
    assert "is over before the job may run" in late.msg + send.msg


@pytest.mark.parametrize(
    ("jobs_settings", "expected"),
    [
        ({"BACKENDS": {"database": {"BACKEND": f"{OWN}.NeedsUrl"}}}, ["E016"]),
        ({"BACKENDS": {"database": {"BACKEND": f"{OWN}.NotABackend"}}}, ["E004"]),
        ({"BACKENDS": {"database": {"BACKEND": "tests.unit.no_such.Backend"}}}, ["E003"]),
        ({"BACKENDS": {"database": {"BACKEND": 5}}}, ["E002"]),
        ({"DEFAULT_BACKEND": "databse"}, ["E005"]),
        ({"BACKENDS": {"database": {**DATABASE, "OPTIONS": {"DATABASE": "othr"}}}}, ["E007"]),
        ({"QUEUES": {"mail": {}}}, ["W016"]),
    ],
    ids=str,
)
def test_of_a_backend_that_cannot_be_made_only_that_is_told(
    settings, plain_database, jobs, jobs_settings, expected
):
    register(jobs, "a.send", "mial", priority=5, atomic=True)
    settings.DJANGO_JOBS = jobs_settings
    assert ids(checks.check_jobs()) == expected


def test_the_options_of_a_task_without_its_queue_are_not_judged(settings, plain_database, jobs):
    register(jobs, "a.send", atomic=True)
    jobs.get("a.send").is_task = True
    settings.DJANGO_JOBS = {"BACKENDS": UNABLE, "DEFAULT_BACKEND": "unable"}
    assert checks.check_jobs() == []


def test_options_are_judged_without_a_connection(settings, jobs, monkeypatch):
    def refuse(*_args):
        raise AssertionError("a check connected")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(connections["default"], "connect", refuse)
    register(jobs, "a.send", "away", atomic=True)
    register(jobs, "a.write", "here", atomic=True, timeout=None)
    redis = {
        "BACKEND": "django_jobs.backends.redis.RedisBackend",
        "OPTIONS": {"URL": "redis://127.0.0.1:1"},
    }
    raw = {
        "BACKENDS": {"database": DATABASE, "redis": redis},
        "QUEUES": {"away": {"BACKEND": "redis"}, "here": {}},
    }
    parsed, problems = read(raw, secret_key=GOOD_KEY)
    refused = [message.msg for message in handlers.check_options_of_jobs(parsed, problems)]
    assert "a.send to the queue 'away'" in refused[0]
    limited = connections["default"].vendor == "sqlite"
    assert [("a.write to the queue 'here'" in text) for text in refused[1:]] == [True] * limited


@pytest.mark.parametrize(
    "name",
    ["DJANGO_JOB", "DJANGOJOBS", "JOBS", "DJANGO_JOBS_SETTINGS", "DJANGO_JBOS", "JANGO_JOBS"],
)
def test_a_setting_with_nearly_the_name_of_ours_is_noticed(settings, plain_database, name):
    del settings.DJANGO_JOBS
    setattr(settings, name, {"QUEUES": {"mail": {}}, "MAX_RETRIES": 3, "TIMEOT": 5})
    (message,) = checks.check_jobs()
    assert message.id == "django_jobs.W017"
    assert message.msg.startswith(f"The setting {name} looks like DJANGO_JOBS, which is not set")
    assert "Name it DJANGO_JOBS." in message.hint


@pytest.mark.parametrize("name", ["django_jobs", "Django_Jobs"])
def test_a_name_that_is_not_in_capitals_is_noticed_too(settings, plain_database, monkeypatch, name):
    del settings.DJANGO_JOBS
    monkeypatch.setattr("testproject.settings." + name, {"TIMEOUT": 5}, raising=False)
    (message,) = checks.check_jobs()
    assert (message.id, name in message.msg) == ("django_jobs.W017", True)


@pytest.mark.parametrize(
    "others",
    [
        {"JOBS": {"nightly": {}, "weekly": {}}},
        {"JOBS": ["a", "b"]},
        {"DJANGO_JOBS_BASE": {}},
        {"CRONJOBS": {"TIMEOUT": 3}},
        {"DJANGO_RQ": {"TIMEOUT": 3}},
        {"DJANGO_JOBS": {}, "JOBS": {"TIMEOUT": 3}},
    ],
)
def test_settings_of_others_are_not(settings, plain_database, others):
    del settings.DJANGO_JOBS
    for name, value in others.items():
        setattr(settings, name, value)
    assert checks.check_jobs() == []
