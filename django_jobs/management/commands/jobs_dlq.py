"""``manage.py jobs_dlq``: show dead letters, replay or discard them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.home import store_now
from django_jobs.management import dead_letters
from django_jobs.management.arguments import dead_letter, duration, positive_int, queue_name
from django_jobs.management.base import (
    FAILED,
    HelpFormatter,
    JobsCommand,
    add_database,
    add_json,
    chosen_database,
    epilog,
)
from django_jobs.management.dead_letters import FILTERS, resolve
from django_jobs.operations.dead_letters import select

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django_jobs.management.output import Output

REPLAYING = """
    jobs_dlq replay 17
    jobs_dlq replay 01890a5d-ac96-774b-bcce-b302099a8057 18 --note "the gateway is back"
    jobs_dlq replay --all --queue mail --older-than 1h --dry-run
    jobs_dlq replay --all --reason timed-out --no-input
"""
DISCARDING = """
    jobs_dlq discard 17 --note "the order was cancelled"
    jobs_dlq discard --all --reason expired --older-than 4w
"""
LISTING = """
    jobs_dlq list
    jobs_dlq list --queue mail --reason exhausted --limit 100
    jobs_dlq list --older-than 7d --json
"""
SHOWING = """
    jobs_dlq show 17
    jobs_dlq show 01890a5d-ac96-774b-bcce-b302099a8057 --json
"""


class Command(JobsCommand):
    """Look after dead letters."""

    help = (
        "Dead letters are jobs of any backend that failed for good. They are kept until they are "
        "replayed (as a new job, once) or discarded."
    )
    examples = LISTING + SHOWING + REPLAYING + DISCARDING

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

        def action(name: str, text: str, examples: str) -> ArgumentParser:
            return actions.add_parser(
                name,
                help=text,
                description=text,
                formatter_class=HelpFormatter,
                epilog=epilog(examples),
            )

        listing = action("list", "list open dead letters, latest first", LISTING)
        _add_filters(listing, "only dead letters")
        limit = "at most N; default: 20"
        listing.add_argument("--limit", type=positive_int, default=20, metavar="N", help=limit)
        showing = action("show", "show one in full, with secrets redacted", SHOWING)
        showing.add_argument("id", type=dead_letter, metavar="ID", help="its number or job id")
        _add_resolving(action("replay", "enqueue them as new jobs, each once", REPLAYING))
        _add_resolving(action("discard", "mark them as needing nothing more", DISCARDING))
        for subparser in actions.choices.values():
            add_database(subparser)
            add_json(subparser)

    def run(self, output: Output, options: dict[str, Any]) -> int:
        match options["action"]:
            case "list":
                return _list(output, options)
            case "show":
                return _show(output, options)
            case verb:
                return resolve(output, self.stderr, verb, options)


def _add_filters(parser: ArgumentParser, what: str) -> None:
    add = parser.add_argument
    add("--queue", type=queue_name, metavar="NAME", help=f"{what} of this queue")
    add("--handler", metavar="KEY", help=f"{what} of this handler")
    add("--reason", metavar="WORD", help=f"{what} with this reason, such as exhausted")
    add("--older-than", type=duration, metavar="AGE", help=f"{what} older than 30s, 15m, 12h, 7d")


def _add_resolving(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("ids", nargs="*", type=dead_letter, metavar="ID", help="their numbers or job ids")
    add("--all", action="store_true", help="all open dead letters; asks first")
    _add_filters(parser, "with --all: only those")
    add("--dry-run", action="store_true", help="say what would become of each, change nothing")
    add(
        "--by",
        metavar="NAME",
        help="who is recorded; default: the operating-system user that runs the command",
    )
    add("--note", default="", metavar="TEXT", help="why; recorded with it")
    add("--no-input", action="store_false", dest="interactive", help="do not ask")


def _list(output: Output, options: dict[str, Any]) -> int:
    using, limit = chosen_database(options["database"]), options["limit"]
    filters = {name: options[name] for name in FILTERS}
    rows = list(select(**filters, using=using)[: limit + 1])
    shown, more = rows[:limit], len(rows) > limit
    if options["json"]:
        letters = [dead_letters.document(failed) for failed in shown]
        output.document({"dead_letters": letters, "more": more})
    elif shown:
        now = store_now(using)
        output.table(dead_letters.HEADERS, [dead_letters.row(failed, now) for failed in shown])
        if more:
            output.line(f"There are more; --limit {limit * 10} shows more of them.")
    else:
        output.line("There are no dead letters like that.")
    return 0


def _show(output: Output, options: dict[str, Any]) -> int:
    using = chosen_database(options["database"])
    # An id is unique on a backend only; the number of a dead letter always is.
    failed = select(ids=[options["id"]], unresolved=False, using=using).first()
    if options["json"]:
        output.document(None if failed is None else dead_letters.full_document(failed, using))
    elif failed is not None:
        output.line("\n".join(dead_letters.page(failed, using)))
    else:
        output.line(
            f"There is no dead letter {options['id']}; jobs_dlq list names those there are."
        )
    return FAILED if failed is None else 0
