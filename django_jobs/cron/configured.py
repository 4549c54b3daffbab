"""Read schedules from the setting SCHEDULE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.cron.options import checked_name, split
from django_jobs.definition import JobDefinition
from django_jobs.exceptions import InvalidOption
from django_jobs.handlers.registry import registry

if TYPE_CHECKING:
    from collections.abc import Mapping


def read(name: str, entry: Mapping[str, Any]) -> tuple[JobDefinition, dict[str, Any], str]:
    """The job, the fields of Schedule and the expression of an entry; raises JobsError."""
    checked_name(name)
    own, rest = split({key.lower(): value for key, value in entry.items()})
    key, expression = str(rest.pop("handler", "")), str(rest.pop("cron", ""))
    handler = registry.find(key)
    payload = handler.encode(_payload(rest))
    return JobDefinition(key, payload, registry.options_of(key).using(**rest)), own, expression


def _payload(rest: dict[str, Any]) -> Any:
    """Take ARGS and KWARGS, or PAYLOAD, out of the rest."""
    called = {"args": list(rest.pop("args", ())), "kwargs": dict(rest.pop("kwargs", {}))}
    if "payload" not in rest:
        return called
    if called["args"] or called["kwargs"]:
        raise InvalidOption("ARGS and KWARGS are for functions, PAYLOAD is for other handlers")
    return rest.pop("payload")
