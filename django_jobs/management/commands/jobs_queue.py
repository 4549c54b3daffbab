"""``manage.py jobs_queue``: pause, resume and limit a queue while workers run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django_jobs.exceptions import InvalidOption
from django_jobs.management.arguments import queue_name
from django_jobs.management.base import JobsCommand, add_json, system_user
from django_jobs.management.output import escaped
from django_jobs.operations.queues import (
    QueueSettings,
    limit_queue,
    pause_queue,
    queue_settings,
    reset_breaker,
    reset_rate,
    resume_queue,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output

NOTHING = "none"


class Command(JobsCommand):
    """Change the settings of a queue."""

    help = (
        "Pauses and resumes a queue, and limits how fast and how many of its jobs run at a time. "
        "It counts for every worker, at once for a pause and within a second for a limit. "
        "Jobs that run are let end. A circuit breaker can be closed by hand. "
        "The action show changes nothing."
    )
    examples = """
        jobs_queue show mail
        jobs_queue pause mail --reason "the mail server moves"
        jobs_queue resume mail
        jobs_queue set mail rate_limit=60/m concurrency=4
        jobs_queue set mail rate_limit=none concurrency=none
        jobs_queue reset-rate mail
        jobs_queue reset-breaker mail
        jobs_queue reset-breaker mail --handler shop.jobs.send_receipt
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "action",
            metavar="ACTION",
            choices=("show", "pause", "resume", "set", "reset-rate", "reset-breaker"),
            help="show, pause, resume, set, reset-rate: forget what was started lately, or "
            "reset-breaker: close the circuit breaker",
        )
        add("queue", type=queue_name, metavar="NAME", help="the queue")
        add(
            "limits",
            nargs="*",
            metavar="LIMIT",
            help="of set: rate_limit=60/m (s, m, h, d; none: no limit; empty: that of the "
            "settings), concurrency=4 (none: no limit)",
        )
        add("--backend", metavar="ALIAS", help="default: the backend of the queue")
        add("--handler", metavar="KEY", help="of reset-breaker: the breaker of this handler")
        add("--reason", default="", metavar="TEXT", help="why; it is recorded")
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        action, queue = options["action"], options["queue"]
        if bool(options["limits"]) != (action == "set"):
            raise InvalidOption("set takes rate_limit=… or concurrency=…, and nothing else does")
        if options["handler"] and action != "reset-breaker":
            raise InvalidOption("--handler goes with reset-breaker, and with nothing else")
        changed = _do(action, queue, options)
        now = queue_settings(queue, backend=options["backend"])
        if options["json"]:
            output.document({**asdict(now), "changed": changed})
        else:
            output.line(escaped(_summary(now, changed=changed or action == "show")))
        return 0


def _do(action: str, queue: str, options: dict[str, Any]) -> bool:
    if action == "show":
        return False
    about = {"by": system_user(), "reason": options["reason"], "backend": options["backend"]}
    if action == "set":
        return limit_queue(queue, _limits(options["limits"]), **about)
    if action == "reset-breaker":
        return reset_breaker(queue, options["handler"], **about)
    do = {
        "pause": pause_queue,
        "resume": resume_queue,
        "reset-rate": reset_rate,
    }[action]
    return do(queue, **about)


def _limits(texts: list[str]) -> dict[str, str | int | None]:
    limits: dict[str, str | int | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidOption(f"{text!r} is no limit; write rate_limit=60/m or concurrency=4")
        limits[name] = value
        if name == "concurrency":
            limits[name] = None if value == NOTHING else int(value) if value.isdecimal() else value
    return limits


def _summary(queue: QueueSettings, *, changed: bool) -> str:
    state = "paused" if queue.paused else "running"
    if queue.paused and queue.reason:
        state += f" ({queue.reason})"
    rate = queue.rate_limit or "as in the settings"
    places = "no limit" if queue.concurrency is None else queue.concurrency
    text = f"{queue.queue} of {queue.backend}: {state}; rate limit: {rate}; at a time: {places}"
    return text if changed else f"{text} (nothing changed)"
