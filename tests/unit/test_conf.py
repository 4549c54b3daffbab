"""DJANGO_JOBS: what is accepted, what is refused, and what a refusal says."""

import ast
import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st

from django_jobs import conf
from django_jobs.conf import JobsSettings, ProblemKind, QueueConfig, get_settings, read
from django_jobs.conf.model import ANY
from django_jobs.conf.reading import _SETTINGS
from django_jobs.definition import UNSET
from django_jobs.exceptions import SettingsError

SECRET = "S3cret-that-must-never-be-shown-anywhere-0123456789"
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def good(raw):
    settings, problems = read(raw, secret_key=SECRET)
    assert problems == []
    return settings


def only_problem(raw, **around):
    _, problems = read(raw, **{"secret_key": SECRET, **around})
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def test_without_any_setting_everything_has_a_default():
    settings = good({})
    assert settings.default_backend == "database"
    assert settings.backends["database"].path == conf.DATABASE_BACKEND
    assert settings.queue("mail") == QueueConfig("mail")
    assert settings.queue("mail").handlers is None
    assert settings.backend_for("mail") == "database"


def test_every_field_can_be_set_and_nothing_else():
    assert {key.lower() for key in _SETTINGS} == {field.name for field in fields(JobsSettings)}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("TIMEOUT", 10, 10.0),
        ("TIMEOUT", timedelta(minutes=2), 120.0),
        ("TIMEOUT", None, None),
        ("KILL_GRACE", 0, 0.0),
        ("LEASE_SECONDS", 1.5, 1.5),
        ("RESULT_TTL", timedelta(0), 0.0),
        ("MAX_RETRIES", 3, 3),
        ("RETRY", [1, 5], [1, 5]),
        ("RETRY", "shop.policies.Careful", "shop.policies.Careful"),
        ("UNKNOWN_HANDLER", "dead-letter", "dead-letter"),
        ("ENVIRONMENT", None, None),
        ("SITE", "shop-eu", "shop-eu"),
        ("ALLOWED_COMMANDS", ["clearsessions"], {"clearsessions": ANY}),
        ("TASK_MODULES", ["tasks", "shop.tasks"], ("tasks", "shop.tasks")),
        ("METRICS", "shop.metrics.Collector", ("shop.metrics.Collector",)),
        ("METRICS", ["a.B", "c.D"], ("a.B", "c.D")),
        ("METRICS", None, ()),
        ("METRICS", [], ()),
        ("MONITOR_TOKEN", "twenty-or-more-chars", "twenty-or-more-chars"),
        ("REDACT_KEYS", ["iban", "card_number"], ("iban", "card_number")),
        ("DEAD_LETTER_TTL", None, None),
        ("DEAD_LETTER_TTL", timedelta(days=30), 2_592_000.0),
        ("HANDLERS", {"resize": "shop.images.resize"}, {"resize": "shop.images.resize"}),
        (
            "SCHEDULE",
            {"nightly": {"CRON": "0 3 * * *", "HANDLER": "x"}},
            {"nightly": {"CRON": "0 3 * * *", "HANDLER": "x"}},
        ),
        ("SCHEDULE_HANDLERS", ["shop.jobs.send_report"], ("shop.jobs.send_report",)),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_value_is_read(key, value, expected):
    assert getattr(good({key: value}), key.lower()) == expected


def test_nested_settings_are_read():
    settings = good({"CIRCUIT_BREAKER": {"THRESHOLD": 2}})
    assert (settings.circuit_breaker.threshold, settings.circuit_breaker.cooldown) == (2, 60.0)
    assert repr(settings.queue("mail").timeout) == "UNSET"


def test_a_queue_overrides_what_it_names_and_nothing_more():
    settings = good(
        {
            "BACKENDS": {"a": {"BACKEND": "x.A"}, "b": {"BACKEND": "x.B", "OPTIONS": {"k": 1}}},
            "DEFAULT_BACKEND": "a",
            "TIMEOUT": 60,
            "QUEUES": {
                "fast": {"BACKEND": "b", "TIMEOUT": 5, "RETRY": "fixed", "LEASE_SECONDS": 9},
                "endless": {"TIMEOUT": None, "HANDLERS": [], "RATE_LIMIT": "60/m"},
            },
        }
    )
    assert settings.backends["b"].options == {"k": 1}
    assert settings.backend_for("fast") == "b"
    assert settings.backend_for("endless") == "a"
    assert settings.effective_timeout("fast") == 5
    assert settings.effective_timeout("endless") is None
    assert settings.effective_timeout("unlisted") == 60
    assert settings.queue("fast").timeout == 5
    assert settings.queue("unlisted").timeout is UNSET
    assert settings.effective_retry("fast") == "fixed"
    assert settings.effective_retry("endless") == "exponential"
    assert settings.effective_lease("fast") == 9
    assert settings.effective_lease("endless") == 30
    assert settings.queue("endless").handlers == ()
    assert settings.queue("endless").rate_limit == "60/m"


