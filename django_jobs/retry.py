"""How long to wait before a retry: policies for jobs, and ``Backoff`` for calls of our own.

A policy answers one question: the delay before retry number ``n``, counted from 1. Whether
there is a retry is decided in one place, by the worker.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_BASE = 5.0
DEFAULT_MULTIPLIER = 2.0
DEFAULT_MAXIMUM = 300.0
JITTER = 0.15
LONGEST_DELAY = 366 * 86_400.0

STRATEGIES = ("none", "fixed", "exponential")

RetrySpec = str | list[float] | dict[str, Any]
"""A policy as it is written in settings, in options and on the wire."""


@runtime_checkable
class RetryPolicy(Protocol):
    """Returns the seconds to wait before retry number ``retry_number`` (1 is the first).

    None gives up: the job dies now, even if it has retries left.
    """

    def delay(self, retry_number: int) -> float | None: ...


# Not a named tuple: without fields it would be falsy.
@dataclass(frozen=True)
class NoBackoff:
    """Retries at once."""

    def delay(self, retry_number: int) -> float:
        return 0.0


class Fixed(NamedTuple):
    """Always the same wait; no cap and no jitter."""

    base: float = DEFAULT_BASE

    def delay(self, retry_number: int) -> float:
        return _clamped(self.base)


class Exponential(NamedTuple):
    """base, base·multiplier, base·multiplier², … never above maximum.

    Jitter spreads a delay by up to 15 % either way; the cap is applied after it, so that
    no wait is longer than ``maximum``.
    """

    base: float = DEFAULT_BASE
    multiplier: float = DEFAULT_MULTIPLIER
    maximum: float = DEFAULT_MAXIMUM
    jitter: bool = True

    def delay(self, retry_number: int) -> float:
        base = max(self.base, 0.0)
        multiplier = self.multiplier if self.multiplier > 0 else DEFAULT_MULTIPLIER
        maximum = max(self.maximum, 1.0)
        try:
            seconds = base * float(multiplier) ** max(retry_number - 1, 0)
        except OverflowError:
            seconds = maximum if base else 0.0
        seconds = min(seconds, maximum)
        if self.jitter:
            seconds *= 1 + random.uniform(-JITTER, JITTER)  # noqa: S311 - spreads load, hides nothing
        return _clamped(min(seconds, maximum))


class Delays(NamedTuple):
    """A list of waits; the last one repeats."""

    seconds: tuple[float, ...]

    def delay(self, retry_number: int) -> float:
        return _clamped(self.seconds[min(max(retry_number, 1), len(self.seconds)) - 1])


class InvalidRetry(ValueError):
    """A retry policy is not valid; the message says what is."""


def normalised(spec: str | Sequence[float] | Mapping[str, Any]) -> RetrySpec:
    """The normal form that travels; raises InvalidRetry. A dotted path is not imported here."""
    if isinstance(spec, str):
        parts = spec.split(".")
        if spec in STRATEGIES or (len(parts) > 1 and all(part.isidentifier() for part in parts)):
            return spec
        raise InvalidRetry(
            f"{spec!r} is no retry strategy; use one of {', '.join(STRATEGIES)}, a list of "
            "delays in seconds, a dict with a STRATEGY, or the dotted path of your own policy"
        )
    if isinstance(spec, dict):
        return _normalised_dict(spec)
    if isinstance(spec, list | tuple):
        if not spec:
            raise InvalidRetry("the list of delays is empty; give at least one, in seconds")
        return [_number(value, f"delay number {n}") for n, value in enumerate(spec, start=1)]
    raise InvalidRetry(f"{spec!r} is neither a strategy, a list of delays, nor a dict")


def _normalised_dict(spec: Mapping[str, Any]) -> dict[str, Any]:
    keys = {"STRATEGY", "BASE", "MULTIPLIER", "MAX", "JITTER"}
    options = {str(key).upper(): value for key, value in spec.items()}
    if unknown := sorted(options.keys() - keys):
        raise InvalidRetry(f"unknown key {unknown[0]}; the keys are {', '.join(sorted(keys))}")
    strategy = options.get("STRATEGY", "exponential")
    if strategy not in STRATEGIES:
        raise InvalidRetry(f"STRATEGY {strategy!r} is not one of {', '.join(STRATEGIES)}")
    result: dict[str, Any] = {"strategy": strategy}
    for key in ("BASE", "MULTIPLIER", "MAX"):
        if key in options:
            result[key.lower()] = _number(options[key], key)
    if "JITTER" in options:
        if not isinstance(options["JITTER"], bool):
            raise InvalidRetry(f"JITTER is {options['JITTER']!r}; it is True or False")
        result["jitter"] = options["JITTER"]
    return result


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRetry(f"{what} is {value!r}, not a number of seconds")
    if not 0 <= value <= LONGEST_DELAY:
        raise InvalidRetry(
            f"{what} is {value!r}; it lies between 0 and {LONGEST_DELAY:.0f} seconds"
        )
    return value


def built_in(spec: RetrySpec) -> RetryPolicy | None:
    """The built-in policy of a normalised spec, or None for a dotted path."""
    if isinstance(spec, list):
        return Delays(tuple(spec))
    if isinstance(spec, str):
        spec = {"strategy": spec}
        if "." in spec["strategy"]:
            return None
    if spec["strategy"] == "none":
        return NoBackoff()
    if spec["strategy"] == "fixed":
        return Fixed(base=spec.get("base", DEFAULT_BASE))
    return Exponential(
        base=spec.get("base", DEFAULT_BASE),
        multiplier=spec.get("multiplier", DEFAULT_MULTIPLIER),
        maximum=spec.get("max", DEFAULT_MAXIMUM),
        jitter=spec.get("jitter", True),
    )


def _clamped(seconds: float) -> float:
    # NaN compares false with everything, so it falls to 0 here too.
    return min(seconds, LONGEST_DELAY) if seconds > 0 else 0.0


# Calls of our own: each pause longer, and spread so that they do not coincide.


class Backoff:
    """Pauses that double from ``first`` to ``longest`` seconds. ``pause``: the next one."""

    __slots__ = ("_first", "_longest", "pause")

    def __init__(self, first: float, longest: float = float("inf")) -> None:
        self._first = self.pause = min(first, longest)
        self._longest = longest

    def next(self) -> float:
        """The seconds to pause now; twice as long the next time."""
        pause, self.pause = self.pause, min(self.pause * 2, self._longest)
        return pause

    def reset(self) -> None:
        """After a success: begin with the first pause again."""
        self.pause = self._first


def spread(seconds: float) -> float:
    """A random pause of half to all of ``seconds``, so that not all retry at once."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
