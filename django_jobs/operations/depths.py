"""How deep the queues are, at a price that does not grow with them.

Nothing is counted further than somebody would read on: of each queue and state a
thousand index entries. Two statements for a database, however many queues there are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from django_jobs.backends.database.metering import UNLIMITED
from django_jobs.backends.window import Rate, Usage
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.models import FailedJob, Job, JobState, QueueControl, QueueMeter
from django_jobs.operations.brokers import brokers, queues_of_brokers, stats_of
from django_jobs.operations.database import jobs_database, moments
from django_jobs.routers import database_of

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNTED_AT_MOST = 1_000
MOST_QUEUES = 100
_OLDEST, _DEAD = -1, -2
_STATES = {
    int(JobState.SCHEDULED): "scheduled",
    int(JobState.READY): "ready",
    int(JobState.RUNNING): "running",
    int(JobState.BLOCKED): "blocked",
    _DEAD: "dead",
}
_STEPS = (
    "WITH RECURSIVE names (name) AS (SELECT MIN({{queue}}) FROM {table} WHERE {these} UNION ALL "
    "SELECT (SELECT MIN({{queue}}) FROM {table} WHERE {these} AND {{queue}} > names.name) "
    "FROM names WHERE names.name IS NOT NULL) "
    "SELECT name FROM names WHERE name IS NOT NULL LIMIT {{limit}}"
)
_NAMES_BY_STEPS = _STEPS.format(table="{table}", these="1 = 1")
_OPEN_BY_STEPS = _STEPS.format(table="{failed}", these="{resolution} = ''")
# Their loose scan is of their own making.
_NAMES_BY_GROUPS = "SELECT {queue} FROM {table} GROUP BY {queue} LIMIT {limit}"
# For an equality they would leave it, and read all of the index that is equal.
_OPEN_BY_GROUPS = (
    "SELECT {queue} FROM {failed} WHERE {resolution} <= '' "
    "GROUP BY {resolution}, {queue} LIMIT {limit}"
)
_IN_STATE = (
    "SELECT {place}, {state}, {backend}, COUNT(*), MIN({due}) FROM (SELECT {backend}, {due} "
    "FROM {table} WHERE {queue} = %s AND {state_column} = {state} "
    "ORDER BY {rank}, {due}, {id} LIMIT {most}) t GROUP BY {backend}"
)
# Those of the lowest priority wait longest, and may stand behind all that was counted.
_OLDEST_OF_ALL = (
    "SELECT {place}, {oldest}, {backend}, 0, {due} FROM (SELECT {backend}, {due} FROM {table} "
    "WHERE {queue} = %s AND {state_column} = {ready} AND {rank} = (SELECT MAX({rank}) FROM {table} "
    "WHERE {queue} = %s AND {state_column} = {ready}) ORDER BY {due}, {id} LIMIT 1) t"
)
# The keys from the index alone, however many more of the queue are resolved or of other queues.
_OPEN = (
    "SELECT {place}, {dead}, f.{backend}, COUNT(*), 0 FROM (SELECT {id} FROM {failed} "
    "WHERE {resolution} = '' AND {queue} = %s ORDER BY {failed_at} DESC, {id} DESC "
    "LIMIT {most}) t JOIN {failed} f ON f.{id} = t.{id} GROUP BY f.{backend}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """How a queue stands. A number above COUNTED_AT_MOST means "or more".

    ``dead`` counts the open dead letters. ``rate`` is the limit that holds, and ``used``
    how much of it is, where the database counts that; brokers have counters of their own.
    """

    backend: str
    queue: str
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    blocked: int = 0
    dead: int = 0
    oldest_seconds: float = 0.0
    paused: bool = False
    paused_reason: str = ""
    rate: str = ""
    used: int | None = None
    concurrency: int | None = None
    problem: str = ""


def depths(at: Mapping[str, int] | None = None) -> list[QueueDepth]:
    """Every queue that has something in it, is configured, or for which something was set."""
    found: dict[tuple[str, str], QueueDepth] = {}
    settings = get_settings()
    for queue in settings.queues:
        key = (settings.backend_for(queue), queue)
        found[key] = QueueDepth(backend=key[0], queue=queue)
    for alias, now in (at or moments()).items():
        _add(found, alias, now)
    for alias, queue in queues_of_brokers():
        found.setdefault((alias, queue), QueueDepth(backend=alias, queue=queue))
    asked = brokers()
    return [_asked(known) if key[0] in asked else known for key, known in sorted(found.items())]


def _add(found: dict[tuple[str, str], QueueDepth], alias: str, now: int) -> None:
    told: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for queue, state, backend, count, due in _counted(alias):
        known = told[backend, queue]
        if state in _STATES:
            known[_STATES[state]] = count
        if state in {_OLDEST, int(JobState.READY)} and isinstance(due, int):
            age = max(now - due, 0) / SECOND
            known["oldest_seconds"] = max(known.get("oldest_seconds", 0.0), age)
    for control in QueueControl.objects.using(alias):
        told[control.backend, control.queue] |= {
            "paused": control.paused,
            "paused_reason": control.reason if control.paused else "",
            "rate": control.rate_limit,
            "concurrency": control.concurrency,
        }
    meters = {(x.backend, x.queue): x.told for x in QueueMeter.objects.using(alias)}
    asked = brokers()
    for key in told.keys() | {key for key in found if _home(key[0]) == alias}:
        known = told.get(key, {})
        depth = replace(found.get(key) or QueueDepth(backend=key[0], queue=key[1]), **known)
        found[key] = _with_rate(depth, meters.get(key), now, counted=key[0] not in asked)


def _home(backend: str) -> str:
    """Where the settings of a backend's queues are."""
    config = get_settings().backends.get(backend)
    return (config and database_of(config)) or jobs_database()


