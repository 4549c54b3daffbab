"""Declare schedules in the hook ``schedule(scheduler)`` in the ``jobs.py`` of an app.

For example::

    def schedule(scheduler):
        report = scheduler.job(send_report, to="boss").named("report")
        report.daily_at("06:30").timezone("Asia/Tokyo")
        scheduler.command("clearsessions").weekly_on("sun").queue("maintenance")

The functions such as ``every_minutes`` return cron expressions. Times are texts such as ``"02:00"``
or ``datetime.time``; days of the week are names or numbers, 0 being Sunday. All raise
InvalidSchedule.
"""

from __future__ import annotations

from datetime import time
from typing import TYPE_CHECKING, Any, Unpack

from django_jobs.cron.decorator import Declaration, definition_of
from django_jobs.cron.options import Origin, checked, checked_name
from django_jobs.definition import UNSET
from django_jobs.enqueue import DefinedJob, define
from django_jobs.exceptions import InvalidSchedule
from django_jobs.handlers.registry import registry as handlers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta
    from typing import Self

    from django_jobs.cron.options import ScheduleOptions, When, WindowSpec
    from django_jobs.definition import JobDefinition, JobOptions


_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
Day = int | str


def every_minutes(minutes: int = 1) -> str:
    """Every so many minutes, from the full hour on: 1 to 59, best a divisor of 60."""
    step = _number("minutes", minutes, 1, 59)
    return "* * * * *" if step == 1 else f"*/{step} * * * *"


def every_hours(hours: int = 1, minute: int = 0) -> str:
    """Every so many hours, from midnight on: 1 to 23, best a divisor of 24."""
    step, at = _number("hours", hours, 1, 23), _number("minute", minute, 0, 59)
    return f"{at} * * * *" if step == 1 else f"{at} */{step} * * *"


def hourly_at(*minutes: int) -> str:
    """Every hour, at these minutes."""
    return f"{_numbers('minute', minutes or (0,), 0, 59)} * * * *"


def daily_at(*times: str | time) -> str:
    """Every day at these times, which must share their hour or their minute."""
    return f"{_clock(times)} * * *"


def weekly_on(day: Day | Iterable[Day], at: str | time = "00:00") -> str:
    """Every week on a day, or on several: ``weekly_on("mon", "08:30")``."""
    days = [day] if isinstance(day, str | int) else list(day)
    return f"{_clock([at])} * * {','.join(map(_day, days))}"


def weekdays_at(at: str | time = "00:00") -> str:
    """Monday to Friday."""
    return f"{_clock([at])} * * 1-5"


def weekends_at(at: str | time = "00:00") -> str:
    """Saturday and Sunday."""
    return f"{_clock([at])} * * 0,6"


def monthly_on(day: int | str = 1, at: str | time = "00:00") -> str:
    """Every month on a day from 1 to 31, or on the ``"last"``. Not every month has a 31st."""
    return f"{_clock([at])} {_day_of_month(day)} * *"


def quarterly(day: int | str = 1, at: str | time = "00:00") -> str:
    """On a day of January, April, July and October."""
    return f"{_clock([at])} {_day_of_month(day)} 1,4,7,10 *"


def yearly(month: int = 1, day: int | str = 1, at: str | time = "00:00") -> str:
    """Once a year."""
    return f"{_clock([at])} {_day_of_month(day)} {_number('month', month, 1, 12)} *"


def between_hours(first: int, last: int, every: int = 60) -> str:
    """Every so many minutes while the hour is ``first`` to ``last``, both included."""
    start, end = _number("first", first, 0, 23), _number("last", last, 0, 23)
    step = _number("every", every, 1, 60)
    minutes = {1: "*", 60: "0"}.get(step, f"*/{step}")
    if start <= end:
        return f"{minutes} {_range(start, end)} * * *"
    return f"{minutes} {_range(start, 23)},{_range(0, end)} * * *"


def _range(start: int, end: int) -> str:
    # A range from a value to itself would be read as the whole field.
    return f"{start}-{end}" if start < end else str(start)


def _clock(times: Iterable[str | time]) -> str:
    """The fields of the minute and the hour."""
    read = [_time(at) for at in times]
    if not read:
        raise InvalidSchedule("no time is given; give one such as '02:00'")
    hours, minutes = sorted({at.hour for at in read}), sorted({at.minute for at in read})
    if len(hours) * len(minutes) != len(set(read)):
        raise InvalidSchedule(
            f"{', '.join(f'{at:%H:%M}' for at in read)} cannot be said by one expression; "
            "give each time a schedule of its own"
        )
    return f"{','.join(map(str, minutes))} {','.join(map(str, hours))}"


