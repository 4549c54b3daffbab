"""The settings in force and where each comes from, with nothing secret in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from django.conf import settings as django_settings

from django_jobs.conf import get_settings
from django_jobs.conf.keys import ENVIRONMENT_KEY
from django_jobs.definition import UNSET
from django_jobs.redaction import HIDDEN, is_telling, redacted

HEADERS = ("setting", "value", "origin")
_HARMLESS_OPTIONS = frozenset({"DATABASE", "NOTIFY"})
_WRITTEN = {"path": "BACKEND"}
_ALSO_THE_KEY = frozenset({"alias", "name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """One setting. ``origin``: setting, env or default."""

    name: str
    value: Any
    origin: str


def effective() -> list[Effective]:
    """Every setting, in the order of the documentation."""
    settings = get_settings()
    written = getattr(django_settings, "DJANGO_JOBS", {})
    found = []
    for field in fields(settings):
        name = field.name.upper()
        origin = "setting" if name in written else "default"
        value = getattr(settings, field.name)
        if name == "SIGNING_KEYS":
            origin = _origin_of_keys(written)
            value = [f"{key.key_id}: {HIDDEN}" for key in value]
        if name == "ENVIRONMENT" and origin == "default" and value is not None:
            origin = "env"
        if name == "MONITOR_TOKEN" and value is not None:
            value = HIDDEN
        found.append(Effective(name=name, value=_plain(name, value), origin=origin))
    return found


def _origin_of_keys(written: Mapping[str, Any]) -> str:
    """By default they are derived from SECRET_KEY."""
    if written.get("SIGNING_KEYS") is not None:
        return "setting"
    return "env" if ENVIRONMENT_KEY in os.environ else "default"


def _plain(name: str, value: Any) -> Any:
    """A value as JSON can say it."""
    if name == "options":
        return {key: _option(key, option) for key, option in value.items()}
    if is_dataclass(value):
        said = {field.name: getattr(value, field.name) for field in fields(value)}
        return {
            _WRITTEN.get(key, key.upper()): _plain(key, item)
            for key, item in said.items()
            if item is not UNSET and key not in _ALSO_THE_KEY
        }
    if isinstance(value, Mapping):
        return redacted({str(key): _plain("", item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return [_plain("", item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def _option(key: str, value: Any) -> Any:
    """Options of a backend may hold passwords, in URLs too: texts are not shown."""
    if value is None or isinstance(value, bool | int | float):
        return HIDDEN if is_telling(key) else value
    return value if key in _HARMLESS_OPTIONS else HIDDEN
