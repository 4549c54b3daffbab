"""Checks of everything that jobs need to run."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.apps import apps
from django.core import checks
from django.db import DatabaseError, connections

from django_jobs.backends.database.wait import all_queues
from django_jobs.backends.home import store_now
from django_jobs.backends.registry import backends
from django_jobs.checks import TAG
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.conf.keys import ENVIRONMENT_KEY
from django_jobs.enqueue import DEFAULT_QUEUE
from django_jobs.exceptions import TablesMissing
from django_jobs.execution.errors import error_text
from django_jobs.handlers.registry import BUILT_IN_KEYS, registry
from django_jobs.management.schema import before_migrate, not_applied
from django_jobs.models import Job, JobState
from django_jobs.operations.brokers import brokers
from django_jobs.operations.workers import serves, workers
from django_jobs.routers import APP_LABEL, job_databases
from django_jobs.worker import waiting_messages
from django_jobs.worker.build import build_gatekeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OK, WARNING, FAILED = "ok", "warning", "failed"
PATIENCE_SECONDS = 10.0
SKEW_SECONDS = 2.0
HANDLERS_LOOKED_AT = 2000
MESSAGES_PER_QUEUE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. ``way_out``: what to do if it is not OK."""

    what: str
    state: str
    text: str
    way_out: str = ""


def findings() -> Iterator[Finding]:
    """All findings, from the configuration to the waiting messages.

    The checks of a database end early if it cannot be reached or is not migrated.
    """
    yield from _checks()
    yield from _keys()
    yield from _brokers()
    for alias in job_databases(get_settings()):
        reachable = _reachable(alias)
        yield reachable
        if reachable.state == OK:
            migrated = _migrated(alias)
            yield migrated
            if migrated.state == OK:
                for look in (_encoding, _clock, _workers, _handlers):
                    yield from _safely(look, alias)
    for alias in get_settings().backends:
        yield from _messages(alias)


def _safely(look: Callable[[str], Iterator[Finding]], alias: str) -> Iterator[Finding]:
    try:
        yield from list(look(alias))
    except DatabaseError as error:
        text = f"{alias} refused: {str(error).strip()}"
        yield Finding(what="database", state=FAILED, text=text, way_out="Look at its log.")


def _checks() -> Iterator[Finding]:
    problems = [message for message in checks.run_checks(tags=[TAG]) if not message.is_silenced()]
    for message in problems:
        state = FAILED if message.is_serious() else WARNING
        way_out = message.hint or f"See the page on checks for {message.id}."
        yield Finding(
            what="check", state=state, text=f"{message.id}: {message.msg}", way_out=way_out
        )
    if not problems:
        yield Finding(what="check", state=OK, text="the system checks of django_jobs found nothing")


def _keys() -> Iterator[Finding]:
    settings = get_settings()
    count = len(settings.signing_keys)
    if not settings.verify_signatures:
        yield Finding(
            what="keys",
            state=WARNING,
            text="VERIFY_SIGNATURES is off: write access to the job table is enough to run jobs",
            way_out="Leave it on, but while you migrate.",
        )
    text = f"{count} signing key{'' if count == 1 else 's'}; the first one signs"
    way_out = f"Set SIGNING_KEYS, or {ENVIRONMENT_KEY} in the environment."
    yield Finding(what="keys", state=OK if count else FAILED, text=text, way_out=way_out)


def _brokers() -> Iterator[Finding]:
    """Backends whose jobs are in no database, and outlive this process."""
    for alias in brokers():
        answered, text = _asked(alias)
        if not answered:
            way_out = f"Is the server up, and are OPTIONS of BACKENDS[{alias!r}] right?"
            yield Finding(what="backend", state=FAILED, text=f"{alias} {text}", way_out=way_out)
        elif text:
            yield Finding(what="backend", state=OK, text=f"{alias} {text}")


def _asked(alias: str) -> tuple[bool, str]:
    """Call ``stats()`` with a time limit; return whether it worked, and a text about it.

    In a thread, because a client may block forever. The text is empty for a backend without
    a server.
    """
    settings = get_settings()
    mine = (queue for queue in settings.queues if settings.backend_for(queue) == alias)
    queue = next(mine, DEFAULT_QUEUE)
    answers: list[tuple[bool, str]] = []
    began = time.monotonic()

    def ask() -> None:
        try:
            backend = backends[alias]
            if backend.ends_with_process or backend.runs_at_enqueue:
                answers.append((True, ""))
                return
            backend.stats(queue)
            answers.append((True, f"answers in {(time.monotonic() - began) * 1000:.0f} ms"))
        except Exception as error:  # noqa: BLE001 - after any error jobs cannot be enqueued there
            wrong = f"{type(error).__name__}: {error_text(error).message}"
            answers.append((False, f"cannot be used: {wrong}"))
        finally:
            connections.close_all()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return answers[0] if answers else (False, f"did not answer within {PATIENCE_SECONDS:g} seconds")


def _reachable(alias: str) -> Finding:
    began = time.monotonic()
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError as error:
        text = f"{alias} cannot be reached: {str(error).strip()}"
        way_out = "Is the server up, and are DATABASES, network and password right?"
        return Finding(what="database", state=FAILED, text=text, way_out=way_out)
    took = (time.monotonic() - began) * 1000
    vendor = connections[alias].display_name
    return Finding(what="database", state=OK, text=f"{alias} ({vendor}) answers in {took:.0f} ms")


def _migrated(alias: str) -> Finding:
    missing = not_applied(alias)
    if not missing:
        return Finding(what="migrations", state=OK, text=f"{alias}: all are applied")
    listed = ", ".join(missing) + before_migrate(alias, missing)
    text = f"{alias}: {len(missing)} not applied: {listed}"
    way_out = TablesMissing.way_out(alias)
    return Finding(what="migrations", state=FAILED, text=text, way_out=way_out)