def _with_rate(depth: QueueDepth, told: object, now: int, *, counted: bool) -> QueueDepth:
    configured = get_settings().queues.get(depth.queue)
    text = depth.rate or (configured and configured.rate_limit) or ""
    if not text or text == UNLIMITED:
        return replace(depth, rate="", used=None)
    if not counted:
        return replace(depth, rate=text, used=None)
    try:
        rate = Rate.parse(text)
    except ValueError:  # somebody wrote it past the operations; workers will say so
        return replace(depth, rate=text)
    return replace(depth, rate=text, used=rate.limit - Usage.read(rate, told, now).free())


def _counted(alias: str) -> list[tuple[str, int, str, int, int]]:
    """Queue, state, backend, how many, and since when the oldest is due."""
    words = _words(alias)
    mysql = connections[alias].vendor == "mysql"
    alive = _names(alias, _NAMES_BY_GROUPS if mysql else _NAMES_BY_STEPS)
    dead = _names(alias, _OPEN_BY_GROUPS if mysql else _OPEN_BY_STEPS)
    parts, params = [], []
    for place, queue in enumerate(alive):
        for state in JobState:
            parts.append(_IN_STATE.format(**words, place=place, state=int(state)))
            params.append(queue)
        parts.append(_OLDEST_OF_ALL.format(**words, place=place))
        params += [queue, queue]
    for place, queue in enumerate(dead):
        parts.append(_OPEN.format(**words, place=len(alive) + place))
        params.append(queue)
    if not parts:
        return []
    names = [*alive, *dead]
    with transaction.atomic(alias, savepoint=False), connections[alias].cursor() as cursor:
        if connections[alias].vendor == "postgresql":
            # To compile so many small parts takes longer than all of them run.
            cursor.execute("SET LOCAL jit = off")
        cursor.execute(" UNION ALL ".join(parts), params)
        return [(names[place], *rest) for place, *rest in cursor.fetchall()]


def _names(alias: str, statement: str) -> list[str]:
    """The queues in a table, by one look into its index for each."""
    with connections[alias].cursor() as cursor:
        cursor.execute(statement.format(**_words(alias), limit=MOST_QUEUES))
        return [name for (name,) in cursor.fetchall() if isinstance(name, str)]


def _words(alias: str) -> dict[str, Any]:
    quote = connections[alias].ops.quote_name
    columns = ("id", "queue", "backend", "rank", "due", "resolution", "failed_at")
    return {
        "table": quote(Job._meta.db_table),
        "failed": quote(FailedJob._meta.db_table),
        "state_column": quote("state"),
        "ready": int(JobState.READY),
        "oldest": _OLDEST,
        "dead": _DEAD,
        "most": COUNTED_AT_MOST + 1,
        **{name: quote(name) for name in columns},
    }


def _asked(known: QueueDepth) -> QueueDepth:
    """What a backend outside the database says of its queue."""
    stats = stats_of(known.backend, known.queue)
    if isinstance(stats, str):
        return replace(known, problem=stats)
    return replace(
        known,
        ready=stats.ready,
        scheduled=stats.scheduled,
        running=stats.running,
        blocked=stats.blocked,
        oldest_seconds=stats.oldest_ready_seconds,
    )