def _time(value: str | time) -> time:
    try:
        moment = value if isinstance(value, time) else time.fromisoformat(_padded(value))
    except (ValueError, TypeError, AttributeError):
        raise InvalidSchedule(f"{value!r} is no time; give one such as '02:00'") from None
    if moment.second or moment.microsecond:
        raise InvalidSchedule(f"{value!r} has seconds; write the expression with six fields")
    return moment.replace(tzinfo=None)


def _padded(text: str) -> str:
    """'02:30' for '2:30', and '14:00' for '14'."""
    hour, _, minute = text.strip().partition(":")
    return f"{int(hour):02d}:{minute or '00'}"


def _day(value: Day) -> str:
    if isinstance(value, str) and value.lower()[:3] in _DAYS:
        return str(_DAYS.index(value.lower()[:3]))
    return str(_number("day", value, 0, 7) % 7)


def _day_of_month(value: int | str) -> str:
    return "l" if value == "last" else str(_number("day", value, 1, 31))


def _numbers(name: str, values: Iterable[int], low: int, high: int) -> str:
    return ",".join(
        str(value) for value in sorted({_number(name, value, low, high) for value in values})
    )


def _number(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidSchedule(f"{name} is {value!r}; give a whole number from {low} to {high}")
    return value


class Scheduler:
    """Collects the schedules of one hook."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._made: list[ScheduleBuilder] = []

    def job(self, job: Any, /, *args: Any, **kwargs: Any) -> ScheduleBuilder:
        """A call of a ``@job`` function with these arguments."""
        return self._add(definition_of(job, args, kwargs, UNSET, {}))

    def handler(self, handler: Any, payload: Any = None, /) -> ScheduleBuilder:
        """A job of a handler class with this payload."""
        return self._add(definition_of(handler, (), {}, payload, {}))

    def define(self, key: str, payload: Any = None, /) -> ScheduleBuilder:
        """A job of the handler that is registered under a key."""
        return self._add(_defined(define(key, payload)))

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
        optional = {"headers": headers, "body": body}
        chosen = {name: value for name, value in optional.items() if value is not None}
        return self.define("url", {"method": method, "url": url, **chosen})

    def declarations(self) -> Iterator[Declaration]:
        """The declarations in their order; raises InvalidSchedule if an expression is missing."""
        for builder in self._made:
            yield builder.declaration(self._where)

    def _add(self, job: JobDefinition) -> ScheduleBuilder:
        builder = ScheduleBuilder(job)
        self._made.append(builder)
        return builder


def _defined(job: DefinedJob) -> JobDefinition:
    payload = handlers.find(job.handler).encode(job.payload)
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
        return self.cron(every_minutes(minutes))

    def every_hours(self, hours: int = 1, minute: int = 0) -> Self:
        return self.cron(every_hours(hours, minute))

    def hourly_at(self, *minutes: int) -> Self:
        return self.cron(hourly_at(*minutes))

    def daily_at(self, *times: str | time) -> Self:
        return self.cron(daily_at(*times))

    def weekly_on(self, day: Day | Sequence[Day], at: str | time = "00:00") -> Self:
        return self.cron(weekly_on(day, at))

    def weekdays_at(self, at: str | time = "00:00") -> Self:
        return self.cron(weekdays_at(at))

    def weekends_at(self, at: str | time = "00:00") -> Self:
        return self.cron(weekends_at(at))

    def monthly_on(self, day: int | str = 1, at: str | time = "00:00") -> Self:
        return self.cron(monthly_on(day, at))

    def quarterly(self, day: int | str = 1, at: str | time = "00:00") -> Self:
        return self.cron(quarterly(day, at))

    def yearly(self, month: int = 1, day: int | str = 1, at: str | time = "00:00") -> Self:
        return self.cron(yearly(month, day, at))

    def between_hours(self, first: int, last: int, every: int = 60) -> Self:
        return self.cron(between_hours(first, last, every))

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
        """The declaration to register; raises InvalidSchedule if it has no expression."""
        name = checked_name(self._name or self._job.options.name or self._job.handler)
        if self._expression is None:
            raise InvalidSchedule(
                f"the schedule {name!r} does not say when; add .cron('0 2 * * *'), "
                ".daily_at('02:00') or the like"
            )
        return Declaration(name, self._expression, self._job, self._own, Origin.HOOK, where)