@pytest.mark.parametrize(
    ("raw", "path", "says"),
    [
        ({"TIMEOUT": -5}, "TIMEOUT", "-5"),
        ({"TIMEOUT": 0}, "TIMEOUT", "0"),
        ({"REDACT_KEYS": "iban"}, "REDACT_KEYS", "not a list"),
        ({"REDACT_KEYS": ["a.*"]}, "REDACT_KEYS[0]", "'a.*'"),
        ({"REDACT_KEYS": ["_"]}, "REDACT_KEYS[0]", "'_'"),
        ({"REDACT_KEYS": ["x" * 65]}, "REDACT_KEYS[0]", "xxx"),
        ({"REDACT_KEYS": [b"iban"]}, "REDACT_KEYS[0]", "b'iban'"),
        ({"TIMEOUT": True}, "TIMEOUT", "True"),
        ({"TIMEOUT": float("nan")}, "TIMEOUT", "nan"),
        ({"TIMEOUT": "30"}, "TIMEOUT", "'30'"),
        ({"POLL_INTERVAL": 10**5000}, "POLL_INTERVAL", "a int"),
        ({"LEASE_SECONDS": None}, "LEASE_SECONDS", "None"),
        ({"MAX_RETRIES": -1}, "MAX_RETRIES", "-1"),
        ({"MAX_RETRIES": 1.0}, "MAX_RETRIES", "1.0"),
        ({"MAX_CRASHES": 0}, "MAX_CRASHES", "0"),
        ({"MAX_PAYLOAD_BYTES": 0}, "MAX_PAYLOAD_BYTES", "0"),
        ({"MAX_RESULT_BYTES": 1023}, "MAX_RESULT_BYTES", "1023"),
        ({"MAX_RESULT_BYTES": 2_097_153}, "MAX_RESULT_BYTES", "2097153"),
        ({"VERIFY_SIGNATURES": 0}, "VERIFY_SIGNATURES", "0"),
        ({"STRICT_QUEUES": "no"}, "STRICT_QUEUES", "'no'"),
        ({"SITE": ""}, "SITE", "''"),
        ({"SITE": "a\nb"}, "SITE", r"'a\nb'"),
        ({"RETRY": "sometimes"}, "RETRY", "'sometimes'"),
        ({"RETRY": []}, "RETRY", "[]"),
        ({"UNKNOWN_HANDLER": "ignore"}, "UNKNOWN_HANDLER", "'ignore'"),
        ({"ALLOWED_COMMANDS": "clearsessions"}, "ALLOWED_COMMANDS", "not a list"),
        ({"ALLOWED_COMMANDS": ["a", 5]}, "ALLOWED_COMMANDS[1]", "5"),
        ({"ALLOWED_SHELL_COMMANDS": ["*"]}, "ALLOWED_SHELL_COMMANDS[0]", "'*'"),
        ({"TASK_MODULES": ["a-b"]}, "TASK_MODULES[0]", "'a-b'"),
        ({"HANDLERS": {"x": "nodots"}}, "HANDLERS['x']", "'nodots'"),
        ({"HANDLERS": ["x"]}, "HANDLERS", "list"),
        ({"METRICS": 5}, "METRICS", "5"),
        ({"SCHEDULE": {"x": "0 3 * * *"}}, "SCHEDULE['x']", "str"),
        ({"SCHEDULE": {"x": {"CRON": "0 3 * * *"}}}, "SCHEDULE['x']", "no HANDLER"),
        ({"SCHEDULE_HANDLERS": ["*"]}, "SCHEDULE_HANDLERS[0]", "*"),
        ({"CIRCUIT_BREAKER": {"THRESHOLD": 0}}, "CIRCUIT_BREAKER['THRESHOLD']", "0"),
        ({"BACKENDS": {}}, "BACKENDS", "empty"),
        ({"BACKENDS": {"database": {}}}, "BACKENDS['database']", "no BACKEND"),
        ({"BACKENDS": {"database": "a.B"}}, "BACKENDS['database']", "str"),
        (
            {"BACKENDS": {"database": {"BACKEND": "database"}}},
            "BACKENDS['database']['BACKEND']",
            "'database'",
        ),
        (
            {"BACKENDS": {"database": {"BACKEND": "a.B", "OPTIONS": 1}}},
            "BACKENDS['database']['OPTIONS']",
            "int",
        ),
        ({"QUEUES": ["mail"]}, "QUEUES", "list"),
        ({"QUEUES": {"mail": {"TIMEOUT": -1}}}, "QUEUES['mail']['TIMEOUT']", "-1"),
        ({"QUEUES": {"mail": {"RATE_LIMIT": 60}}}, "QUEUES['mail']['RATE_LIMIT']", "60"),
        ({"QUEUES": {"mail": {"RATE_LIMIT": "0/m"}}}, "QUEUES['mail']['RATE_LIMIT']", "'0/m'"),
        ({"QUEUES": {"mail": {"HANDLERS": "x"}}}, "QUEUES['mail']['HANDLERS']", "not a list"),
        ({"QUEUES": {"m": {"HANDLERS": ["a.*"]}}}, "QUEUES['m']['HANDLERS'][0]", "'a.*'"),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_a_way_out(raw, path, says):
    problem = only_problem(raw)
    assert problem.kind is ProblemKind.INVALID_VALUE
    assert problem.subject == path
    assert problem.message.startswith(path)
    assert says in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    ("raw", "path", "near"),
    [
        ({"TIMEOUTS": 5}, "TIMEOUTS", "'TIMEOUT'"),
        ({"timeout": 5}, "timeout", "'TIMEOUT'"),
        ({"SIGNING_KEY": SECRET}, "SIGNING_KEY", "'SIGNING_KEYS'"),
        ({5: 5}, "5", "known: "),
        ({"QUEUES": {"mail": {"HANDLER": []}}}, "QUEUES['mail']['HANDLER']", "'HANDLERS'"),
        (
            {"BACKENDS": {"database": {"BACKEND": "a.B", "OPTION": {"p": SECRET}}}},
            "BACKENDS['database']['OPTION']",
            "'OPTIONS'",
        ),
        ({"CIRCUIT_BREAKER": {"TRESHOLD": 5}}, "CIRCUIT_BREAKER['TRESHOLD']", "'THRESHOLD'"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(raw, path, near):
    problem = only_problem(raw)
    assert problem.kind is ProblemKind.UNKNOWN_KEY
    assert problem.subject == path
    assert near in problem.message
    assert SECRET not in str(problem)


def test_all_problems_are_told_at_once():
    _, problems = read({"TIMEOUT": -1, "SITE": 5, "X": 1, "QUEUES": {"A": {}}}, secret_key=SECRET)
    assert {problem.subject for problem in problems} == {"TIMEOUT", "SITE", "X", "QUEUES['A']"}


def test_what_is_no_dict_is_one_problem():
    problem = only_problem([("TIMEOUT", 5)])
    assert "DJANGO_JOBS is a list, not a dict" in problem.message


def test_a_refused_value_leaves_the_default_in_its_place():
    settings, _ = read({"TIMEOUT": "x", "MAX_RETRIES": 2}, secret_key=SECRET)
    assert (settings.timeout, settings.max_retries) == (300.0, 2)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"DEFAULT_BACKEND": "databse"}, "DEFAULT_BACKEND"),
        ({"BACKENDS": {"main": {"BACKEND": "a.B"}}}, "DEFAULT_BACKEND"),
        ({"QUEUES": {"mail": {"BACKEND": "redis"}}}, "QUEUES['mail']['BACKEND']"),
    ],
    ids=["typing error", "default left out", "on a queue"],
)
def test_an_alias_that_is_not_in_backends_is_told(raw, path):
    problem = only_problem(raw)
    assert (problem.kind, problem.subject) == (ProblemKind.UNKNOWN_BACKEND, path)


