"""Replaying and discarding dead letters: chosen, confirmed, done one by one, and told."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from django_jobs.management.asking import check_can_ask, confirmed, system_user
from django_jobs.management.base import FAILED, chosen_database, refused
from django_jobs.management.dead_letters import why_not_replayable
from django_jobs.management.output import escaped
from django_jobs.management.progress import progress
from django_jobs.operations.dead_letters import discard_each, replay_each, select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.management.base import OutputWrapper
    from django.db.models import QuerySet

    from django_jobs.management.output import Output
    from django_jobs.models import FailedJob

Verb = Literal["replay", "discard"]
_DONE = {"replay": "replayed", "discard": "discarded"}
_WELL = {
    "replay": {"replayed", "already-replayed", "would-replay"},
    "discard": {"discarded", "already-discarded", "would-discard"},
}
FILTERS = ("queue", "handler", "reason", "older_than")
TOLD_AT_MOST = 50


@dataclass(slots=True)
class Told:
    """What became of each dead letter; with very many of them, only of those that did not go."""

    verb: Verb
    counts: Counter[str] = field(default_factory=Counter)
    results: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def add(self, result: dict[str, Any]) -> None:
        self.counts[result["status"]] += 1
        self.results.append(result)

    @property
    def went_well(self) -> bool:
        return not self.missing and self.counts.keys() <= _WELL[self.verb]

    def lines(self) -> Iterator[str]:
        """For people: each of a few, of many those with a problem, and the counts."""
        few = len(self.results) <= TOLD_AT_MOST
        for result in self.results:
            if few or result["status"] not in _WELL[self.verb]:
                lived_on = f" as {result['new_id']}" if result.get("new_id") else ""
                why = f": {result['why']}" if result["why"] else ""
                told = f"{result['status']}{lived_on}{why}"
                yield escaped(f"{result['failed_id']} {result['job_id']} {told}")
        for given in self.missing:
            yield f"there is no dead letter {escaped(given)}"
        counted = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        yield counted or f"0 {_DONE[self.verb]}"


def resolve(output: Output, errors: OutputWrapper, verb: Verb, options: dict[str, Any]) -> int:
    """Do what ``jobs_dlq replay`` and ``discard`` are asked."""
    chosen = _chosen(verb, options)
    total = chosen.count()
    told = Told(verb, missing=_missing(chosen, options["ids"]))
    if options["dry_run"]:
        for result in _foreseen(chosen, verb):
            told.add(result)
    elif total and options["all"] and options["interactive"]:
        check_can_ask("--no-input, or --dry-run to see what would be done", as_json=options["json"])
        if not confirmed(f"{verb.capitalize()} {total} dead letters?"):
            output.line("Nothing was done.")
            return FAILED
    if not options["dry_run"]:
        with progress(errors, total, verb) as advance:
            for result in _done(chosen, verb, options):
                told.add(result)
                advance(1)
    if options["json"]:
        counts = dict(sorted(told.counts.items()))
        said = {"action": verb, "dry_run": options["dry_run"], "matched": total, "counts": counts}
        output.document({**said, "results": told.results, "missing": told.missing})
    else:
        output.line("\n".join(told.lines()))
    return 0 if told.went_well else FAILED


def _chosen(verb: Verb, options: dict[str, Any]) -> QuerySet[FailedJob]:
    filters = {name: options[name] for name in FILTERS}
    using = chosen_database(options["database"])
    if options["all"]:
        if options["ids"]:
            raise refused("give the ids of dead letters or --all, not both")
        return select(**filters, using=using)
    if not options["ids"]:
        raise refused(f"say what to {verb}: ids of dead letters, or --all")
    if any(value is not None for value in filters.values()):
        raise refused("--queue, --handler, --reason and --older-than narrow --all, not ids")
    return select(ids=options["ids"], unresolved=False, using=using)


def _missing(chosen: QuerySet[FailedJob], ids: list[str]) -> list[str]:
    if not ids:
        return []
    found = {str(name) for names in chosen.values_list("pk", "job_id") for name in names}
    return [given for given in dict.fromkeys(ids) if given not in found]


def _foreseen(chosen: QuerySet[FailedJob], verb: Verb) -> Iterator[dict[str, Any]]:
    """What would become of each, changing nothing."""
    for failed in chosen.order_by("pk").iterator(100):
        status, why = f"would-{verb}", ""
        if failed.resolution:
            same = failed.resolution == _DONE[verb]
            status = f"already-{failed.resolution}" if same else failed.resolution
        elif verb == "replay" and (why := why_not_replayable(failed)):
            status = "refused"
        yield {"failed_id": failed.pk, "job_id": str(failed.job_id), "status": status, "why": why}


def _done(
    chosen: QuerySet[FailedJob], verb: Verb, options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    by, note = options["by"] or system_user(), options["note"]
    each: Iterator[Any]
    if verb == "replay":
        each = iter(replay_each(chosen, by=by, reason=note))
    else:
        each = iter(discard_each(chosen, by=by, reason=note))
    return map(asdict, each)
