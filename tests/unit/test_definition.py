"""Options: what each takes, what it refuses, and that an error names option and value."""

import enum
import re
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from django.utils.safestring import SafeString
from hypothesis import example, given
from hypothesis import strategies as st

from django_jobs import define, job
from django_jobs.clock import to_datetime
from django_jobs.conf import JobsSettings
from django_jobs.cron.decorator import CronOptions
from django_jobs.cron.options import ScheduleOptions
from django_jobs.definition import (
    QUEUE_NAME,
    UNSET,
    JobDefinition,
    JobOptions,
    Options,
    name_among_tasks,
    queue_of_tasks,
)
from django_jobs.enqueue import resolved
from django_jobs.exceptions import InvalidJob, InvalidOption
from django_jobs.wire.envelope import MAX_COUNT, MAX_MOMENT, MAX_SECONDS

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NAIVE = datetime(2030, 1, 1, 12)  # noqa: DTZ001 - the mistake under test
NAN, INFINITY = float("nan"), float("inf")


class Level(enum.IntEnum):
    HIGH = 10


NO_TEXT = ["", 5, True, [], b"bytes", "a\nb", "a\x00b", "tab\t", "\x7f", "\ud800", "\u2028"]
NO_NUMBER = ["5", True, False, [], {}, Decimal(5), 1j, NAN, INFINITY, -INFINITY]
NO_COUNT = [1.0, 0.5, 10**400, *NO_NUMBER]
NO_SECONDS = [-1, -0.001, timedelta(-1), MAX_SECONDS + 1, 10**400, NOON, *NO_NUMBER]

GOOD = {
    "queue": ["default", "a", "0", "mail-2.eu_west", "q" * 64, None],
    "backend": ["database", "b" * 64, "Any Alias", None],
    "name": ["n", "n" * 255, "Größe \U0001f600", SafeString("safe"), None],
    "priority": [-100, 0, 100, Level.HIGH],
    "max_retries": [0, 5, MAX_COUNT - 1, Level.HIGH, None],
    "retry": ["none", "exponential", "shop.retry.Policy", [1, 2.5], None],
    "timeout": [0.001, 30, MAX_SECONDS, None],
    "delay": [0, 0.5, 60, MAX_SECONDS, None],
    "run_at": [NOON, None],
    "expires": [0, 3600, NOON, None],
    "idempotency_key": ["i", "i" * 255, None],
    "unique_key": ["u", "u" * 255, None],
    "single_instance": ["s", True, False, None],
    "concurrency_key": ["c" * 255, None],
    "concurrency": [1, MAX_COUNT, None],
    "atomic": [True, False, None],
    "on_conflict": ["return", "raise", "replace"],
    "result_ttl": [0, 60, None],
    "max_crashes": [1, MAX_COUNT, None],
    "tenant": [None],
    "trace_id": ["t" * 64, None],
    "meta": [{}, {"a": [1, None, {"b": "c"}]}, None],
}
BAD = {
    "queue": ["", "Mail", "mail\n", "\nmail", "a b", "-a", ".a", "é", "a/b", "q" * 65, 5, b"mail"],
    "backend": ["b" * 65, *NO_TEXT],
    "name": ["n" * 256, *NO_TEXT],
    "priority": [-101, 101, *NO_COUNT],
    "max_retries": [-1, MAX_COUNT, *NO_COUNT],
    "retry": ["", "sometimes", "5.0", "a..b", [], {}.keys(), 5, True, [-1], ["5"], {"BASE": "5"}],
    "timeout": [0, 0.0, timedelta(0), *NO_SECONDS],
    "delay": NO_SECONDS,
    "run_at": [NAIVE, 60, 0.5, "2030-01-01T12:00Z", date(2030, 1, 1), True, timedelta(-1)],
    "expires": [NAIVE, *(value for value in NO_SECONDS if value is not NOON)],
    "idempotency_key": ["i" * 256, *NO_TEXT],
    "unique_key": ["u" * 256, *NO_TEXT],
    "single_instance": ["s" * 256, "", 5, [], "a\nb"],
    "concurrency_key": ["c" * 256, *NO_TEXT],
    "concurrency": [0, -1, MAX_COUNT + 1, *NO_COUNT],
    "atomic": [0, 1, "yes", []],
    "on_conflict": ["Return", "ignore", "", None, 5, True, []],
    "result_ttl": NO_SECONDS,
    "max_crashes": [0, -1, MAX_COUNT + 1, *NO_COUNT],
    "tenant": ["acme", "t" * 256, *NO_TEXT],
    "trace_id": ["t" * 65, *NO_TEXT],
    "meta": [[], "text", 5, [("a", 1)], {1: 2}, {"a": NOON}, {"a": NAN}, {"a": "\x00"}],
}