def test_a_refused_backend_is_not_told_again_by_those_who_use_it():
    only_problem({"BACKENDS": {"x": {}}, "DEFAULT_BACKEND": "x", "QUEUES": {"q": {"BACKEND": "x"}}})


@pytest.mark.parametrize("name", ["", "Mail", "a b", "-a", "a" * 65, "a\n", "é", 5])
def test_a_bad_queue_name_is_refused(name):
    assert only_problem({"QUEUES": {name: {}}}).kind is ProblemKind.QUEUE_NAME
    assert "lower-case" in good({}).queue_problem(name)


@pytest.mark.parametrize("name", ["a", "0", "mail.out_1-b", "a" * 64])
def test_a_good_queue_name_is_accepted(name):
    good({"QUEUES": {name: {}}})
    assert good({}).queue_problem(name) is None


def test_listed_queues_are_the_only_ones_while_strict():
    settings = good({"QUEUES": {"mail": {}, "reports": {}}})
    assert settings.queue_problem("mail") is None
    assert "did you mean 'mail'" in settings.queue_problem("male")
    assert "mail, reports" in settings.queue_problem("zzz")


@pytest.mark.parametrize(
    "raw", [{}, {"QUEUES": {}}, {"QUEUES": {"mail": {}}, "STRICT_QUEUES": False}]
)
def test_other_queues_are_fine_unless_listed_and_strict(raw):
    assert good(raw).queue_problem("other") is None


