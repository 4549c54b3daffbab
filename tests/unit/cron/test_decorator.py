"""``@cron``, SCHEDULE and the hook: what is declared is found, and what is wrong is told."""

import sys
from dataclasses import dataclass
from datetime import time, timedelta
from types import ModuleType

import pytest
from django.apps import apps

from django_jobs import JobHandler, cron, define, job
from django_jobs.conf import ProblemKind
from django_jobs.cron import decorator, registry
from django_jobs.cron.options import Daylight, Dependency, Missed, Origin, Overlap, Window
from django_jobs.exceptions import InvalidJob, InvalidOption, InvalidPayload, UnknownSchedule
from django_jobs.handlers.registry import registry as handlers


@job(key="tests.cron.report", queue="reports")
def report(to="all", copies=1):
    return (to, copies)


@job(key="tests.cron.plain")
def plain():
    return None


@dataclass
class Mail:
    to: str


@job(key="tests.cron.mail")
class SendMail(JobHandler[Mail, None]):
    def handle(self, context):
        return None


@pytest.fixture
def schedules(monkeypatch, settings):
    """A registry of the test's own."""
    settings.DJANGO_JOBS = {}
    declared = []
    monkeypatch.setattr(decorator, "DECLARED", declared)
    return registry.Schedules(declared)


def only(schedules):
    assert schedules.problems() == ()
    (schedule,) = schedules.declared()
    return schedule


def test_a_decorator_leaves_the_job_as_it_is(schedules):
    assert cron("0 2 * * *")(report) is report
    schedule = only(schedules)
    assert (schedule.name, schedule.expression) == ("tests.cron.report", "0 2 * * *")
    assert (schedule.handler, schedule.queue) == ("tests.cron.report", "reports")
    assert schedule.job.payload == {"args": [], "kwargs": {}}
    assert schedule.origin is Origin.CODE


def test_everything_that_can_be_said(schedules):
    cron(
        "0 2 * * *",
        name="nightly",
        timezone="Europe/Paris",
        description="The report",
        args=["boss"],
        kwargs={"copies": 2},
        queue=None,
        priority=5,
        max_retries=2,
        timeout=30,
        single_instance=True,
        enabled=False,
        environments="live",
        between=[("22:00", "06:00"), "12:00-13:30"],
        unless_between=(time(3), time(4)),
        when="os.getpid",
        depends_on=["nightly-too"],
        dependency="succeeded",
        missed="all",
        missed_limit=5,
        deadline=timedelta(hours=1),
        overlap="queue-one",
        daylight="interval",
        jitter=10,
    )(report)
    cron("0 2 * * *", name="nightly-too")(report)
    schedule = schedules.find("nightly")
    assert schedule.job.payload == {"args": ["boss"], "kwargs": {"copies": 2}}
    assert (schedule.queue, schedule.job.options.priority) == (None, 5)
    assert (schedule.job.options.max_retries, schedule.job.options.timeout) == (2, 30)
    assert schedule.single_instance is True
    assert (schedule.enabled, schedule.environments) == (False, ("live",))
    assert schedule.between == (Window(time(22), time(6)), Window(time(12), time(13, 30)))
    assert schedule.unless_between == (Window(time(3), time(4)),)
    assert (schedule.when, schedule.depends_on) == ("os.getpid", ("nightly-too",))
    assert schedule.dependency is Dependency.SUCCEEDED
    assert (schedule.missed, schedule.missed_limit) == (Missed.ALL, 5)
    assert (schedule.deadline, schedule.jitter) == (3600.0, 10.0)
    assert (schedule.overlap, schedule.daylight) == (Overlap.QUEUE_ONE, Daylight.INTERVAL)
    assert (schedule.timezone, schedule.description) == ("Europe/Paris", "The report")


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("missed", "never", "'skip', 'latest', 'all'"),
        ("overlap", 1, "'allow', 'skip', 'queue-one'"),
        ("between", "08:00", "a pair of times"),
        ("between", [("08:00", "25:00")], "a pair of times"),
        ("between", [("08:00", "08:00")], "begins when it ends"),
        ("between", 5, "a pair of times"),
        ("jitter", -1, "number of seconds"),
        ("deadline", "soon", "number of seconds"),
        ("missed_limit", 0, "from 1 to"),
        ("when", "nothing", "dotted path"),
        ("enabled", "yes", "True or False"),
        ("environments", 5, "a list of texts"),
        ("environments", [5], "give a text"),
        ("timezone", 5, "give a text"),
        ("name", "", "printable"),
        ("name", "a\nb", "printable"),
        ("every", 5, "unknown option 'every'"),
        ("delay", 5, "not for schedules"),
        ("priority", 500, "priority"),
        ("tenant", "acme", "tenant is not supported yet"),
    ],
)
def test_a_wrong_option_is_refused_where_it_stands(schedules, option, value, why):
    with pytest.raises(InvalidOption, match=why):
        cron("0 2 * * *", **{option: value})(report)


