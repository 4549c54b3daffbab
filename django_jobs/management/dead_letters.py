"""Dead letters for ``jobs_dlq``: showing them as text and JSON, replaying and discarding them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from django_jobs.clock import SECOND, from_datetime
from django_jobs.management.base import (
    FAILED,
    check_can_ask,
    chosen_database,
    confirmed,
    progress,
    refused,
    system_user,
)
from django_jobs.management.output import aware, error_in_short, escaped, from_now, iso
from django_jobs.models import JobAttempt
from django_jobs.operations.dead_letters import (
    discard_each,
    obstacle_of,
    replay_each,
    select,
)
from django_jobs.redaction import field_of, laid_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.management.base import OutputWrapper
    from django.db.models import QuerySet

    from django_jobs.management.output import Output
    from django_jobs.models import FailedJob


HEADERS = ("number", "job", "queue", "handler", "reason", "attempts", "died", "error")
_SHORT = (
    "backend",
    "queue",
    "handler",
    "name",
    "reason",
    "attempts",
    "crashes",
    "error_type",
    "error_message",
)


def row(failed: FailedJob, now: int) -> tuple[object, ...]:
    """The cells under HEADERS."""
    died = from_now((from_datetime(aware(failed.failed_at)) - now) / SECOND)
    error = error_in_short(failed.error_type, failed.error_message)
    identity = (failed.pk, failed.job_id, failed.queue, failed.handler, failed.reason)
    return (*identity, failed.attempts, died, error)


def document(failed: FailedJob) -> dict[str, Any]:
    """A dead letter of a list for JSON."""
    return {
        "number": failed.pk,
        "id": str(failed.job_id),
        **{name: getattr(failed, name) for name in _SHORT},
        "enqueued_at": iso(failed.enqueued_at),
        "failed_at": iso(failed.failed_at),
        "replay_of": _text(failed.replay_of),
        "resolution": _resolution(failed),
    }


def full_document(failed: FailedJob, using: str) -> dict[str, Any]:
    """A dead letter with all its details for JSON, with secrets redacted."""
    obstacle = obstacle_of(failed)
    return {
        **document(failed),
        "replayable": not obstacle and not failed.resolution,
        "obstacle": obstacle,
        "payload": field_of(failed.body, "payload"),
        "meta": field_of(failed.body, "meta"),
        "traceback": failed.traceback,
        "output": failed.output,
        "runs": [
            {
                "number": attempt.number,
                "outcome": attempt.outcome,
                "started_at": iso(attempt.started_at),
                "finished_at": iso(attempt.finished_at),
                "error_type": attempt.error_type,
                "error_message": attempt.error_message,
                "worker": attempt.worker,
            }
            for attempt in _attempts(failed, using)
        ],
    }


def page(failed: FailedJob, using: str) -> Iterator[str]:
    """A dead letter with all its details for people, as escaped lines."""
    facts = {
        "dead letter": failed.pk,
        "job": failed.job_id,
        "handler": failed.handler,
        "name": failed.name,
        "queue": f"{failed.queue} ({failed.backend})",
        "reason": failed.reason,
        "runs": f"{failed.attempts}, and {failed.crashes} crashes",
        "enqueued": iso(failed.enqueued_at),
        "died": iso(failed.failed_at),
        "replay of": failed.replay_of,
        "resolution": _resolved(failed),
        "replay": obstacle_of(failed) or "possible",
    }
    if failed.resolution:
        del facts["replay"]
    for name, fact in facts.items():
        if fact:
            yield f"{name + ':':<13}{escaped(str(fact))}"
    error = ": ".join(part for part in (failed.error_type, failed.error_message) if part)
    payload = field_of(failed.body, "payload")
    sections = {
        "error": error,
        "payload": "(cannot be read)" if payload is None else laid_out(payload),
        "traceback": failed.traceback,
        "output": failed.output,
    }
    for title, text in sections.items():
        if text:
            yield f"\n{title}:"
            yield from (f"  {line}" for line in escaped(text.rstrip(), keep_lines=True).split("\n"))
    if attempts := _attempts(failed, using):
        yield "\nruns that failed:"
    for attempt in attempts:
        what = error_in_short(attempt.error_type, attempt.error_message)
        when = f"{iso(attempt.started_at)} by {attempt.worker or 'an unknown worker'}"
        yield escaped(f"  {attempt.number}: {attempt.outcome}, {when}: {what}")


def _attempts(failed: FailedJob, using: str) -> list[JobAttempt]:
    attempts = JobAttempt.objects.using(using)
    of_job = attempts.filter(job_id=failed.job_id, backend=failed.backend)
    return list(of_job.order_by("number", "pk"))


def _resolution(failed: FailedJob) -> dict[str, Any] | None:
    if not failed.resolution:
        return None
    return {
        "how": failed.resolution,
        "by": failed.resolved_by,
        "at": iso(failed.resolved_at),
        "note": failed.resolution_note,
        "replayed_as": _text(failed.replayed_as),
    }


def _resolved(failed: FailedJob) -> str:
    if not failed.resolution:
        return ""
    lived_on = f" as {failed.replayed_as}" if failed.replayed_as else ""
    note = f" ({failed.resolution_note})" if failed.resolution_note else ""
    return f"{failed.resolution}{lived_on} by {failed.resolved_by}, {iso(failed.resolved_at)}{note}"


def _text(value: object) -> str | None:
    return None if value is None else str(value)


# Replaying and discarding.

Verb = Literal["replay", "discard"]
_DONE = {"replay": "replayed", "discard": "discarded"}
_WELL = {
    "replay": {"replayed", "already-replayed", "would-replay"},
    "discard": {"discarded", "already-discarded", "would-discard"},
}
FILTERS = ("queue", "handler", "reason", "older_than")
LISTED_AT_MOST = 50


@dataclass(slots=True)
class ReplayReport:
    """The outcomes of a replay or discard."""

    verb: Verb
    counts: Counter[str] = field(default_factory=Counter)
    results: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def add(self, result: dict[str, Any]) -> None:
        self.counts[result["status"]] += 1
        self.results.append(result)

    @property
    def succeeded(self) -> bool:
        return not self.missing and self.counts.keys() <= _WELL[self.verb]

    def lines(self) -> Iterator[str]:
        """The outcome of each dead letter, of many only the failures, and then the counts."""
        few = len(self.results) <= LISTED_AT_MOST
        for result in self.results:
            if few or result["status"] not in _WELL[self.verb]:
                lived_on = f" as {result['new_id']}" if result.get("new_id") else ""
                why = f": {result['why']}" if result["why"] else ""
                outcome = f"{result['status']}{lived_on}{why}"
                yield escaped(f"{result['failed_id']} {result['job_id']} {outcome}")
        for name in self.missing:
            yield f"there is no dead letter {escaped(name)}"
        counted = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        yield counted or f"0 {_DONE[self.verb]}"


def resolve(output: Output, errors: OutputWrapper, verb: Verb, options: dict[str, Any]) -> int:
    """Run ``jobs_dlq replay`` and ``jobs_dlq discard``; returns the exit code."""
    chosen = _chosen(verb, options)
    total = chosen.count()
    report = ReplayReport(verb, missing=_missing(chosen, options["ids"]))
    if options["dry_run"]:
        for result in _dry_run(chosen, verb):
            report.add(result)
    elif total and options["all"] and options["interactive"]:
        check_can_ask("--no-input, or --dry-run to see what would be done", as_json=options["json"])
        if not confirmed(f"{verb.capitalize()} {total} dead letters?"):
            output.line("Nothing was done.")
            return FAILED
    if not options["dry_run"]:
        with progress(errors, total, verb) as advance:
            for result in _done(chosen, verb, options):
                report.add(result)
                advance(1)
    if options["json"]:
        counts = dict(sorted(report.counts.items()))
        summary = {
            "action": verb,
            "dry_run": options["dry_run"],
            "matched": total,
            "counts": counts,
        }
        output.document({**summary, "results": report.results, "missing": report.missing})
    else:
        output.line("\n".join(report.lines()))
    return 0 if report.succeeded else FAILED


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
    present = {str(name) for names in chosen.values_list("pk", "job_id") for name in names}
    return [letter_id for letter_id in dict.fromkeys(ids) if letter_id not in present]


def _dry_run(chosen: QuerySet[FailedJob], verb: Verb) -> Iterator[dict[str, Any]]:
    """The outcome that each dead letter would have; changes nothing."""
    for failed in chosen.order_by("pk").iterator(100):
        status, why = f"would-{verb}", ""
        if failed.resolution:
            same = failed.resolution == _DONE[verb]
            status = f"already-{failed.resolution}" if same else failed.resolution
        elif verb == "replay" and (why := obstacle_of(failed)):
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
