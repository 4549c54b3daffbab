"""How jobs appear on pages: reasons as sentences, redacted payloads, visible characters."""

from __future__ import annotations

import json
from dataclasses import dataclass, is_dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any

from django.db.models import Model, QuerySet
from django.utils.safestring import SafeString, mark_safe

from django_jobs.exceptions import InvalidJob, Rejection
from django_jobs.operations.replay import checked, verified
from django_jobs.redaction import redacted
from django_jobs.texts import printable, rewritten
from django_jobs.wire import strict_json

if TYPE_CHECKING:
    from django_jobs.models import FailedJob

_WHY = {
    "exhausted": "Every run it was allowed has failed. The error below is that of the last one.",
    "not-retryable": "It failed with an error that is not to be retried, so no run followed.",
    "timed-out": "Its last allowed run did not end within its timeout.",
    "crashed": "It was to run alone, time and again, and came to no verdict: its process died, or "
    "its lease ended. The error below tells of the last time. Look for memory that runs out, "
    "native code that fails, and workers that are killed.",
    "expired": "It had not been run when the time it was given ended.",
    "cannot-wait": "It kept asking to be run later, which a job that runs at its enqueue cannot.",
    "unknown-handler": "No worker knew the handler it asks for. "
    "Was it renamed, or is its app not installed there?",
    "unknown-version": "It was written by a newer release than the workers run.",
    "unknown-key": "No worker had the key it is signed with, as long as it was waited for. "
    "Was the key retired too early, or do web and workers have different keys?",
    "other-site": "It was made for another installation, and no worker of that one took it in "
    "time. Do web and workers say the same SITE?",
    "rejected-signature": "Its signature does not fit its content. It was never run.",
    "rejected-malformed": "It cannot be read, or what it says makes no sense. It was never run.",
    "rejected-mismatch": "The columns beside its signed body say something else than the body: "
    "the row was changed. It was never run.",
    "rejected-backend": "It was made for another backend. It was never run.",
    "rejected-queue": "It was found in another queue than it was made for. It was never run.",
    "rejected-handler": "Its queue does not allow the handler it asks for. It was never run.",
    "rejected-too-large": "It is larger than MAX_PAYLOAD_BYTES allows. It was never run.",
    "rejected-payload": "Its handler does not take the arguments it was given. It was never run; "
    "edit them to replay it.",
    "rejected-target": "It asks for an address that ALLOWED_URLS does not let it reach. "
    "It was never run.",
    "rejected-atomic": "It is to commit together with its handler's writes (atomic), which "
    "cannot be here. It was never run.",
    "rejected-replayed": "A job of the same id has already ended. It was not run again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterVerdict:
    """Whether the signature of a dead letter is valid, and whether it could run again."""

    valid: bool
    signature: str
    obstacle: str = ""

    @property
    def replayable(self) -> bool:
        return self.valid and not self.obstacle


def verdict_of(failed: FailedJob) -> LetterVerdict:
    """Check a dead letter as a replay would."""
    try:
        verified(failed)
    except Rejection as rejection:
        return LetterVerdict(valid=False, signature=f"Cannot be verified: {rejection.detail}.")
    signature = f"Fits, made with the key {failed.key_id}."
    try:
        checked(failed)
    except InvalidJob as problem:
        return LetterVerdict(valid=True, signature=signature, obstacle=str(problem))
    return LetterVerdict(valid=True, signature=signature)


def why_it_died(reason: str) -> str:
    """The reason of a dead letter as a sentence."""
    return _WHY.get(reason, f"It ended for the reason “{reason}”.")


def payload_of(body: str) -> str | None:
    """The payload in a body, redacted and laid out; None when the body cannot be read."""
    fields = _fields(body)
    return laid_out(fields["payload"]) if "payload" in fields else None


def meta_of(body: str) -> str:
    """The meta in a body, redacted and laid out; empty when there is none."""
    meta = _fields(body).get("meta")
    return laid_out(meta) if meta else ""


def laid_out(value: Any) -> str:
    """JSON over several lines, with secrets redacted."""
    return printable(json.dumps(redacted(value), indent=2, ensure_ascii=False))


def editable(body: str) -> str:
    """The payload in a body as JSON to be edited, with secrets redacted."""
    return in_editor(redacted(_fields(body).get("payload")))


def in_editor(value: Any) -> str:
    """A value as JSON to be edited, with invisible characters as JSON escapes."""
    return rewritten(json.dumps(value, indent=2, ensure_ascii=False), _escaped)


def from_editor(text: str) -> Any:
    """The value of edited JSON, which may hold any character; raises NotStrictJson."""
    return strict_json.loads("".join([c if c.isascii() else _escaped(c) for c in text]))


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def shown(value: Any) -> Any:
    """A value for a template, with all characters of its texts visible, also inside rows."""
    if isinstance(value, str):
        text = printable(value)
        return mark_safe(text) if isinstance(value, SafeString) else text  # noqa: S308 - it was safe before
    if isinstance(value, dict):
        return {shown(name): shown(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(shown, value))
    if isinstance(value, list | tuple | QuerySet):
        return [shown(item) for item in value]
    return Shown(value) if isinstance(value, Model) or is_dataclass(value) else value


class Shown:
    """Wraps a row or dataclass, and makes all characters of its texts visible."""

    def __init__(self, row: Any) -> None:
        self._row = row

    def __str__(self) -> str:
        return printable(str(self._row))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._row, name)
        return (lambda: shown(value())) if isinstance(value, MethodType) else shown(value)


def shortened(text: str, length: int = 90) -> str:
    """The first line of a text, shortened if necessary."""
    line = printable(text.strip().partition("\n")[0])
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _fields(body: str) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
