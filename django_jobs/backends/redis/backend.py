"""The Redis backend: the contract's verbs, most of them a Lua script.

The scripts that change state, by verb; each is a file in ``lua``:

    enqueue            enqueue, enkeyed, takeback
    push               enkeyed, takeback
    fetch              fetch, breaker, putoff, putoffnext, unanswered
    ack                ack
    nack               nack
    nack_all           giveback
    abandon            abandon, unpark
    renew              renew
    reap_expired       reap
    cancel             cancel
    ask_to_stop        stop
    count_evidence     breaker
    return_starts      uncount
    return_unanswered  unanswered
    clean_up           cleanup, unheld, unpark, cleanupqueues
    purge_results      purge

``look``, which several verbs run, removes obsolete counts of rate limits.

The commands that change state without a script, with their modules. Any verb can be the first to
use the prefix, or have to store the names of queues again:

    forget_breaker     breakers: HDEL
    forget_rate        backend: DEL
    wait               wait: BLPOP, DEL
    any                ownership: SET; store: SADD, DEL
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import (
    Cancels,
    Capabilities,
    Charge,
    Enqueued,
    HasHousekeeping,
    HousekeepingDue,
    Inspects,
    KeepsBreakers,
    Lease,
    LimitsRates,
    LooksAhead,
    OnConflict,
    Reconnects,
    RemembersEnded,
    Settled,
)
from django_jobs.backends.redis.checks import check_identity, check_server
from django_jobs.backends.redis.claim import Claims
from django_jobs.backends.redis.cleanup import Housekeeper
from django_jobs.backends.redis.connection import (
    Connection,
    NoRoomError,
    RedisClock,
    RedisOptions,
    is_of_a_key,
)
from django_jobs.backends.redis.dead_letters import DeadLetterRelay
from django_jobs.backends.redis.enqueue import Enqueuer
from django_jobs.backends.redis.ownership import Ownership
from django_jobs.backends.redis.read import Reader, asked_to_stop, cancel, purge_results
from django_jobs.backends.redis.records import (
    attempt_text,
    failure_text,
    in_texts,
    result_text,
    settled_text,
)
from django_jobs.backends.redis.scripts import unless_full
from django_jobs.backends.redis.store import RedisStore
from django_jobs.backends.redis.wait import NOTIFIED_FACTOR, Waiting
from django_jobs.clock import to_microseconds
from django_jobs.conf import get_settings
from django_jobs.exceptions import StoreUnavailable
from django_jobs.ids import process_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from django_jobs.backends.base import (
        Account,
        AttemptRecord,
        Ended,
        Evidence,
        Failure,
        Glimpse,
        QueueStats,
        ResultRecord,
        Standing,
    )
    from django_jobs.wire.envelope import Outgoing

SETTLED_AT_ONCE = 1000
"""Lua passes no command more than about eight thousand values."""


class RedisBackend(
    RemembersEnded,
    Inspects,
    Cancels,
    KeepsBreakers,
    LimitsRates,
    HasHousekeeping,
    LooksAhead,
    Reconnects,
):
    """Jobs in Redis 7 or Valkey. ``OPTIONS``: see ``connection.Options``."""

    capabilities = Capabilities(
        delay=True,
        priority=True,
        renew=True,
        batch=True,
        results=True,
        peek=True,
        cancel=True,
        unique=True,
        keys=True,
        accounts=True,
        breakers=True,
    )

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        parsed = RedisOptions.read(alias, self.options)
        connection = Connection(
            parsed.url,
            clustered=parsed.cluster,
            timeout=parsed.timeout,
            options=parsed.client,
            ownership=Ownership(parsed.layout),
        )
        self.store = RedisStore(connection, parsed.layout, alias)
        self.clock = RedisClock()
        self._mine = threading.local()
        self._claims = Claims(self.store, alias)
        self._reader = Reader(self.store, alias)
        self._relay = DeadLetterRelay(self.store, alias)
        self._housekeeper = Housekeeper(self.store, self._claims, self._relay)
        self._remembered_ms = round(parsed.remember * 1000)
        self._enqueuer = Enqueuer(self.store, self._remembered_ms)
        self._waiting = Waiting(connection, parsed.layout, self._claims.due_in)

    @property
    def clock(self) -> RedisClock:
        return self.store.clock

    @clock.setter
    def clock(self, clock: RedisClock) -> None:
        self.store.clock = clock

    def enqueue(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        return self._enqueuer.enqueue(outgoing, on_conflict) if outgoing else []

    def push(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        return self._enqueuer.push(outgoing, on_conflict) if outgoing else []

    def known_ids(self, jobs: Mapping[str, str]) -> set[str]:
        return self._reader.known_ids(jobs)

    def fetch(self, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Lease]:
        return self._claims.fetch(queues, limit, lease_seconds)

    @property
    def fetch_ended_early(self) -> bool:
        return self._claims.ended_early

    def skips(self, queues: Sequence[str] | None) -> bool:
        return self.store.is_away(queues)

    def withholds(self, queues: Sequence[str] | None) -> bool:
        return any(map(self._withholds, self._claims.limited(queues)))

    def _withholds(self, queue: str) -> bool:
        """Whether jobs are due and other workers do not hold all places of the queue."""
        places = self._claims.places(queue)
        stats = self.stats(queue)
        if not stats.ready or places is None or stats.running < places:
            return bool(stats.ready)
        running = self.held(queue, stats.running) if stats.running else []
        return any(seen.extra.get("worker") == process_name() for seen in running)

    def return_unanswered(self) -> None:
        self._claims.unanswered.give_back()

    def ack(
        self,
        leases: Sequence[Lease],
        results: Mapping[str, ResultRecord] | None = None,
        *,
        undone: Collection[str] = (),
    ) -> list[Settled]:
        remembered = to_microseconds(get_settings().idempotency_ttl) // 1000

        def args(mine: Sequence[Lease], kept: Mapping[str, ResultRecord]) -> list[Any]:
            parts = []
            for lease in mine:
                record, result, life = kept.get(lease.id), "", 0
                if record is not None:
                    result = result_text(lease, record)
                    life = max(round(record.ttl_seconds * 1000), 1)
                parts.append(settled_text(lease, result, life, is_done=lease.id not in undone))
            return [remembered, self._remembered_ms, *in_texts(parts)]

        def bare(mine: Sequence[Lease]) -> list[Any]:
            return args(mine, {})

        if not results:
            return self._settled("ack", leases, bare)
        return self._settled("ack", leases, lambda mine: args(mine, results), bare)

    def nack(
        self,
        lease: Lease,
        delay_seconds: float | None = None,
        *,
        charge: Charge = Charge.ATTEMPT,
        attempt: AttemptRecord | None = None,
    ) -> Settled:
        delay = "" if delay_seconds is None else to_microseconds(max(delay_seconds, 0))
        args = [lease.id, lease.token, delay, charge.value]
        return self._recorded("nack", lease, args, attempt)

    def nack_all(self, leases: Sequence[Lease]) -> list[Settled]:
        def args(mine: Sequence[Lease]) -> list[Any]:
            return [part for lease in mine for part in (lease.id, lease.token)]

        return self._settled("giveback", leases, args)

    def abandon(self, lease: Lease, failure: Failure) -> Settled:
        args = [lease.id, lease.token, failure.charge.value]
        rest = [failure_text(failure), self._remembered_ms]
        answer = self._recorded("abandon", lease, args, failure.attempt, *rest)
        if answer is Settled.SETTLED:
            self._relay.carry_one(lease.queue, lease.id)
        return answer

    def is_connected(self) -> bool:
        return getattr(self._mine, "is_connected", False)

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Settled]:
        length = to_microseconds(lease_seconds)

        def args(mine: Sequence[Lease]) -> list[Any]:
            return [length, *(part for lease in mine for part in (lease.id, lease.token))]

        return self._settled("renew", leases, args)

    def _recorded(
        self,
        script: str,
        lease: Lease,
        args: list[Any],
        attempt: AttemptRecord | None,
        *rest: Any,
    ) -> Settled:
        """Settle one lease, with the record of its run if there is one and it fits."""
        full = [*args, attempt_text(attempt), *rest]
        bare = [*args, "", *rest]
        without = None if attempt is None else lambda _: bare
        return self._settled(script, [lease], lambda _: full, without)[0]

    def _settled(
        self,
        script: str,
        leases: Sequence[Lease],
        args: Callable[[Sequence[Lease]], list[Any]],
        bare: Callable[[Sequence[Lease]], list[Any]] | None = None,
    ) -> list[Settled]:
        """Settle leases of any queues. The outcome is UNKNOWN where no answer came.

        ``bare``: the arguments without records, for a server that has no room for them.
        """
        by_queue: dict[str, list[int]] = {}
        for place, lease in enumerate(leases):
            by_queue.setdefault(lease.queue, []).append(place)
        answers = [Settled.UNKNOWN] * len(leases)
        self._mine.is_connected = True
        steps = [
            (queue, places[at : at + SETTLED_AT_ONCE])
            for queue, places in by_queue.items()
            for at in range(0, len(places), SETTLED_AT_ONCE)
        ]
        for queue, places in steps:
            try:
                answer = self._step(script, queue, [leases[place] for place in places], args, bare)
            except StoreUnavailable as error:
                if error.undone and len(steps) == 1:
                    raise
                self._mine.is_connected = False
                continue
            except Exception as error:
                # A lease that cannot be renewed must not prevent renewals in other queues.
                if not is_of_a_key(error) or (len(steps) == 1 and script != "renew"):
                    raise
                self.store.report_unreadable(queue, error)
                continue
            counted = answer if isinstance(answer, list) else [answer > 0] * len(places)
            for place, count in zip(places, counted, strict=True):
                answers[place] = Settled.SETTLED if int(count) else Settled.LOST
        return answers

    def _step(
        self,
        script: str,
        queue: str,
        leases: Sequence[Lease],
        args: Callable[[Sequence[Lease]], list[Any]],
        bare: Callable[[Sequence[Lease]], list[Any]] | None,
    ) -> Any:
        """Settle leases of one queue, without records on a full server: the work is done."""
        if bare is None:
            return self.store.run(script, queue, args(leases))
        try:
            return self.store.run(unless_full(script), queue, args(leases))
        except NoRoomError as error:
            self.store.report_dropped(queue, error)
        return self.store.run(script, queue, bare(leases))

    def reap_expired(self, queue: str | None = None, limit: int = 1000) -> int:
        return self._housekeeper.reap(queue, limit)

    def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        names = self.store.queues() if queues is None else list(queues)
        if timeout <= 0:
            return self._claims.due_in(names) == 0
        return self._waiting.wait(names, timeout)

    def stop_waiting(self) -> None:
        self._waiting.stop()

    def look_every(self, poll_interval: float) -> float:
        """Poll less often where new jobs wake the worker."""
        return poll_interval * (1.0 if self.store.layout.clustered else NOTIFIED_FACTOR)

    def next_due_in(self, queues: Sequence[str]) -> float | None:
        return self._claims.due_in(queues)

    def housekeeping_due(self) -> HousekeepingDue:
        seen = self._claims.look(self.store.queues())
        return HousekeepingDue(
            reap=any(0 <= group.lease_ends <= group.now for group in seen),
            clean_up=any(
                0 <= group.due <= group.now or group.parked or 0 <= group.kept_till <= group.now
                for group in seen
            ),
        )

    def clean_up(self, limit: int = 1000) -> int:
        return self._housekeeper.clean_up(limit)

    def purge_results(
        self, older_than: int, queue: str | None = None, *, dry_run: bool = False
    ) -> Iterator[tuple[int, int]]:
        return purge_results(self.store, older_than, queue, dry_run=dry_run)

    def rate_limited(self, queues: Sequence[str]) -> Collection[str]:
        return self._claims.rated(queues)

    def return_starts(self, leases: Sequence[Lease]) -> None:
        for queue in sorted({lease.queue for lease in leases}):
            self._claims.return_starts(queue, [lease for lease in leases if lease.queue == queue])

    def forget_rate(self, queue: str) -> bool:
        key = self.store.layout.base(queue) + "rate"
        return bool(self.store.connection.ask(lambda client: client.delete(key)))

    def count_evidence(self, observations: Sequence[tuple[Lease, Evidence]]) -> None:
        self._claims.breakers.count_evidence(observations)

    def held_back(self, queues: Sequence[str]) -> str | None:
        return self._claims.held_back(queues)

    def open_breakers(self) -> list[Standing]:
        return self._claims.breakers.standing()

    def forget_breaker(self, kind: str, name: str) -> bool:
        return self._claims.breakers.forget(kind, name)

    def stats(self, queue: str) -> QueueStats:
        return self._reader.stats(queue)

    def peek(self, queue: str, limit: int = 20) -> list[Glimpse]:
        return self._reader.peek(queue, limit)

    def held(self, queue: str, limit: int = 20) -> list[Glimpse]:
        return self._reader.held(queue, limit)

    def latest(self, queue: str | None, limit: int = 20) -> list[Account]:
        return self._reader.latest(queue, limit)

    def find(self, job_id: str) -> Glimpse | None:
        return self._reader.find(job_id)

    def queues(self) -> list[str]:
        names = self.store.queues()
        there = self.store.each(names, lambda pipe, base: pipe.exists(base + "jobs"))
        return [name for name, is_there in zip(names, there, strict=True) if is_there]

    def queues_due(self, since: float) -> list[str]:
        del since  # it always looks anew

        def work(some: list[str]) -> list[str]:
            return [some[int(number) - 1] for number in self.store.run_on("duequeues", some, [])]

        nothing: list[str] = []
        parts = self.store.by_group(self.store.queues(), work, none=nothing)
        return [name for part in parts for name in part]

    def cancel(self, job_id: str) -> bool:
        queue = self._reader.queue_of(job_id)
        return cancel(self.store, queue, job_id, self._remembered_ms)

    def ask_to_stop(self, job_id: str) -> bool:
        queue = self._reader.queue_of(job_id)
        return queue is not None and bool(self.store.run("stop", queue, [job_id]))

    def asked_to_stop(self, leases: Sequence[Lease]) -> set[str]:
        return asked_to_stop(self.store, leases)

    def result(self, job_id: str) -> Ended | None:
        return self._reader.ended(job_id)

    def account(self, job_id: str) -> Account | None:
        return self._reader.account(job_id)

    def confirm_site(self) -> None:
        self.store.connection.confirm_site()

    def check(self) -> list[Any]:
        unproved = check_identity(self.alias, RedisOptions.read(self.alias, self.options))
        return [*unproved, *check_server(self.alias, self.store.connection)]
