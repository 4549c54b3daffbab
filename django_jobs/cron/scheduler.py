"""What the hook ``schedule(scheduler)`` in the ``jobs.py`` of an app declares schedules with.

def schedule(scheduler):
scheduler.job(send_report, to="boss").named("report").daily_at("06:30").timezone("Asia/Tokyo")
scheduler.command("clearsessions").weekly().queue("maintenance")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from django_jobs.cron import expressions
from django_jobs.cron.declaring import definition_of
from django_jobs.cron.options import checked, checked_name
from django_jobs.cron.registry import Declaration
from django_jobs.cron.schedule import Origin
from django_jobs.definition import UNSET
from django_jobs.enqueue import DefinedJob, define
from django_jobs.exceptions import InvalidSchedule
from django_jobs.handlers.base import encoded
from django_jobs.handlers.registry import registry as handlers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import time, timedelta
    from typing import Self

    from django_jobs.cron.expressions import Day
    from django_jobs.cron.options import ScheduleOptions, WindowSpec
    from django_jobs.cron.schedule import When
    from django_jobs.definition import JobDefinition, JobOptions


class Scheduler:
    """Collects the schedules of one hook."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._made: list[ScheduleBuilder] = []

    def job(self, job: Any, /, *args: Any, **kwargs: Any) -> ScheduleBuilder:
        """A call of a ``@job`` function with these arguments."""
        return self._added(definition_of(job, args, kwargs, UNSET, {}))

    def handler(self, handler: Any, payload: Any = None, /) -> ScheduleBuilder:
        """A job of a handler class with this payload."""
        return self._added(definition_of(handler, (), {}, payload, {}))

    def define(self, key: str, payload: Any = None, /) -> ScheduleBuilder:
        """A job of the handler that is registered under a key."""
        return self._added(_defined(define(key, payload)))

    def command(self, name: str, /, *args: str) -> ScheduleBuilder:
        """A management command."""
        return self.define("command", [name, *args])

    def shell(self, program: str, /, *args: str) -> ScheduleBuilder:
        """A program."""
        return self.define("shell", [program, *args])

    def event(self, name: str, /, data: Any = None) -> ScheduleBuilder:
        """A signal of Django's."""
        return self.define("event", {"name": name, "data": data})

    def url(
        self, method: str, url: str, /, headers: dict[str, str] | None = None, body: Any = None
    ) -> ScheduleBuilder:
        """A web request."""
        said = {"headers": headers, "body": body}
        given = {name: value for name, value in said.items() if value is not None}
        return self.define("url", {"method": method, "url": url, **given})

    def declarations(self) -> Iterator[Declaration]:
        """What was declared, in that order; raises InvalidSchedule for one without expression."""
        for builder in self._made:
            yield builder.declaration(self._where)

    def _added(self, job: JobDefinition) -> ScheduleBuilder:
        builder = ScheduleBuilder(job)
        self._made.append(builder)
        return builder


def _defined(job: DefinedJob) -> JobDefinition:
    payload = encoded(handlers.find(job.handler), job.payload)
    return definition_of(DefinedJob(job.handler, payload, job.options), (), {}, UNSET, {})


class ScheduleBuilder:
    """One schedule; every method changes it and returns it."""

    def __init__(self, job: JobDefinition) -> None:
        self._job = job
        self._name: str | None = None
        self._expression: str | None = None
        self._own: dict[str, Any] = {}

    # When.

    def cron(self, expression: str) -> Self:
        self._expression = expression
        return self

    def every_minutes(self, minutes: int = 1) -> Self:
        return self.cron(expressions.every_minutes(minutes))

    def every_hours(self, hours: int = 1, minute: int = 0) -> Self:
        return self.cron(expressions.every_hours(hours, minute))

    def hourly_at(self, *minutes: int) -> Self:
        return self.cron(expressions.hourly_at(*minutes))

    def daily_at(self, *times: str | time) -> Self:
        return self.cron(expressions.daily_at(*times))

    def weekly_on(self, day: Day | Sequence[Day], at: str | time = "00:00") -> Self:
        return self.cron(expressions.weekly_on(day, at))

    def weekdays_at(self, at: str | time = "00:00") -> Self:
        return self.cron(expressions.weekdays_at(at))

    def weekends_at(self, at: str | time = "00:00") -> Self:
        return self.cron(expressions.weekends_at(at))

    def monthly_on(self, day: int | str = 1, at: str | time = "00:00") -> Self:
        return self.cron(expressions.monthly_on(day, at))

    def quarterly(self, day: int | str = 1, at: str | time = "00:00") -> Self:
        return self.cron(expressions.quarterly(day, at))

    def yearly(self, month: int = 1, day: int | str = 1, at: str | time = "00:00") -> Self:
        return self.cron(expressions.yearly(month, day, at))

    def between_hours(self, first: int, last: int, every: int = 60) -> Self:
        return self.cron(expressions.between_hours(first, last, every))

    # What else.

    def named(self, name: str) -> Self:
        self._name = checked_name(name)
        return self

    def options(self, **options: Unpack[JobOptions]) -> Self:
        """Options of the jobs, as those of ``using()``."""
        self._job = definition_of(
            DefinedJob(self._job.handler, self._job.payload, self._job.options),
            (),
            {},
            UNSET,
            options,
        )
        return self

    def rules(self, **rules: Unpack[ScheduleOptions]) -> Self:
        """Options of the schedule, as those of ``@cron``."""
        self._own.update(checked(rules))
        return self

    def queue(self, queue: str) -> Self:
        return self.options(queue=queue)

    def priority(self, priority: int) -> Self:
        return self.options(priority=priority)

    def max_retries(self, max_retries: int) -> Self:
        return self.options(max_retries=max_retries)

    def timeout(self, timeout: float | timedelta | None) -> Self:
        return self.options(timeout=timeout)

    def single_instance(self, single_instance: bool | str = True) -> Self:  # noqa: FBT001, FBT002 - as the option
        return self.options(single_instance=single_instance)

    def timezone(self, timezone: str) -> Self:
        return self.rules(timezone=timezone)

    def enabled(self, enabled: bool = True) -> Self:  # noqa: FBT001, FBT002 - reads as a sentence
        return self.rules(enabled=enabled)

    def disable(self) -> Self:
        return self.rules(enabled=False)

    def environments(self, *environments: str) -> Self:
        return self.rules(environments=environments)

    def between(self, *windows: WindowSpec) -> Self:
        return self.rules(between=windows)

    def unless_between(self, *windows: WindowSpec) -> Self:
        return self.rules(unless_between=windows)

    def when(self, when: When) -> Self:
        return self.rules(when=when)

    def depends_on(self, *names: str, dependency: str = "order") -> Self:
        return self.rules(depends_on=names, dependency=dependency)

    def declaration(self, where: str) -> Declaration:
        """What was said, to be registered; raises InvalidSchedule where no expression was."""
        name = checked_name(self._name or self._job.options.name or self._job.handler)
        if self._expression is None:
            raise InvalidSchedule(
                f"the schedule {name!r} does not say when; add .cron('0 2 * * *'), "
                ".daily_at('02:00') or the like"
            )
        return Declaration(name, self._expression, self._job, self._own, Origin.HOOK, where)
