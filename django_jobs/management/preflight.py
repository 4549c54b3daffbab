"""What has to be right before jobs can run, looked at one by one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.core import checks
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from django_jobs.backends.database import reading
from django_jobs.backends.registry import backends
from django_jobs.checks import TAG
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.conf.keys import ENVIRONMENT_KEY
from django_jobs.handlers.registry import BUILT_IN_KEYS, registry
from django_jobs.models import Job, JobState
from django_jobs.operations import workers
from django_jobs.operations.database import store_now
from django_jobs.operations.workers import serves
from django_jobs.routers import APP_LABEL, job_databases
from django_jobs.worker import waiting_messages
from django_jobs.worker.build import build_cycle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OK, WARNING, FAILED = "ok", "warning", "failed"
SKEW_SECONDS = 2.0
HANDLERS_LOOKED_AT = 2000
MESSAGES_PER_QUEUE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. ``way_out``: what to do, where it is not well."""

    what: str
    state: str
    told: str
    way_out: str = ""


def findings() -> Iterator[Finding]:
    """From the configuration to the workers; a database that fails is told once."""
    yield from _checks()
    yield from _keys()
    for alias in job_databases(get_settings()):
        reachable = _reachable(alias)
        yield reachable
        if reachable.state == OK:
            migrated = _migrated(alias)
            yield migrated
            if migrated.state == OK:
                for look in (_clock, _workers, _handlers):
                    yield from _safely(look, alias)
    for alias in get_settings().backends:
        yield from _messages(alias)


def _safely(look: Callable[[str], Iterator[Finding]], alias: str) -> Iterator[Finding]:
    try:
        yield from list(look(alias))
    except DatabaseError as error:
        told = f"{alias} refused: {str(error).strip()}"
        yield Finding(what="database", state=FAILED, told=told, way_out="Look at its log.")


def _checks() -> Iterator[Finding]:
    problems = [one for one in checks.run_checks(tags=[TAG]) if not one.is_silenced()]
    for one in problems:
        state = FAILED if one.is_serious() else WARNING
        way_out = one.hint or f"See the page on checks for {one.id}."
        yield Finding(what="check", state=state, told=f"{one.id}: {one.msg}", way_out=way_out)
    if not problems:
        yield Finding(what="check", state=OK, told="the system checks of django_jobs found nothing")


def _keys() -> Iterator[Finding]:
    settings = get_settings()
    count = len(settings.signing_keys)
    if not settings.verify_signatures:
        yield Finding(
            what="keys",
            state=WARNING,
            told="VERIFY_SIGNATURES is off: whoever can write to the store can have jobs run",
            way_out="Leave it on, but while you migrate.",
        )
    told = f"{count} signing key{'' if count == 1 else 's'}; the first one signs"
    way_out = f"Set SIGNING_KEYS, or {ENVIRONMENT_KEY} in the environment."
    yield Finding(what="keys", state=OK if count else FAILED, told=told, way_out=way_out)


def _reachable(alias: str) -> Finding:
    began = time.monotonic()
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        told = f"{alias} cannot be reached: {str(error).strip()}"
        way_out = "Is the server up, and are DATABASES, network and password right?"
        return Finding(what="database", state=FAILED, told=told, way_out=way_out)
    took = (time.monotonic() - began) * 1000
    vendor = connections[alias].display_name
    return Finding(what="database", state=OK, told=f"{alias} ({vendor}) answers in {took:.0f} ms")


def _migrated(alias: str) -> Finding:
    executor = MigrationExecutor(connections[alias])
    ours = [node for node in executor.loader.graph.leaf_nodes() if node[0] == APP_LABEL]
    missing = [migration.name for migration, _ in executor.migration_plan(ours)]
    if not missing:
        return Finding(what="migrations", state=OK, told=f"{alias}: all are applied")
    told = f"{alias}: {len(missing)} not applied: {', '.join(missing)}"
    way_out = f"manage.py migrate --database {alias}"
    return Finding(what="migrations", state=FAILED, told=told, way_out=way_out)


def _clock(alias: str) -> Iterator[Finding]:
    before = time.time()
    there = store_now(alias) / SECOND
    skew = there - (before + time.time()) / 2
    told = f"that of {alias} differs from this machine's by {abs(skew):.1f} s"
    if abs(skew) <= SKEW_SECONDS:
        yield Finding(what="clock", state=OK, told=told)
        return
    way_out = "Leases and due times follow the database's clock; let NTP set both."
    yield Finding(what="clock", state=WARNING, told=told, way_out=way_out)


def _workers(alias: str) -> Iterator[Finding]:
    seen = workers(alias)
    here = [one.worker for one in seen if one.is_present]
    if lost := len(seen) - len(here):
        told = f"{lost} told nothing of themselves for a while; were they killed?"
        way_out = "Their jobs return when the leases end; the rows go by themselves."
        yield Finding(what="workers", state=WARNING, told=told, way_out=way_out)
    if not here:
        told = f"none is running on {alias}"
        way_out = "Start one: manage.py jobs_work"
        yield Finding(what="workers", state=WARNING, told=told, way_out=way_out)
        return
    yield Finding(what="workers", state=OK, told=", ".join(sorted(map(str, here))))
    for queue in sorted({*get_settings().queues, *reading.queues(alias)}):
        if not any(serves(worker, queue) and not worker.draining for worker in here):
            told = f"nobody serves the queue {queue}"
            way_out = f"manage.py jobs_work --queue {queue}"
            yield Finding(what="queue", state=WARNING, told=told, way_out=way_out)


def _handlers(alias: str) -> Iterator[Finding]:
    jobs = Job.objects.using(alias).filter(state__in=[JobState.READY, JobState.SCHEDULED])
    first = jobs.order_by("-pk").values_list("handler", flat=True)[:HANDLERS_LOOKED_AT]
    unknown = sorted(key for key in set(first) if registry.get(key) is None)
    for key in unknown:
        told = f"jobs of {key} wait, and this code has no such handler"
        way_out = "Deploy the code that has it, or cancel them: jobs_list --handler."
        yield Finding(what="handler", state=WARNING, told=told, way_out=way_out)
    if not unknown:
        own = len(set(registry) - BUILT_IN_KEYS)
        yield Finding(what="handlers", state=OK, told=f"{own} of your own are registered")


def _messages(alias: str) -> Iterator[Finding]:
    """What a worker with these settings would make of the first messages of each queue."""
    try:
        backend = backends[alias]
        gatekeeper = build_cycle(backend, get_settings()).gatekeeper
        looked = waiting_messages.look(backend, gatekeeper, None, MESSAGES_PER_QUEUE)
    except Exception as error:  # noqa: BLE001 - whatever a driver raises; the next look is to follow
        told = f"those of {alias} cannot be looked at: {str(error).strip()}"
        yield Finding(what="messages", state=WARNING, told=told, way_out="Is its server up?")
        return
    for unfit in looked.unfit:
        told = (
            f"{unfit.messages} of the first {looked.messages} that wait on {alias} would not be "
            f"run here ({unfit.reason}, in {', '.join(unfit.queues)}): {unfit.detail}"
        )
        yield Finding(what="messages", state=WARNING, told=told, way_out=unfit.way_out)
    if not looked.unfit:
        told = f"the first {looked.messages} that wait on {alias} would be run here"
        yield Finding(what="messages", state=OK, told=told)
