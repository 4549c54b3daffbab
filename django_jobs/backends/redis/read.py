"""Read jobs, results and queues; also cancel jobs and purge results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django_jobs.backends.base import Account, Ended, QueueStats
from django_jobs.backends.ended_jobs import dead_account
from django_jobs.backends.redis.dead_letters import Parked, parked_of
from django_jobs.backends.redis.records import attempts_of, glimpse_of, result_of
from django_jobs.backends.values import reason_of
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.db.clock import maybe_for_people
from django_jobs.routers import job_databases
from django_jobs.wire.envelope import MAX_MOMENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from django_jobs.backends.base import AttemptRecord, Glimpse, Lease
    from django_jobs.backends.redis.store import RedisStore


HELD_PARTS = 5
_WHERE_JOBS_ARE = ("jobs", "res", "dead")


class Reader:
    """Reads of one backend."""

    def __init__(self, store: RedisStore, backend: str) -> None:
        self._store = store
        self._backend = backend

    def stats(self, queue: str) -> QueueStats:
        counts = self._store.run("stats", queue, [])
        ready, scheduled, running, blocked, suspect, waited = map(int, counts)
        return QueueStats(
            ready=ready,
            scheduled=scheduled,
            running=running,
            blocked=blocked,
            suspect=suspect,
            oldest_ready_seconds=waited / SECOND,
        )

    def peek(self, queue: str, limit: int) -> list[Glimpse]:
        now, *parts = self._store.run("peek", queue, [limit])
        return [
            glimpse_of(
                *parts[at : at + 3],
                queue=queue,
                backend=self._backend,
                stands="scheduled" if int(parts[at][3:19]) > int(now) else "ready",
            )
            for at in range(0, len(parts), 3)
        ]

    def held(self, queue: str, limit: int) -> list[Glimpse]:
        """Jobs that run, and jobs that wait for a key."""
        parts = self._store.run("held", queue, [limit])
        return [
            self._held(queue, *parts[at : at + HELD_PARTS])
            for at in range(0, len(parts), HELD_PARTS)
        ]

    def _held(
        self, queue: str, stands: bytes, place: bytes, ends: bytes, raw: bytes, text: bytes
    ) -> Glimpse:
        return glimpse_of(
            place,
            raw,
            text,
            queue=queue,
            backend=self._backend,
            stands=stands.decode(),
            lease_expires=int(ends) if ends else None,
        )

    def find(self, job_id: str) -> Glimpse | None:
        """The live job with an id, searched for in every queue."""
        queue = self.queue_of(job_id)
        if queue is None:
            return None
        answer = self._store.run("find", queue, [job_id])
        if not answer:
            return None
        stands, place, ends, raw, text, asked, now = answer
        seen = glimpse_of(
            place,
            raw,
            text,
            queue=queue,
            backend=self._backend,
            stands=stands.decode(),
            lease_expires=round(min(max(float(ends), 0.0), MAX_MOMENT)) if ends else None,
        )
        more = {"asked_to_stop": bool(int(asked)), "seen_at": int(now)}
        return seen._replace(extra={**seen.extra, **more})

    def known_ids(self, jobs: Mapping[str, str]) -> set[str]:
        """The ids among ``jobs`` (id to queue) that are here or were pushed lately."""
        if not jobs:
            return set()

        def ask(client: Any) -> Any:
            pipe = client.pipeline(transaction=False)
            for job_id, queue in jobs.items():
                base = self._store.layout.base(queue)
                for name in _WHERE_JOBS_ARE:
                    pipe.hexists(base + name, job_id)
                pipe.exists(f"{base}pushed:{job_id}")
            return pipe.execute()

        replies = iter(self._store.connection.ask(ask))
        of_each = zip(*[replies] * (len(_WHERE_JOBS_ARE) + 1), strict=True)
        return {job_id for job_id, answers in zip(jobs, of_each, strict=True) if any(answers)}

    def queue_of(self, job_id: str) -> str | None:
        """The queue in which a job lives."""
        queues = self._store.queues()
        flags = self._store.each(queues, lambda pipe, base: pipe.hexists(base + "jobs", job_id))
        return next((queue for queue, there in zip(queues, flags, strict=True) if there), None)

    def latest(self, queue: str | None, limit: int) -> list[Account]:
        """Ended jobs whose result is kept, without their attempts."""
        accounts = []
        for name in self._store.queues() if queue is None else [queue]:
            pages: list[list[Any]] = self._store.past_unreadable(
                [name], lambda some: self._store.run_on("ended", some, [limit]), none=[]
            )
            page = pages[0]
            for job_id, text in zip(page[::2], page[1::2], strict=True):
                if result := result_of(text):
                    accounts.append(_account_of(job_id.decode("utf-8", "replace"), name, result))
        return accounts

    def ended(self, job_id: str) -> Ended | None:
        account = self._result(job_id) or self._dead(job_id)
        if account is None:
            return None
        return Ended(
            status=account.status,
            value_json=account.value_json,
            reason=account.reason,
            error_type=account.error_type,
            error_message=account.error_message,
            traceback=account.traceback,
            output=account.output,
            attempts=account.failed_attempts,
            finished_at=maybe_for_people(account.finished_at),
        )

    def account(self, job_id: str) -> Account | None:
        # A job that ended between the first two reads is found by the last two.
        for look in (self._result, self._live, self._dead, self._result):
            if account := look(job_id):
                return account
        return None

    def _result(self, job_id: str) -> Account | None:
        queues = self._store.queues()
        there = self._store.each(queues, lambda pipe, base: pipe.hexists(base + "res", job_id))
        for queue in [name for name, is_there in zip(queues, there, strict=True) if is_there]:
            record = result_of(self._store.run("kept", queue, [job_id]))
            if record:
                account = _account_of(job_id, queue, record)
                if not account.failed_attempts:
                    return account
                return account._replace(attempts=self._attempts(queue, job_id))
        return None

    def _live(self, job_id: str) -> Account | None:
        seen = self.find(job_id)
        if seen is None:
            return None
        failed = seen.message.header.attempts
        return Account(
            id=job_id,
            queue=seen.queue,
            handler=str(seen.message.index["handler"]),
            status=seen.state,
            body=seen.message.body,
            attempts=self._attempts(seen.queue, job_id) if failed else (),
            failed_attempts=failed,
            worker=str(seen.extra["worker"]),
            started_at=seen.extra["leased_at"],
        )

    def _dead(self, job_id: str) -> Account | None:
        """A dead letter, parked here or in the database."""
        queues = self._store.queues()
        raw = self._store.each(queues, lambda pipe, base: pipe.hget(base + "dead", job_id))
        for queue, text in zip(queues, raw, strict=True):
            if text:
                parked = parked_of(job_id.encode(), text, queue=queue, backend=self._backend)
                return self._parked(parked, queue, job_id)
        if _is_id(job_id):
            return dead_account(job_databases(get_settings())[0], self._backend, job_id)
        return None

    def _parked(self, parked: Parked, queue: str, job_id: str) -> Account:
        message, failure = parked.lease.message, parked.failure
        return Account(
            id=job_id,
            queue=queue,
            handler=str(message.index["handler"]),
            status="dead",
            body=message.body,
            attempts=self._attempts(queue, job_id),
            failed_attempts=message.header.attempts,
            finished_at=parked.failed_at,
            reason=failure.reason,
            error_type=failure.error_type,
            error_message=failure.error_message,
            traceback=failure.traceback,
        )

    def _attempts(self, queue: str, job_id: str) -> tuple[AttemptRecord, ...]:
        raw: Sequence[list[bytes]] = self._store.each(
            [queue], lambda pipe, base: pipe.lrange(base + "att:" + job_id, 0, -1)
        )
        return attempts_of(raw[0] or [])


def _account_of(job_id: str, queue: str, record: dict[str, Any]) -> Account:
    """The account of a job from its result."""
    status, output = str(record.get("status")), str(record.get("output") or "")
    return Account(
        id=job_id,
        queue=queue,
        handler=str(record.get("handler") or ""),
        status=status,
        body=None if (body := record.get("body")) is None else str(body),
        failed_attempts=_whole(record.get("attempts")) or 0,
        worker=str(record.get("worker") or ""),
        started_at=_whole(record.get("started_at")),
        finished_at=_whole(record.get("finished_at")),
        value_json=str(record.get("value_json") or "null"),
        reason=reason_of(status, output),
        output=output,
    )


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_MOMENT else None


def _is_id(job_id: str) -> bool:
    try:
        UUID(job_id)
    except ValueError:
        return False
    return True


LOOKED_AT = 100
"""Results read in one step of a purge: each is read as a whole, and may be large."""


def purge_results(
    store: RedisStore, older_than: int, queue: str | None, *, dry_run: bool
) -> Iterator[tuple[int, int]]:
    """See ``HasHousekeeping.purge_results``."""
    for name in store.queues() if queue is None else [queue]:
        place = "0"
        while True:
            answer = store.run(
                "purge", name, [older_than, place, LOOKED_AT, "" if dry_run else "1"]
            )
            place, results, runs = answer[0].decode(), int(answer[1]), int(answer[2])
            if results:
                yield results, runs
            if place == "0":
                break


# Cancelling: waiting jobs are removed, running ones are asked to stop.

_WHY = "cancelled"
_CANCELLED_KEPT_MS = 86_400_000


def cancel(store: RedisStore, queue: str | None, job_id: str, remembered_ms: int) -> bool:
    """Remove a waiting job from a queue, and keep its record for a day."""
    if queue is None:
        return False
    args = [job_id, _WHY, _CANCELLED_KEPT_MS, remembered_ms]
    return bool(store.run("cancel", queue, args))


def asked_to_stop(store: RedisStore, leases: Sequence[Lease]) -> set[str]:
    """The ids of leases whose jobs are to stop."""
    by_queue: dict[str, list[str]] = {}
    for lease in leases:
        by_queue.setdefault(lease.queue, []).append(lease.id)
    names = {store.layout.base(queue): ids for queue, ids in by_queue.items()}
    flags = store.each(
        list(by_queue), lambda pipe, base: pipe.smismember(base + "stops", names[base])
    )
    return {
        job_id
        for ids, answers in zip(by_queue.values(), flags, strict=True)
        for job_id, asked in zip(ids, answers or [0] * len(ids), strict=True)
        if asked
    }
