"""Figures that nobody counts: how things stand, read from the stores when somebody asks.

Alerts and dashboards rely on the names. They are those of the whole installation, whoever
reads them: of several processes that tell the same, one is right, and their sum is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(NamedTuple):
    """What a gauge tells, by which labels, and in which unit if it is no plain number."""

    told: str
    labels: tuple[str, ...]
    unit: str = ""


_QUEUE = ("backend", "queue")
GAUGES: Final[Mapping[str, Kind]] = {
    "jobs": Kind("Jobs in a state; dead ones are unresolved dead letters.", (*_QUEUE, "state")),
    "jobs_in_flight": Kind("Jobs that are leased.", _QUEUE),
    "oldest_ready_seconds": Kind("How long the oldest ready job has waited.", _QUEUE, "s"),
    "queue_paused": Kind("1 for a queue that is paused.", _QUEUE),
    "workers": Kind("Workers seen within a minute.", ("backend",)),
}


@dataclass(frozen=True, slots=True)
class Gauge:
    """One figure: a name of ``GAUGES``, and a value for each of its labels."""

    name: str
    value: float
    labels: Mapping[str, str]


class Gauges(Protocol):
    """What a collector with a method ``watch`` is given. Reading asks the stores, at most
    every few seconds in a process, however often it is called; it raises what they raise.
    """

    def read(self) -> list[Gauge]:
        """How things stand: for who answers somebody that asked this process."""

    def in_turn(self) -> list[Gauge]:
        """The same, in one process of the installation at a time, and nothing in all others:
        for who tells of its own accord, as every process may. Raises nothing.
        """
