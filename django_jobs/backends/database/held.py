"""Which rows a lease still holds. Every transition after a claim asks for the exact token.

And for nothing but id and token: a row that does not run has none. Were its state named,
PostgreSQL might read all running jobs, from the index of their lease's ends, which is
the smaller one when it was last analyzed in a quiet hour.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.backends.base import Settled
from django_jobs.models import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.models import QuerySet

    from django_jobs.backends.base import Lease

BRIEFLY = (0.005, 0.02, 0.05, 0.1)
"""Seconds after which a settle looks again whether a locked row is free."""


def held_row(alias: str, lease: Lease) -> QuerySet[Job]:
    """The row of a lease, if it is still this lease's."""
    return Job.objects.using(alias).filter(pk=lease.id, lease_token=lease.token)


def candidates(alias: str, leases: Sequence[Lease]) -> QuerySet[Job]:
    """The rows of leases, whoever holds them now."""
    ids = sorted(lease.id for lease in leases)
    return Job.objects.using(alias).filter(pk__in=ids).order_by("pk")


def matching(alias: str, leases: Sequence[Lease], rows: QuerySet[Job]) -> set[str]:
    """The ids whose row shows exactly the token of their own lease."""
    del alias
    tokens = {str(pk): token for pk, token in rows.values_list("pk", "lease_token")}
    return {lease.id for lease in leases if tokens.get(lease.id) == lease.token}


def lock_held(alias: str, leases: Sequence[Lease], *, waits: bool) -> set[str]:
    """The ids of leases that are still held, whose rows nobody else can settle meanwhile.

    Rows that others have locked are left out where they can be, unless the caller ``waits``,
    as it has to inside of a transaction that ends as a whole.
    """
    skips = connections[alias].features.has_select_for_update_skip_locked and not waits
    # In the order of their keys, so that two settles never wait for each other in a ring.
    rows = candidates(alias, leases).select_for_update(skip_locked=skips)
    return matching(alias, leases, rows)


def locked_by_others(alias: str, leases: Sequence[Lease], held: set[str]) -> set[str]:
    """The ids of leases that hold, but whose rows ``lock_held`` left out."""
    if len(held) == len(leases):
        return set()
    missing = [lease for lease in leases if lease.id not in held]
    return matching(alias, missing, candidates(alias, missing))


def past_brief_locks(
    settle: Callable[[Sequence[Lease]], list[Settled]], leases: Sequence[Lease]
) -> list[Settled]:
    """What a settle says that leaves out locked rows, and is asked again for those for a moment.

    On MariaDB a claim locks a row that it passes over, until it has seen that it has to.
    """
    answers = settle(leases)
    for pause in BRIEFLY:
        left = [place for place, one in enumerate(answers) if one is Settled.UNKNOWN]
        if not left:
            break
        time.sleep(pause)
        for place, answer in zip(left, settle([leases[place] for place in left]), strict=True):
            answers[place] = answer
    return answers


def answers_of(leases: Sequence[Lease], settled: set[str], locked: set[str]) -> list[Settled]:
    """What a settle says of each lease."""
    return [
        Settled.SETTLED
        if lease.id in settled
        else (Settled.UNKNOWN if lease.id in locked else Settled.LOST)
        for lease in leases
    ]


def delete(alias: str, leases: Sequence[Lease]) -> int:
    """Remove the rows of leases; with more than one, of such as were locked before."""
    ids = [lease.id for lease in leases]
    tokens = {lease.token for lease in leases}
    held = Job.objects.using(alias).filter(pk__in=ids, lease_token__in=tokens)
    return int(held._raw_delete(alias))  # noqa: SLF001 - no signals, no collector
