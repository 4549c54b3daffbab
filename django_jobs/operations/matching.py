"""Which open dead letters a run is about, as something that can be stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django_jobs.models import FailedJob

if TYPE_CHECKING:
    from django.db.models import QuerySet


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Which open dead letters are meant: those that fit all that is said."""

    queue: str | None = None
    handler: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    keys: tuple[int, ...] | None = None

    def letters(self, alias: str) -> QuerySet[FailedJob]:
        """Those of them that are still open."""
        said = {name: getattr(self, name) for name in ("queue", "handler", "reason", "fingerprint")}
        conditions = {name: value for name, value in said.items() if value is not None}
        bounds = {
            "failed_at__gte": self.since,
            "failed_at__lt": self.until,
            "pk__in": self.keys,
        }
        conditions |= {name: value for name, value in bounds.items() if value is not None}
        return FailedJob.objects.using(alias).filter(resolution="", **conditions)

    def document(self) -> dict[str, Any]:
        """The same as JSON takes it."""
        said = {name: value for name, value in asdict(self).items() if value is not None}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in said.items()
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Matching:
        known = {field.name for field in fields(cls)}
        said = {name: value for name, value in document.items() if name in known}
        for name in ("since", "until"):
            if name in said:
                said[name] = datetime.fromisoformat(said[name])
        if "keys" in said:
            said["keys"] = tuple(said["keys"])
        return cls(**said)
