"""``manage.py jobs_cron``: enqueue the jobs of due schedules, and manage schedules."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.db import OperationalError

from django_jobs.clock import from_datetime
from django_jobs.cron.history import UNDECIDED
from django_jobs.cron.loop import Loop, tick_once
from django_jobs.cron.registry import find, problems
from django_jobs.cron.stored import unreadable_rows
from django_jobs.exceptions import InvalidSchedule, UnknownSchedule
from django_jobs.management.arguments import moment
from django_jobs.management.base import (
    FAILED,
    JobsCommand,
    add_json,
    refused,
    system_user,
)
from django_jobs.management.output import escaped
from django_jobs.management.schedules import (
    decided_document,
    decided_line,
    schedule_document,
    show_history,
    show_schedules,
    tick_document,
)
from django_jobs.management.schema import require_tables
from django_jobs.operations.schedules import (
    overview_of_schedules,
    pause_schedule,
    preview_tick,
    resume_schedule,
    run_schedule_now,
    schedule_history,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable
    from datetime import datetime

    from django_jobs.cron.history import Decided
    from django_jobs.management.output import Output

NOT_ENQUEUED = "failed"
_NOT_DONE = (NOT_ENQUEUED, UNDECIDED)


class Command(JobsCommand):
    """Run one tick or a loop of ticks, or manage a schedule."""

    help = (
        "Enqueues the jobs of schedules that are due: one tick for a system's crontab, or with "
        "--loop a scheduler that stays. Any number of them may run at once, on any number of "
        "machines; each tick of a schedule is decided once."
    )
    examples = """
        jobs_cron
        jobs_cron --loop
        jobs_cron --list
        jobs_cron --dry-run --only nightly-report
        jobs_cron --dry-run --test-time 2026-10-25T02:30+02:00
        jobs_cron --pause nightly-report --reason "the books are being closed"
        jobs_cron --run-now nightly-report
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_mutually_exclusive_group().add_argument
        add("--loop", action="store_true", help="stay, and tick whenever something is due")
        add(
            "--list",
            action="store_true",
            help="show the schedules: when each runs, in words, its next five runs, its last one",
        )
        add(
            "--dry-run",
            action="store_true",
            help="show what a tick would do with each schedule, and why not; change nothing",
        )
        add("--history", metavar="NAME", help="show the last hundred ticks of a schedule")
        add("--pause", metavar="NAME", help="skip a schedule's ticks until it is resumed")
        add("--resume", metavar="NAME", help="let a paused schedule go on")
        add("--run-now", metavar="NAME", help="enqueue a job of a schedule now, gates or not")
        add = parser.add_argument
        add(
            "--only",
            action="append",
            metavar="NAME",
            help="of all schedules only this one; may be given several times",
        )
        add(
            "--test-time",
            type=moment,
            metavar="ISO",
            help="tick as if it were then: what is due in that very minute is enqueued, and that "
            "counts; what was missed before is left alone",
        )
        add("--reason", default="", metavar="TEXT", help="why; it is recorded")
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        _check_together(options)
        for action, do in _ACTIONS.items():
            if options[action]:
                return do(output, options)
        return _tick(output, options)


def _check_together(options: dict[str, Any]) -> None:
    """Refuse options that have no effect together, instead of ignoring them."""
    ticks = not any(options[action] for action in _ACTIONS if action != "dry_run")
    if options["test_time"] and not ticks:
        raise refused("--test-time is for a tick, or for --dry-run")
    chosen = [action for action in _NAMING if options[action]]
    if options["only"] and chosen:
        raise refused(f"--{chosen[0].replace('_', '-')} names the schedule: leave --only out")
    if options["json"] and options["loop"]:
        raise refused("--loop has no end, and so no JSON document")
    if options["reason"] and not {"pause", "resume", "run_now"}.intersection(chosen):
        raise refused("--reason is for --pause, --resume and --run-now")
    for name in options["only"] or ():
        _find(name)


