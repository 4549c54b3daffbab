"""What each field of a signed body may hold. A correct signature is no excuse for nonsense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.execution.retry import InvalidRetry, normalised
from django_jobs.ids import is_canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_SECONDS = 100 * 366 * 86_400
MAX_MOMENT = 2**53 - 1
MAX_COUNT = 2**31 - 1
FULL = MAX_COUNT - 1
"""No counter is believed beyond that: one more has to fit."""


def _text(limit: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and 0 < len(value) <= limit


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _seconds(value: Any) -> bool:
    return type(value) in {int, float} and 0 <= value <= MAX_SECONDS


def _retry(value: Any) -> bool:
    try:
        return bool(normalised(value) == value)
    except InvalidRetry:
        return False


is_moment = _whole(0, MAX_MOMENT)
RULES: Mapping[str, Callable[[Any], bool]] = {
    "job": _text(255),
    "queue": _text(64),
    "backend": _text(64),
    "site": _text(255),
    "priority": _whole(-100, 100),
    "max_retries": _whole(0, MAX_COUNT - 1),
    "name": _text(255),
    "idempotency_key": _text(255),
    "schedule": is_moment,
    "delay": _seconds,
    "timeout": _seconds,
    "max_crashes": _whole(1, MAX_COUNT),
    "retry": _retry,
    "single_instance": _text(255),
    "concurrency_key": _text(255),
    "concurrency": _whole(1, MAX_COUNT),
    "atomic": lambda value: isinstance(value, bool),
    "unique_key": _text(255),
    "result_ttl": _seconds,
    "tenant": _text(255),
    "meta": lambda value: isinstance(value, dict),
    "expires_at": is_moment,
    "trace_id": _text(64),
    "replay_of": is_canonical,
}
"""By field of the terms."""