def shown(case) -> str:
    return f"{case[0]}={case[1]!r}"[:60]


def cases(table):
    found = [(name, value) for name, values in table.items() for value in values]
    return pytest.mark.parametrize(("name", "value"), found, ids=map(shown, found))


def refusal_of(**options) -> str:
    with pytest.raises(InvalidOption) as refused:
        Options().using(**options)
    return str(refused.value)


@cases(GOOD)
def test_a_good_value_is_taken_as_it_is(name, value):
    needed = {
        "concurrency": {"concurrency_key": "key"},
        "on_conflict": {"unique_key": "key"},
    }.get(name, {})
    assert getattr(Options().using(**{name: value, **needed}), name) == value


@cases(BAD)
def test_a_bad_value_is_refused_in_one_line_that_names_the_option(name, value):
    message = refusal_of(**{name: value})
    # A run_at that is a length of time is a delay by another name.
    assert name in message or (name == "run_at" and "delay" in message)
    assert "\n" not in message
    assert len(message) < 300


def test_every_option_has_good_and_bad_cases():
    every = {field.name for field in fields(Options)}
    assert GOOD.keys() == every
    assert BAD.keys() == every


def test_the_types_of_the_decorator_know_the_same_options():
    assert JobOptions.__annotations__.keys() == {field.name for field in fields(Options)}


def test_the_types_of_schedules_know_the_same_options_but_those_of_one_enqueue():
    of_jobs = CronOptions.__annotations__.keys() - ScheduleOptions.__annotations__.keys()
    for_one_job = {"delay", "run_at", "name", "idempotency_key", "unique_key", "on_conflict"}
    assert of_jobs == JobOptions.__annotations__.keys() - for_one_job - {"trace_id"}


IN_NO_TERM = {"on_conflict": "for the enqueue alone", "tenant": "not supported yet"}


@pytest.mark.parametrize("name", [option.name for option in fields(Options)])
def test_every_option_reaches_the_terms(name):
    if name in IN_NO_TERM:
        return
    needed = {"concurrency": {"concurrency_key": "key"}}.get(name, {})
    with_it = Options().using(**{name: GOOD[name][0] or GOOD[name][1]}, **needed)
    assert terms_of(with_it) != terms_of(Options(**needed))