def _find(name: str) -> None:
    """Refuse an unknown name; for an unusable schedule, the error has the reason."""
    try:
        find(name)
    except UnknownSchedule:
        why = {problem.subject: str(problem) for problem in problems()} | dict(unreadable_rows())
        if name not in why:
            raise
        raise InvalidSchedule(f"the schedule {name!r} cannot be used: {why[name]}") from None


def _tick(output: Output, options: dict[str, Any]) -> int:
    _check_schedules()
    decided = tick_once(only=options["only"], at=_at(options["test_time"]))
    _report(output, options, decided)
    return FAILED if any(tick.decision in _NOT_DONE for tick in decided) else 0


def _loop(output: Output, options: dict[str, Any]) -> int:
    _check_schedules()

    def show(tick: Decided) -> None:
        output.line(decided_line(tick))
        output.flush()

    loop = Loop(only=options["only"], on_decided=show if options["verbosity"] else None)
    with suppress(OperationalError):  # the loop itself waits for an unreachable database
        require_tables(loop.ticker.alias)
    with loop.stop.listening():
        if options["verbosity"]:
            output.line("ticking whenever something is due, until told to stop")
            output.flush()
        return loop.run()


def _dry_run(output: Output, options: dict[str, Any]) -> int:
    _check_schedules()
    _report(output, options, preview_tick(only=options["only"], at=_at(options["test_time"])))
    return 0


def _check_schedules() -> None:
    """Refuse unusable schedules: call_command and --skip-checks skip the system checks."""
    if invalid := problems():
        listed = "".join(f"\n  - {problem}" for problem in invalid)
        raise InvalidSchedule(f"schedules cannot be used as they are:{listed}")


def _at(test_time: datetime | None) -> int | None:
    return None if test_time is None else from_datetime(test_time)


def _report(output: Output, options: dict[str, Any], decided: list[Decided]) -> None:
    if options["json"]:
        output.document({"decided": decided_document(decided)})
        return
    for tick in decided:
        output.line(decided_line(tick))
    if not decided and options["verbosity"] > 1:
        output.line("nothing was due")


def _list(output: Output, options: dict[str, Any]) -> int:
    schedules = overview_of_schedules(only=options["only"])
    if options["json"]:
        output.document({"schedules": [schedule_document(schedule) for schedule in schedules]})
    else:
        show_schedules(output, schedules)
    return 0


def _history(output: Output, options: dict[str, Any]) -> int:
    name = options["history"]
    ticks = schedule_history(name)
    if not ticks:
        find(name)  # a removed schedule may still have a history, an unknown name raises here
    if options["json"]:
        output.document({"ticks": [tick_document(tick) for tick in ticks]})
    else:
        show_history(output, ticks)
    return 0


def _pause(output: Output, options: dict[str, Any]) -> int:
    return _switch(output, options, options["pause"], pause_schedule, "paused")


def _resume(output: Output, options: dict[str, Any]) -> int:
    return _switch(output, options, options["resume"], resume_schedule, "resumed")


def _switch(
    output: Output, options: dict[str, Any], name: str, do: Callable[..., bool], done: str
) -> int:
    changed = do(name, by=system_user(), reason=options["reason"])
    if options["json"]:
        output.document({"name": name, "changed": changed})
    else:
        output.line(escaped(f"{name}: {done if changed else 'nothing changed'}"))
    return 0


def _run_now(output: Output, options: dict[str, Any]) -> int:
    tick = run_schedule_now(options["run_now"], by=system_user(), reason=options["reason"])
    _report(output, options, [tick])
    return FAILED if tick.decision == NOT_ENQUEUED else 0


_ACTIONS = {
    "loop": _loop,
    "list": _list,
    "dry_run": _dry_run,
    "history": _history,
    "pause": _pause,
    "resume": _resume,
    "run_now": _run_now,
}
_NAMING = ("history", "pause", "resume", "run_now")
