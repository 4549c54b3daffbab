"""The claim as one statement, for PostgreSQL: a single round trip, parsed and committed once.

Jobs are locked in order, those that somebody else has locked are skipped, and what was
locked is updated by primary key, all as of one snapshot. Jobs that were scheduled and are
due by now may belong before those that are ready. So where there are any, the statement
takes nothing and says so, and the caller promotes them first.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.database.cursors import Place
from django_jobs.backends.database.rows import ROW_FIELDS, lease_of
from django_jobs.backends.values import CLAIM_BYTES
from django_jobs.ids import process_name
from django_jobs.models import JobState
from django_jobs.wire.envelope import FULL

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Lease
    from django_jobs.backends.database.claiming import Claim

_READY, _RUNNING, _SCHEDULED = (
    int(state) for state in (JobState.READY, JobState.RUNNING, JobState.SCHEDULED)
)
# The driver makes text of an id at a fraction of what a UUID and then its text would cost.
_COLUMNS = ", ".join(
    f"job.{name}::text" if name in {"id", "replay_of"} else f"job.{name}" for name in ROW_FIELDS
)
# What this session has read from the index so far, dead entries that must stay included.
_ENTRIES_READ = "coalesce(pg_stat_get_xact_tuples_returned(to_regclass('dj_job_claim')), 0)"
# The first one tells. Asked for any with due <= now, PostgreSQL reads all of the queue's, for
# it drops the state that is implied by the index, and with it the way to due.
_DUE = (
    f"SELECT coalesce((SELECT due <= {{now}} FROM django_jobs_job WHERE queue = %s "  # noqa: S608 - constants of ours
    f"AND state = {_SCHEDULED} ORDER BY due LIMIT 1), false) AS any_due, {_ENTRIES_READ} AS read"
)
_PAUSED = (
    "EXISTS (SELECT 1 FROM django_jobs_queuecontrol WHERE backend = %s AND queue = %s AND paused)"
)
_FOUND = (
    "SELECT ctid, suspect, octet_length(body) AS size FROM django_jobs_job "  # noqa: S608 - constants of ours
    f"WHERE queue = %s AND state = {_READY} AND backend = %s AND NOT {_PAUSED}"
    "{behind}{unless_due} ORDER BY rank, due, id LIMIT {limit} FOR UPDATE SKIP LOCKED"
)
_NUMBERED = (
    "SELECT ctid, suspect, row_number() OVER () AS place, "
    "sum(size) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before FROM found"
)
# A suspect is to run alone: it is the only one that is taken, or the first that is not.
_CHOSEN = (
    "SELECT ctid FROM numbered WHERE place < greatest(2, "  # noqa: S608 - constants of ours
    f"coalesce((SELECT min(place) FROM numbered WHERE suspect OR bytes_before >= {CLAIM_BYTES}), "
    "{limit} + 1))"
)
# The rows are locked, so they stay where they are. By primary key the planner may read
# all of the index above, which has the id too, when it believes that there is no row.
_CLAIMED = (
    f"UPDATE django_jobs_job AS job SET state = {_RUNNING}, lease_token = %s, worker = %s, "  # noqa: S608 - constants of ours
    "leased_at = {now}, lease_expires = {now} + {lease}, "
    f"deliveries = least(deliveries, {FULL}) + 1 "
    f"WHERE ctid = ANY (ARRAY({_CHOSEN})) RETURNING job.ctid::text, {_COLUMNS}"
)
_CLAIM = (
    f"WITH due AS MATERIALIZED ({_DUE}), found AS MATERIALIZED ({_FOUND}), "  # noqa: S608 - constants of ours
    f"numbered AS MATERIALIZED ({_NUMBERED}), "
    f"claimed AS ({_CLAIMED}) "
    "SELECT due.any_due, (SELECT count(*) FROM numbered), "
    f"{_ENTRIES_READ} - due.read, claimed.* "
    "FROM due LEFT JOIN claimed ON true"
)
_BEFORE = 4  # columns that are not those of every row that is read
_UNLESS_DUE = " AND NOT (SELECT any_due FROM due)"
_BEHIND = " AND (rank, due, id) > (%s, %s, %s)"
_ID, _LEASE_EXPIRES = (_BEFORE + ROW_FIELDS.index(name) for name in ("id", "lease_expires"))
_order = itemgetter(*(_BEFORE + ROW_FIELDS.index(name) for name in ("rank", "due", "id")))


class Taken(NamedTuple):
    """What came of it: leases in their order, where the last one stood, what else is due.

    ``found`` jobs of which none was taken were changed since the statement began, and are
    there all the same. ``passed`` index entries were of jobs that are gone.
    """

    leases: list[Lease]
    last: Place | None
    any_due: bool
    found: int
    passed: int


def take(
    connection: BaseDatabaseWrapper,
    claim: Claim,
    queue: str,
    *,
    behind: Place | None = None,
    unless_due: bool = True,
) -> Taken:
    """Claim from a queue, from its start or behind a place."""
    sql = _CLAIM.format(
        now=claim.clock.sql(connection.vendor),
        limit=int(claim.limit),
        lease=int(claim.lease),
        behind=_BEHIND if behind else "",
        unless_due=_UNLESS_DUE if unless_due else "",
    )
    paused = [claim.backend, queue]
    params = [queue, queue, claim.backend, *paused, *(behind or ()), claim.token, process_name()]
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    any_due, found, read, _ = rows[0][:_BEFORE]
    if rows[0][_ID] is None:
        return Taken([], None, any_due, found, read - found)
    rows.sort(key=_order)
    token, expires_at = claim.token, rows[0][_LEASE_EXPIRES]
    leases = [
        lease_of(
            row[_BEFORE:],
            token=token,
            expires_at=expires_at,
            extra_deliveries=0,
            handle=row[_BEFORE - 1],
        )
        for row in rows
    ]
    return Taken(leases, Place(*_order(rows[-1])), any_due, found, read - found)