def terms_of(options):
    queue, backend = options.queue or "other", options.backend or "other"
    return resolved("shop.send", queue, options, backend, JobsSettings())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 101}, "priority is 101; it is a whole number from -100 to 100"),
        ({"delay": -1}, "delay is -1 seconds; it lies between 0 and 100 years"),
        ({"delay": "soon"}, "delay is 'soon'; give seconds or a timedelta"),
        ({"timeout": 0}, "timeout is 0; give seconds, or None for no time limit"),
        ({"run_at": 60}, "run_at is 60; use delay= for a number of seconds"),
        ({"run_at": "noon"}, "run_at is 'noon'; give an aware datetime"),
        ({"name": ""}, "name is ''; it is a text of 1 to 255 characters"),
        ({"name": "a\nb"}, "name is 'a\\nb'; it holds a control character"),
        ({"on_conflict": "ignore"}, "on_conflict is 'ignore'; it is one of return, raise, replace"),
        ({"meta": []}, "meta is []; it is a dict of plain JSON values"),
        ({"delay": 5, "run_at": NOON}, "delay and run_at exclude each other; give one of them"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_says_what_was_given_and_what_would_be_right(options, message):
    assert refusal_of(**options) == message


def test_a_tenant_is_refused_as_long_as_nothing_is_done_with_it():
    assert refusal_of(tenant="acme").startswith("tenant is not supported yet: ")
    with pytest.raises(InvalidOption, match="tenant is not supported yet"):
        define("tests.any", tenant="acme")
    with pytest.raises(InvalidOption, match="tenant is not supported yet"):
        job(tenant="acme")(len)


def test_an_upper_case_queue_is_told_the_rule():
    assert refusal_of(queue="Mail") == (
        "queue 'Mail' is no queue name; use 1 to 64 lower-case letters, digits, "
        "'_', '.' and '-', beginning with a letter or digit "
        "(the queue of that name of Django's Tasks is 'tq--_mail')"
    )


def test_a_naive_datetime_is_told_how_to_become_aware():
    for name in ("run_at", "expires"):
        message = refusal_of(**{name: NAIVE})
        assert f"{name} 2030-01-01T12:00:00 has no time zone" in message
        assert "make_aware" in message


@pytest.mark.parametrize("name", ["run_at", "expires"])
def test_a_moment_lies_where_every_backend_has_room_for_it(name):
    first, last = datetime(1970, 1, 1, tzinfo=UTC), to_datetime(MAX_MOMENT)
    for moment in (first, last):
        assert getattr(Options().using(**{name: moment}), name) == moment
    microsecond = timedelta(microseconds=1)
    for moment in (first - microsecond, last + microsecond, datetime.max.replace(tzinfo=UTC)):
        told = f"{name} is {moment.isoformat()}; give a moment from 1970 to 2255"
        assert refusal_of(**{name: moment}).startswith(told)


def test_a_wrong_value_in_meta_is_named_by_its_place():
    message = refusal_of(meta={"by": [NOON]})
    assert message.startswith("meta.by[0] is of type datetime, which is not JSON")


def test_a_wrong_retry_is_explained():
    assert refusal_of(retry="sometimes").startswith("retry: 'sometimes' is no retry strategy")


def test_a_refused_option_is_an_invalid_job_and_a_value_error():
    assert issubclass(InvalidOption, InvalidJob)
    assert issubclass(InvalidOption, ValueError)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("prio", "priority"),
        ("max_retry", "max_retries"),
        ("quue", "queue"),
        ("Delay", "delay"),
        ("uniquekey", "unique_key"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(typo, meant):
    assert refusal_of(**{typo: 1}) == f"unknown option {typo!r}; did you mean {meant!r}?"


def test_an_unknown_option_like_no_other_gets_the_whole_list():
    message = refusal_of(xyzzy=1)
    assert message.startswith("unknown option 'xyzzy'; known are ")
    assert all(field.name in message for field in fields(Options))


def test_an_unknown_option_is_refused_even_when_it_is_none():
    assert "unknown option" in refusal_of(colour=None)


def test_two_ways_to_lock_exclude_each_other():
    told = refusal_of(single_instance=True, concurrency_key="disk")
    assert "exclude each other" in told
    assert "needs a concurrency_key" in refusal_of(concurrency=2)


# -- lengths of time and moments -----------------------------------------------------------


@pytest.mark.parametrize("name", ["delay", "timeout", "expires", "result_ttl"])
def test_a_timedelta_is_as_good_as_its_seconds(name):
    given = Options().using(**{name: timedelta(minutes=1, milliseconds=500)})
    assert getattr(given, name) == 60.5


def test_a_timedelta_as_run_at_is_a_delay():
    options = Options().using(run_at=timedelta(minutes=2))
    assert (options.delay, options.run_at) == (120, None)


@pytest.mark.parametrize("run_at", [NOON, timedelta(minutes=2)], ids=type)
def test_delay_and_run_at_exclude_each_other(run_at):
    assert "exclude each other" in refusal_of(delay=5, run_at=run_at)
    assert Options().using(delay=None, run_at=run_at) == Options().using(run_at=run_at)


def test_no_time_limit_is_something_else_than_saying_nothing():
    assert Options().timeout is UNSET
    assert repr(Options().timeout) == "UNSET"
    assert Options().using(timeout=None).timeout is None


# -- precedence and immutability -------------------------------------------------------------


def test_options_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Options().queue = "mail"


def test_a_definition_is_frozen():
    definition = JobDefinition("shop.send", {"args": []})
    with pytest.raises(FrozenInstanceError):
        definition.handler = "shop.burn"
    assert definition.options == Options()


def test_using_changes_a_copy():
    before = Options().using(queue="mail")
    after = before.using(queue="slow", priority=1)
    assert (before.queue, before.priority) == ("mail", 0)
    assert (after.queue, after.priority) == ("slow", 1)


def test_using_nothing_is_the_same_object():
    options = Options().using(queue="mail")
    assert options.using() is options


def test_what_using_does_not_name_stays():
    options = Options().using(queue="mail", max_retries=3).using(priority=5)
    assert (options.queue, options.max_retries, options.priority) == ("mail", 3, 5)


def test_using_takes_an_option_back_with_none():
    options = Options().using(queue="mail", priority=5, delay=5, unique_key="u", meta={"a": 1})
    taken_back = dict.fromkeys(("queue", "priority", "delay", "unique_key", "meta"))
    assert options.using(**taken_back) == Options()


def test_a_refused_option_changes_nothing():
    options = Options().using(queue="mail")
    with pytest.raises(InvalidOption):
        options.using(queue="slow", priority=1000)
    assert options == Options().using(queue="mail")


def test_the_later_of_delay_and_run_at_wins():
    delayed, dated = Options().using(delay=5), Options().using(run_at=NOON)
    assert delayed.using(run_at=NOON) == dated
    assert dated.using(delay=5) == delayed
    assert dated.using(run_at=timedelta(seconds=5)) == delayed
    assert dated.using(delay=None) == dated
    assert delayed.using(run_at=None) == delayed


def test_meta_is_a_copy_that_no_one_else_can_change():
    meta = {"by": ["admin"]}
    options = Options().using(meta=meta)
    meta["by"].append("intruder")
    meta["more"] = 1
    assert options.meta == {"by": ["admin"]}


def test_a_list_of_delays_is_a_copy_that_no_one_else_can_change():
    delays = [1, 2]
    options = Options().using(retry=delays)
    delays.append(3)
    assert options.retry == [1, 2]


anything = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.datetimes() | st.timedeltas() | st.lists(st.integers()) | st.decimals()
    | st.dictionaries(st.text(), st.integers())
)  # fmt: skip


@given(st.sampled_from([field.name for field in fields(Options)]), anything)
def test_any_value_is_taken_or_refused_and_never_crashes(name, value):
    try:
        options = Options().using(**{name: value})
    except InvalidOption as refused:
        assert str(refused)  # noqa: PT017 - both ways are fine, a third one is not
    else:
        assert options.using() is options


# -- the queues of Django's Tasks --------------------------------------------------------------


@given(st.text(max_size=20))
@example("Große E-Mails")
@example("tq--_mail")
@example("tq--_Mail")
@example("\ud800.0._")
def test_any_name_of_a_queue_of_tasks_is_found_again(name):
    assert name_among_tasks(queue_of_tasks(name)) == name
    assert re.fullmatch("[a-z0-9][a-z0-9_.-]*", queue_of_tasks(name))


@given(
    st.from_regex(QUEUE_NAME, fullmatch=True)
    | st.from_regex(r"(tq--){1,3}[a-z0-9_.-]{0,8}", fullmatch=True)
)
@example("default")
@example("tq--mail")
@example("tq--tq--mail")
@example("tq--")
@example("tq--_mail")
@example("tq--a.b")
@example("tq--.110000.")
@example("tq--.fffffffffffffffffffff.")
@example("tq--_1")
def test_any_name_of_a_queue_of_jobs_has_one_among_tasks_that_leads_back(queue):
    assert queue_of_tasks(name_among_tasks(queue)) == queue


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        ("default", "default"),
        ("Große E-Mails", "tq--_gro.df.e_-_e-_mails"),
        ("", "tq--"),
        ("_x", "tq--__x"),
        ("tq--_mail", "tq--tq--__mail"),
        ("tq--mail", "tq--mail"),
    ],
)
def test_names_that_are_no_names_of_queues_are_escaped(name, queue):
    assert queue_of_tasks(name) == queue