def test_a_call_that_would_be_wrong_is_refused_where_it_stands(schedules):
    with pytest.raises(InvalidPayload, match="cannot be called so"):
        cron("0 2 * * *", kwargs={"whom": 1})(report)


def test_a_function_that_is_no_job_is_refused(schedules):
    with pytest.raises(InvalidJob, match="above @job"):
        cron("0 2 * * *")(len)


def test_other_things_that_can_be_enqueued(schedules):
    cron("0 2 * * *", payload=Mail("x"))(SendMail)
    cron("0 3 * * *", name="b", payload=Mail("y"))(SendMail.using(queue="mail"))
    cron("0 3 * * *", name="c")(define("tests.cron.report", {"args": [], "kwargs": {}}))
    cron("0 4 * * *", name="d")(report.using(queue="other"))
    found = {schedule.name: schedule for schedule in schedules.declared()}
    assert found["tests.cron.mail"].job.payload == {"to": "x"}
    assert found["b"].queue == "mail"
    assert found["c"].handler == "tests.cron.report"
    assert found["d"].queue == "other"


def test_a_schedule_has_the_zone_of_the_site_unless_it_says_otherwise(schedules, settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    cron("0 2 * * *")(report)
    assert only(schedules).timezone == "Asia/Tokyo"


def test_wrong_ones_are_told_and_left_out(schedules):
    cron("0 25 * * *")(report)
    cron("0 2 * * *", name="b", timezone="Mars/Olympus")(report)
    cron("0 2 * * *", name="c", depends_on="d")(report)
    cron("0 2 * * *", name="c")(plain)
    found = {problem.kind: problem.message for problem in schedules.problems()}
    assert "'0 25 * * *' is no cron expression" in found[ProblemKind.SCHEDULE_EXPRESSION]
    assert "'Mars/Olympus' is no time zone" in found[ProblemKind.SCHEDULE_ZONE]
    assert "'c' depends on 'd'" in found[ProblemKind.SCHEDULE_ORDER]
    assert "two schedules have the name 'c'" in found[ProblemKind.SCHEDULE]
    assert [schedule.name for schedule in schedules.declared()] == ["c"]


def test_a_circle_among_declared_ones_is_told(schedules):
    cron("0 2 * * *", name="a", depends_on="b")(report)
    cron("0 2 * * *", name="b", depends_on="a")(report)
    (problem,) = schedules.problems()
    assert "in a circle" in problem.message


def test_settings_declare_too(schedules, settings):
    settings.DJANGO_JOBS = {
        "SCHEDULE": {
            "nightly": {
                "CRON": "0 2 * * *",
                "HANDLER": "tests.cron.report",
                "ARGS": ["boss"],
                "TIMEZONE": "Europe/Paris",
                "PRIORITY": 3,
                "MISSED": "skip",
            }
        }
    }
    schedule = only(schedules)
    assert (schedule.name, schedule.queue) == ("nightly", "reports")
    assert schedule.job.payload == {"args": ["boss"], "kwargs": {}}
    assert (schedule.job.options.priority, schedule.missed) == (3, Missed.SKIP)
    assert schedule.origin is Origin.SETTINGS


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"HANDLER": "tests.cron.reprot"}, "did you mean 'tests.cron.report'"),
        ({"KWARGS": {"whom": 1}}, "cannot be called so"),
        ({"MISSED": "never"}, "'skip', 'latest', 'all'"),
        ({"ARGS": [1], "PAYLOAD": 1}, "ARGS and KWARGS are for functions"),
        ({"PRIORITY": 1000}, "priority"),
        ({"TENANT": "acme"}, "tenant is not supported yet"),
    ],
)
def test_what_is_wrong_in_settings_is_told_with_its_place(schedules, settings, entry, why):
    settings.DJANGO_JOBS = {
        "SCHEDULE": {"x": {"CRON": "0 2 * * *", "HANDLER": "tests.cron.report", **entry}}
    }
    (problem,) = schedules.problems()
    assert "SCHEDULE['x']" in problem.message
    assert why in problem.message
    assert schedules.declared() == ()


@pytest.fixture
def hook(monkeypatch):
    """Stands in for ``schedule`` in the ``jobs.py`` of the first installed app."""
    name = f"{next(iter(apps.get_app_configs())).name}.jobs"
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)

    def put(function):
        function.__module__ = name
        module.schedule = function

    return put