# -------------------------------------------------------------------------- never raises

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.timedeltas(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(max_size=5) | st.integers() | st.sampled_from([*_SETTINGS, "BACKEND"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(_SETTINGS)), anything, max_size=4) | anything)
def test_reading_never_raises(raw):
    settings, problems = read(raw, secret_key=SECRET)
    assert isinstance(settings, JobsSettings)
    assert all(problem.message and problem.hint for problem in problems)
    repr(settings)


# -------------------------------------------------------------------- the cached object


def test_the_settings_are_one_object_until_they_change(settings):
    first = get_settings()
    assert get_settings() is first
    settings.DJANGO_JOBS = {"MAX_RETRIES": 7}
    second = get_settings()
    assert second is not first
    assert second.max_retries == 7
    settings.SECRET_KEY = "another one, long enough to be a good key"
    assert get_settings().signing_keys != second.signing_keys
    third = get_settings()
    settings.SECRET_KEY_FALLBACKS = ["yet another"]
    assert len(get_settings().signing_keys) == len(third.signing_keys) + 1


def test_a_wrong_setting_raises_and_names_every_problem(settings):
    settings.DJANGO_JOBS = {"TIMEOUT": -1, "LEASE": 5}
    with pytest.raises(SettingsError) as caught:
        get_settings()
    assert isinstance(caught.value, ImproperlyConfigured)
    assert "TIMEOUT is -1" in str(caught.value)
    assert "'LEASE'" in str(caught.value)


def test_the_site_is_the_first_package_of_the_urls(settings):
    assert get_settings().site == "testproject"
    settings.ROOT_URLCONF = "shop.web.urls"
    assert get_settings().site == "shop"
    settings.ROOT_URLCONF = "urls"
    assert get_settings().site == "urls"
    settings.DJANGO_JOBS = {"SITE": "said"}
    assert get_settings().site == "said"


@pytest.mark.parametrize("urls", [..., None, ""])
def test_without_urls_the_site_is_the_first_package_of_the_settings(settings, monkeypatch, urls):
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings.worker")
    if urls is ...:
        del settings.ROOT_URLCONF
    else:
        settings.ROOT_URLCONF = urls
    settings.DJANGO_JOBS = {}  # so that they are read anew: of what is deleted nobody hears
    assert get_settings().site == "shop"


def test_the_key_of_the_environment_is_used(settings, monkeypatch):
    monkeypatch.setenv("JOBS_SIGNING_KEY", SECRET)
    settings.DJANGO_JOBS = {}
    assert [key.secret for key in get_settings().signing_keys] == [SECRET.encode()]


def test_a_site_without_a_secret_key_is_told_so(settings, monkeypatch):
    monkeypatch.delenv("JOBS_SIGNING_KEY", raising=False)
    settings.SECRET_KEY = ""
    with pytest.raises(ImproperlyConfigured):
        _ = django_settings.SECRET_KEY
    with pytest.raises(SettingsError, match="SECRET_KEY is empty"):
        get_settings()


# ---------------------------------------------------------------------------------- docs


def plain(value):
    """A default as somebody would write it in DJANGO_JOBS."""
    if isinstance(value, conf.BackendConfig):
        return {"BACKEND": value.path}
    if hasattr(value, "_asdict"):
        return {name.upper(): plain(inner) for name, inner in value._asdict().items()}
    if hasattr(value, "items"):
        return {key: plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


def test_the_docs_list_every_setting_with_its_true_default():
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", DOCS.read_text(), re.MULTILINE)
    documented = dict(rows)
    assert len(documented) == len(rows)
    derived = {
        "SIGNING_KEYS": "from the environment, else from `SECRET_KEY`",
        "SITE": "the first package of `ROOT_URLCONF`",
    }
    actual = {
        key: derived.get(key, plain(getattr(JobsSettings(), key.lower()))) for key in _SETTINGS
    }
    assert {
        key: text if key in derived else ast.literal_eval(text.strip("`"))
        for key, text in documented.items()
    } == actual


def test_the_docs_list_every_key_of_a_queue():
    documented = set(
        re.findall(r"^\| `QUEUES\[…\]\['([A-Z_]+)'\]` \|", DOCS.read_text(), re.MULTILINE)
    )
    assert documented == {name.upper() for name in QueueConfig._fields} - {"NAME"}
