"""``manage.py jobs_enqueue``: one job from the command line, or many from a file."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from django_jobs.management.arguments import expiry, moment, queue_name, seconds, time_limit
from django_jobs.management.base import (
    FAILED,
    JobsCommand,
    add_json,
    refused,
)
from django_jobs.management.enqueue import (
    Preparer,
    count_words,
    find_handler,
    payload_argument,
    store,
)
from django_jobs.management.output import escaped

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from contextlib import AbstractContextManager

    from django_jobs.management.enqueue import Outcome
    from django_jobs.management.output import Output

OPTIONS: dict[str, dict[str, Any]] = {
    "queue": {"type": queue_name, "metavar": "NAME", "help": "default: the handler's, or default"},
    "backend": {"metavar": "ALIAS", "help": "an alias of BACKENDS; default: that of the queue"},
    "priority": {"type": int, "metavar": "N", "help": "-100 to 100, higher runs sooner"},
    "delay": {"type": seconds, "metavar": "TIME", "help": "run after: 90, 90s, 15m, 12h, 7d"},
    "run_at": {"type": moment, "metavar": "ISO", "help": "run at: 2026-01-31T18:30:00+01:00"},
    "expires": {"type": expiry, "metavar": "TIME", "help": "never run after: a time or a moment"},
    "name": {"metavar": "TEXT", "help": "what people see the job as"},
    "max_retries": {"type": int, "metavar": "N", "help": "runs after the first one"},
    "timeout": {"type": time_limit, "metavar": "TIME", "help": "of one run; none: no limit"},
    "idempotency_key": {"metavar": "KEY", "help": "do the work once per key"},
    "unique_key": {"metavar": "KEY", "help": "one live job per key"},
}


class Command(JobsCommand):
    """Enqueue one job, or a file of them."""

    help = (
        "Enqueues a job and prints its id. What the handler's @job says holds, unless an option "
        "says otherwise. When a live job holds the unique key, its id is printed and the exit "
        "code is 1."
    )
    examples = """
        jobs_enqueue shop.jobs.send_receipt '[42]'
        jobs_enqueue shop.jobs.send_receipt '{"order_id": 42}' --delay 15m --unique-key receipt-42
        jobs_enqueue shop.jobs.send_receipt '{"args": [], "kwargs": {"order_id": 42}}'
        jobs_enqueue --file jobs.jsonl --queue bulk
        jobs_enqueue --file - < jobs.jsonl
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("handler", nargs="?", metavar="HANDLER", help="the handler's key")
        add(
            "payload",
            nargs="?",
            metavar="PAYLOAD",
            help="JSON. For a function: a list of arguments, or an object of named ones, or "
            'both as {"args": [], "kwargs": {}}; nothing means no arguments',
        )
        for name, how in OPTIONS.items():
            add(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, **how)
        add(
            "--file",
            metavar="PATH",
            help='a JSON object per line: {"handler": "…", "payload": …, "queue": "…", …}; '
            "- reads standard input; all of a thousand lines are enqueued, or none; options "
            "given beside it hold for lines that do not say otherwise",
        )
        add_json(parser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        preparer = Preparer({name: options[name] for name in OPTIONS if name in options})
        if options["file"] is not None:
            return self._file(output, options, preparer)
        if options["handler"] is None:
            raise refused("name a HANDLER and give its PAYLOAD as JSON, or use --file")
        handler = find_handler(options["handler"])
        job = preparer.prepare(handler.key, payload_argument(options["payload"]))
        (outcome,) = store({1: job})
        if options["json"]:
            output.document({key: value for key, value in asdict(outcome).items() if key != "line"})
        else:
            output.line(outcome.id)
        if outcome.created:
            return 0
        self.stderr.write("a live job holds this unique key; its id is above, none was enqueued")
        return FAILED

    def _file(self, output: Output, options: dict[str, Any], preparer: Preparer) -> int:
        if options["handler"] is not None:
            raise refused("--file brings its own handlers and payloads; leave HANDLER out")
        outcomes: list[Outcome] = []
        try:
            with _opened(options["file"]) as lines:
                for batch in preparer.batches(lines):
                    stored = store(batch)
                    outcomes += stored
                    if not options["json"]:
                        output.line("\n".join(outcome.id for outcome in stored))
        finally:
            # Also report the jobs that were enqueued before an error.
            if options["json"]:
                output.document({"jobs": [asdict(outcome) for outcome in outcomes]})
        if options["verbosity"]:
            self.stderr.write(count_words(outcomes), lambda text: text)
        return 0 if all(outcome.created for outcome in outcomes) else FAILED


def _opened(path: str) -> AbstractContextManager[IO[str]]:
    if path == "-":
        return nullcontext(sys.stdin)
    try:
        return Path(path).open(encoding="utf-8-sig")
    except OSError as error:
        raise refused(f"{escaped(path)} cannot be read: {error.strerror}") from error