def test_a_hook_declares_with_methods_that_read_as_a_sentence(schedules, hook):
    def schedule(scheduler):
        scheduler.job(report, "boss", copies=2).named("weekly").weekly_on("mon", "08:30").timezone(
            "Asia/Tokyo"
        ).queue("slow").priority(3).max_retries(1).timeout(9).single_instance()
        scheduler.job(plain).every_minutes(5).environments("live", "stage").disable()
        scheduler.handler(SendMail, Mail("x")).daily_at("02:00").depends_on("weekly").between(
            ("08:00", "18:00")
        ).unless_between(("12:00", "13:00")).when(all).rules(missed="skip")

    hook(schedule)
    first, second, third = schedules.declared()
    assert schedules.problems() == ()
    assert (first.name, first.expression, first.timezone) == ("weekly", "30 8 * * 1", "Asia/Tokyo")
    assert first.job.payload == {"args": ["boss"], "kwargs": {"copies": 2}}
    assert (first.queue, first.job.options.priority, first.single_instance) == ("slow", 3, True)
    assert (second.environments, second.enabled) == (("live", "stage"), False)
    assert (third.depends_on, third.missed, third.when) == (("weekly",), Missed.SKIP, all)
    assert third.between == (Window(time(8), time(18)),)
    assert {schedule.origin for schedule in (first, second, third)} == {Origin.HOOK}


def test_every_way_to_say_when_is_one_of_the_functions(schedules, hook):
    def schedule(scheduler):
        for place, say in enumerate(
            (
                lambda one: one.every_hours(2),
                lambda one: one.hourly_at(15),
                lambda one: one.weekdays_at("09:00"),
                lambda one: one.weekends_at("09:00"),
                lambda one: one.monthly_on("last"),
                lambda one: one.quarterly(),
                lambda one: one.yearly(),
                lambda one: one.between_hours(9, 17),
                lambda one: one.cron("@daily").enabled(),
            )
        ):
            say(scheduler.define("tests.cron.plain", {"args": [], "kwargs": {}}).named(str(place)))

    hook(schedule)
    assert schedules.problems() == ()
    assert [schedule.expression for schedule in schedules.declared()] == [
        "0 */2 * * *",
        "15 * * * *",
        "0 9 * * 1-5",
        "0 9 * * 0,6",
        "0 0 l * *",
        "0 0 1 1,4,7,10 *",
        "0 0 1 1 *",
        "0 9-17 * * *",
        "@daily",
    ]


def test_what_a_hook_raises_is_told(schedules, hook):
    def schedule(scheduler):
        scheduler.job(report).named("forgotten")

    hook(schedule)
    (problem,) = schedules.problems()
    assert "the schedule 'forgotten' does not say when" in problem.message


def test_something_else_called_schedule_is_no_hook(schedules, hook):
    def other(scheduler):
        raise AssertionError("called")

    hook(other)
    other.__module__ = "elsewhere"
    assert schedules.declared() == ()


def test_a_source_is_asked_each_time_and_code_wins(schedules):
    cron("0 2 * * *", name="a")(report)
    row = schedules.declared()[0]
    rows = []
    schedules.register_source(lambda: rows)
    assert [one.name for one in schedules.all_schedules()] == ["a"]
    rows += [row, *_renamed(row, "b")]
    assert [one.name for one in schedules.all_schedules()] == ["a", "b"]
    assert schedules.find("b") is rows[1]
    with pytest.raises(UnknownSchedule, match="'c'"):
        schedules.find("c")


def _renamed(row, name):
    from dataclasses import replace  # noqa: PLC0415 - for this alone

    return [replace(row, name=name)]


def test_a_source_twice_counts_once(schedules):
    asked = []
    source = lambda: asked.append(1) or []  # noqa: E731 - the same one twice
    schedules.register_source(source)
    schedules.register_source(source)
    schedules.all_schedules()
    assert asked == [1]


def test_which_handlers_the_admin_may_schedule(settings):
    settings.DJANGO_JOBS = {"SCHEDULE_HANDLERS": ["tests.cron.plain"]}
    assert registry.exposed_handlers() == ("tests.cron.plain",)
    assert "tests.cron.plain" in handlers


def test_the_environment_comes_from_the_setting_or_the_environment_variable(settings, monkeypatch):
    from django_jobs.conf import get_settings  # noqa: PLC0415 - beside its environment

    monkeypatch.setenv("JOBS_ENVIRONMENT", "stage")
    settings.DJANGO_JOBS = {}
    assert get_settings().environment == "stage"
    settings.DJANGO_JOBS = {"ENVIRONMENT": "live"}
    assert get_settings().environment == "live"
