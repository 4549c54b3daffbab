"""Answers that never arrived: claims are given back by their tokens, a settle is unknown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from django.db import Error

from django_jobs.backends.base import Settled
from django_jobs.db.transactions import gave_up, is_connection_lost
from django_jobs.exceptions import StoreUnavailable
from django_jobs.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

FIRST_PAUSE = 1.0


class _Claim(NamedTuple, Generic[T]):
    """A claim, and the moment of the next try on our own clock."""

    claim: T
    ask_at: float
    backoff: Backoff
    until: float


class UnansweredClaims(Generic[T]):
    """The claims of one backend that may have taken jobs, though their answer never arrived.

    ``give_back`` returns the jobs of a claim, and says how many there were. The store may still
    be executing the claim, so one without jobs is tried again until its lease is over.
    """

    def __init__(self, give_back: Callable[[T], int]) -> None:
        self._give_back = give_back
        self._claims: list[_Claim[T]] = []

    def add(self, claims: Iterable[T], lease_seconds: float) -> None:
        """Note claims that may have happened."""
        now = time.monotonic()
        self._claims += [
            _Claim(claim, now, Backoff(FIRST_PAUSE), now + lease_seconds) for claim in claims
        ]

    def give_back(self) -> None:
        """Give back the jobs of these claims, each to its place, without charging anything.

        If a row is locked, or one server of a cluster is away, the claim is tried again later, and
        does not hold up other queues. If the whole store is away the error is raised: otherwise
        the store would seem to work.
        """
        now = time.monotonic()
        for pending in [pending for pending in self._claims if pending.ask_at <= now]:
            returned = self._give_one_back(pending.claim)
            self._claims.remove(pending)
            if not returned and now < pending.until:
                self._claims.append(pending._replace(ask_at=now + pending.backoff.next()))

    def _give_one_back(self, claim: T) -> int:
        try:
            return self._give_back(claim)
        except StoreUnavailable as error:
            if not error.spares_others:
                raise
        except Error as error:
            if not gave_up(error):
                raise
        return 0


def answered(work: Callable[[], list[Settled]], count: int) -> list[Settled]:
    """The answers of a settle; all "unknown" if the connection broke before they arrived."""
    try:
        return work()
    except Error as error:
        if not is_connection_lost(error):
            raise
        return [Settled.UNKNOWN] * count
