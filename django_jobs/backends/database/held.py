"""Which rows a lease still holds. Every transition after a claim asks for the exact token.

And for nothing but id and token: a row that does not run has none. Were its state named,
PostgreSQL might read all running jobs, from the index of their lease's ends, which is
the smaller one when it was last analyzed in a quiet hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.models import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

    from django_jobs.backends.base import Lease


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


def lock_held(alias: str, leases: Sequence[Lease]) -> set[str]:
    """The ids of leases that are still held, whose rows nobody else can settle meanwhile."""
    # In the order of their keys, so that two settles never wait for each other in a ring.
    return matching(alias, leases, candidates(alias, leases).select_for_update())


def delete(alias: str, leases: Sequence[Lease]) -> int:
    """Remove the rows of leases; with more than one, of such as were locked before."""
    ids = [lease.id for lease in leases]
    tokens = {lease.token for lease in leases}
    held = Job.objects.using(alias).filter(pk__in=ids, lease_token__in=tokens)
    return int(held._raw_delete(alias))  # noqa: SLF001 - no signals, no collector