def _encoding(alias: str) -> Iterator[Finding]:
    """Whether the database can store every character.

    The output, errors and results of handlers may contain any.
    """
    look = {"postgresql": _encoding_of_postgresql, "mysql": _charsets_of_mysql}
    wrong, way_out = look.get(connections[alias].vendor, lambda _: ("", ""))(alias)
    if not wrong:
        yield Finding(what="encoding", state=OK, text=f"{alias} keeps every character")
        return
    text = f"{alias} {wrong}: what does not fit is left out of records, never of jobs"
    yield Finding(what="encoding", state=WARNING, text=text, way_out=way_out)


def _encoding_of_postgresql(alias: str) -> tuple[str, str]:
    with connections[alias].cursor() as cursor:
        cursor.execute("SHOW server_encoding")
        (encoding,) = cursor.fetchone()
    if encoding == "UTF8":
        return "", ""
    way_out = "Dump it, and restore it into a database made with ENCODING 'UTF8' and template0."
    return f"is encoded in {encoding}, not in UTF8", way_out


def _charsets_of_mysql(alias: str) -> tuple[str, str]:
    """Check the character sets of columns, and the database's, which new tables will have."""
    tables = [model._meta.db_table for model in apps.get_app_config(APP_LABEL).get_models()]
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT table_name, character_set_name FROM information_schema.columns "
            "WHERE table_schema = DATABASE() AND character_set_name IS NOT NULL "
            "AND character_set_name <> 'utf8mb4' AND table_name IN %s ORDER BY table_name",
            [tables],
        )
        rows = cursor.fetchall()
        cursor.execute("SELECT DATABASE(), @@character_set_database")
        database, default = cursor.fetchone()
    alter = [f"ALTER DATABASE {database} CHARACTER SET utf8mb4;"] if default != "utf8mb4" else []
    names = dict.fromkeys(table for table, _ in rows)
    alter += [f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4;" for table in names]
    charsets = sorted({charset for _, charset in rows} or ({default} - {"utf8mb4"}))
    where = f"has {len(names)} tables of jobs" if names else "makes new tables"
    wrong = f"{where} in {', '.join(charsets)}, not in utf8mb4" if charsets else ""
    return wrong, " ".join(alter)


def _clock(alias: str) -> Iterator[Finding]:
    before = time.time()
    there = store_now(alias) / SECOND
    skew = there - (before + time.time()) / 2
    text = f"that of {alias} differs from this machine's by {abs(skew):.1f} s"
    if abs(skew) <= SKEW_SECONDS:
        yield Finding(what="clock", state=OK, text=text)
        return
    way_out = "Leases and due times follow the database's clock; let NTP set both."
    yield Finding(what="clock", state=WARNING, text=text, way_out=way_out)


def _workers(alias: str) -> Iterator[Finding]:
    seen = workers(alias)
    here = [entry.worker for entry in seen if entry.is_present]
    if lost := len(seen) - len(here):
        text = f"{lost} sent no heartbeat for a while; were they killed?"
        way_out = "Their jobs return when the leases end; the rows go by themselves."
        yield Finding(what="workers", state=WARNING, text=text, way_out=way_out)
    if not here:
        text = f"none is running on {alias}"
        way_out = "Start one: manage.py jobs_work"
        yield Finding(what="workers", state=WARNING, text=text, way_out=way_out)
        return
    yield Finding(what="workers", state=OK, text=", ".join(sorted(map(str, here))))
    for queue in sorted({*get_settings().queues, *all_queues(alias)}):
        if not any(serves(worker, queue) and not worker.draining for worker in here):
            text = f"no worker serves the queue {queue}"
            way_out = f"manage.py jobs_work --queue {queue}"
            yield Finding(what="queue", state=WARNING, text=text, way_out=way_out)


def _handlers(alias: str) -> Iterator[Finding]:
    jobs = Job.objects.using(alias).filter(state__in=[JobState.READY, JobState.SCHEDULED])
    first = jobs.order_by("-pk").values_list("handler", flat=True)[:HANDLERS_LOOKED_AT]
    unknown = sorted(key for key in set(first) if registry.get(key) is None)
    for key in unknown:
        text = f"jobs of {key} wait, and this code has no such handler"
        way_out = "Deploy the code that has it, or cancel them: jobs_list --handler."
        yield Finding(what="handler", state=WARNING, text=text, way_out=way_out)
    if not unknown:
        own = len(set(registry) - BUILT_IN_KEYS)
        yield Finding(what="handlers", state=OK, text=f"{own} of your own are registered")


def _messages(alias: str) -> Iterator[Finding]:
    """Whether a worker with these settings would run the first messages of each queue."""
    try:
        backend = backends[alias]
        gatekeeper = build_gatekeeper(backend, get_settings())
        inspection = waiting_messages.look(backend, gatekeeper, None, MESSAGES_PER_QUEUE)
    except Exception as error:  # noqa: BLE001 - drivers raise anything; the next check must run
        text = f"those of {alias} cannot be read: {str(error).strip()}"
        yield Finding(what="messages", state=WARNING, text=text, way_out="Is its server up?")
        return
    for refusal in inspection.refusals:
        text = (
            f"{refusal.messages} of the first {inspection.messages} that wait on {alias} would not "
            f"be run here ({refusal.reason}, in {', '.join(refusal.queues)}): {refusal.detail}"
        )
        yield Finding(what="messages", state=WARNING, text=text, way_out=refusal.way_out)
    if not inspection.refusals:
        text = f"the first {inspection.messages} that wait on {alias} would be run here"
        yield Finding(what="messages", state=OK, text=text)
