"""Decides which child gets which job: short jobs in chunks, suspects alone, none left waiting."""

from __future__ import annotations

import time
from collections import deque
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from django_jobs.worker.pool.pace import LONG_SECONDS, Pace
from django_jobs.worker.pool.thread_messages import Idle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from django_jobs.worker.pool.children import Child, Held, Lane
    from django_jobs.worker.pool.lifecycle import ChildLimits
    from django_jobs.worker.pool.settlement import Settlement
    from django_jobs.worker.pool.shared_memory import Places

AHEAD_AT_ONCE = 4  # leases fetched ahead come in this many parts at most
BALANCE_SECONDS = 0.01
FREE_SECONDS = 0.1
CHUNK_BYTES = 1 << 20
SHORTEST_TURN = 0.01
LONGEST_WAIT = 60.0  # a suspect that was put off is claimed again after this time
WHY_STALE = "its lease could not be renewed in time"
WHY_LATE = "no process was free to start it before its count in the rate limit ended"
RESERVED_SHARE = 8
WHY_PUT_OFF = "it has to run alone, and others that have to do so now"


class Dispatch:
    """Hands the leases that wait in this worker over to the lanes of children.

    A suspect runs alone. Where children run one job at a time, any idle child will do. Otherwise
    additional, isolated children run suspects only, and no suspect waits here for one: if the
    machine dies, every suspect that it holds is charged, and a waiting suspect blocks the jobs
    behind it. It is put off until its turn may have come, and the worker goes on with other jobs.

    Jobs of a rate-limited queue have to start at once (``Lease.start_by``). So they come first,
    go to idle lanes only, or go back. They are fetched for idle lanes only, and a lane is kept
    free for them while they ``lack_lanes``.
    """

    def __init__(
        self,
        children: Mapping[int, Child],
        settlement: Settlement,
        places: Places,
        limits: ChildLimits,
    ) -> None:
        self.ready: deque[Held] = deque()
        self.lacks_isolated = False
        self.lack_lanes = False
        self._children = children
        self._settlement = settlement
        self._places = places
        self._limits = limits
        self._pace, self._prompt = Pace(), Pace()
        self._isolates = places.concurrency > 1
        self._suspicious = self._limited_last = False
        self._suspect_at = self._turn_at = time.monotonic()
        self._progress_at = time.monotonic()
        self._balance_at = self._free_at = 0.0

    def observe(self, held: Held, seconds: float) -> None:
        """A job has ended; learn from how long it took."""
        self._pace.observe(held.handler, seconds)
        if held.lease.start_by is not None and not self._isolates:
            self._prompt.observe(held.lease.queue, seconds)
        self._progress_at = time.monotonic()

    def receive(self, held: Sequence[Held]) -> None:
        """Take in fetched leases. A suspect comes alone, and more of them may follow."""
        is_suspect, is_limited = held[-1].lease.suspect, _is_limited(held[-1])
        if is_limited or (is_suspect and self._isolates):
            self.ready.extendleft(reversed(held))  # it delays no other job
        else:
            self.ready.extend(held)
        self._suspicious = is_suspect and not self._isolates

    def held(self) -> Iterator[Held]:
        """Every lease that this worker has, whether its job runs or not."""
        yield from self.ready
        for child in self._children.values():
            for lane in child.lanes:
                yield from lane.held.values()

    def drop(self, held: Held, why: str) -> None:
        """Give a waiting lease back."""
        if held in self.ready:
            self.ready.remove(held)
            self._settlement.give_back(held, why)

    def outstanding(self) -> int:
        handed_over = sum(child.load for child in self._children.values())
        return len(self.ready) + handed_over

    def wanted(self, *, has_plenty: bool = False) -> int:
        """How many more leases could be used; ``has_plenty`` of bytes: none ahead of need."""
        lanes = self._places.lanes
        # If this machine dies, each suspect that it holds is charged: few should wait here.
        looks_ahead = not (has_plenty or self._suspicious or self._is_slow())
        ahead = self._pace.ahead(self._places.processes) if looks_ahead else 0
        wanted = max(lanes + ahead + self._load_beside() - self.outstanding(), 0)
        # A large claim costs hardly more than a small one, and the jobs at hand last until then.
        return wanted if wanted >= ahead // AHEAD_AT_ONCE else 0

    def idle(self, received: int, most: int) -> Idle:
        """The idle lanes, after ``received`` leases, while ``most`` more may be fetched."""
        lanes = sum(self._is_idle(lane) for lane in self._lanes())
        waiting = sum(map(_is_limited, islice(self.ready, lanes)))
        return Idle(max(lanes - waiting, 0), received, most, self._prompt)

    def _is_idle(self, lane: Lane) -> bool:
        return lane.accepts and not lane.held and lane.child.is_up

    @property
    def _keeps_free(self) -> bool:
        """Whether a lane is kept free for jobs that have to start at once.

        Not if such jobs got the last lane: the two kinds of jobs take turns.
        """
        return self.lack_lanes and not self._limited_last

    def _load_beside(self) -> int:
        """How many jobs the additional children hold: retiring ones, and those for suspects."""
        children = self._children.values()
        return sum(child.load for child in children if child.retiring or child.isolated)

    def has_work_for(self, seconds: float) -> bool:
        """Whether every lane has enough to do for this time."""
        least = self._pace.jobs_within(seconds)
        lanes = self._lanes()
        return bool(lanes) and all(len(lane.held) >= least for lane in lanes)

    def return_all(self, why: str) -> None:
        """Give everything that has not begun back to the store."""
        for lane in self._lanes():
            self.ready.extend(lane.take_back_all())
        while self.ready:
            self._settlement.give_back(self.ready.popleft(), why)

    def step(self) -> None:
        self._balance()
        self._free_waiting()
        self._hand_over()
        if self.ready and self._is_slow():
            # Fetched while jobs were short, and they no longer are: other workers may be free.
            most = self._places.lanes + self._load_beside()
            while self.outstanding() > most and self.ready:
                self._settlement.give_back(self.ready.pop(), "the jobs before it take long")

    def _lanes(self) -> list[Lane]:
        """The lanes of all children that are not isolated."""
        return [x for child in self._children.values() if not child.isolated for x in child.lanes]

    def _is_slow(self) -> bool:
        """Whether no job has ended for a while: more leases would only wait here."""
        return time.monotonic() - self._progress_at > LONG_SECONDS

    def _hand_over(self) -> None:
        self.lacks_isolated = False
        if not self.ready:
            return
        self._place_suspects()
        self._place_limited()
        loads = {child.slot: child.load for child in self._children.values()}
        lanes = [lane for lane in self._lanes() if lane.accepts]
        lanes.sort(key=lambda lane: (len(lane.held), loads[lane.child.slot]))
        if self._keeps_free:  # these stay idle, or become idle
            del lanes[: max(self._places.lanes // RESERVED_SHARE, 1)]
        for place, lane in enumerate(lanes):
            self._place_suspects()
            if not self.ready or (self._isolates and self.ready[0].lease.suspect):
                break
            self._fill(lane, share=-(-len(self.ready) // (len(lanes) - place)))
        for child in self._children.values():
            child.hand_over()

    def _place_limited(self) -> None:
        """Hand jobs that have to start at once to the idle lanes, an equal share to each."""
        if not (self.ready and _is_limited(self.ready[0])):
            return
        loads = {child.slot: child.load for child in self._children.values()}
        idle = [lane for lane in self._lanes() if self._is_idle(lane)]
        idle.sort(key=lambda lane: loads[lane.child.slot])
        for place, lane in enumerate(idle):
            self._place_suspects()
            limited = sum(1 for _ in takewhile(_is_limited, self.ready))
            if not limited or (self._isolates and self.ready[0].lease.suspect):
                return
            self._fill(lane, share=-(-limited // (len(idle) - place)))

    def _drop_stale(self) -> None:
        """Give back leases that must not be run any more."""
        now = time.monotonic()
        while self.ready and (now > self.ready[0].fence or self.ready[0].lease.is_late):
            why = WHY_LATE if self.ready[0].lease.is_late else WHY_STALE
            self._settlement.give_back(self.ready.popleft(), why)

    def needs_no_isolated(self) -> bool:
        """Whether all suspects that were put off must have come back by now."""
        return time.monotonic() - self._suspect_at > LONGEST_WAIT

    def _place_suspects(self) -> None:
        """Where children run several jobs at once, hand suspects to isolated children."""
        self._drop_stale()
        while self._isolates and self.ready and self.ready[0].lease.suspect:
            self._suspect_at = now = time.monotonic()
            isolated = [child for child in self._children.values() if child.isolated]
            if (child := next((child for child in isolated if child.is_free), None)) is not None:
                self._turn_at = now
                child.lanes[0].give([self.ready.popleft()])
                continue
            self.lacks_isolated = True
            if not self._settlement.can_put_off:
                return
            # Guess when it is its turn: others may take as long as the newest has run so far.
            since = max((child.given_at for child in isolated), default=now)
            turn = max(now - since, SHORTEST_TURN) / self._places.isolated
            self._turn_at = min(max(self._turn_at, now) + turn, now + LONGEST_WAIT)
            self._settlement.put_off(self.ready.popleft(), self._turn_at - now, WHY_PUT_OFF)

    def _fill(self, lane: Lane, share: int) -> None:
        head = self.ready[0]
        if head.lease.suspect:
            if not lane.held:
                lane.give([self.ready.popleft()])
            return
        if any(held.lease.suspect for held in lane.held.values()):
            return
        if _is_limited(head) and not self._is_idle(lane):
            return
        chunk = self._chunk(head, share)
        room = chunk - len(lane.held)
        # A lane that still has half of its chunk needs nothing yet.
        if room <= 0 or (lane.held and room < chunk // 2):
            return
        allowed = max(self._limits.room(lane.child, self._places.concurrency), 0)
        if taken := list(islice(self._take_chunk(list(lane.held.values()), share), allowed)):
            if not lane.held:
                self._progress_at = time.monotonic()
            self._limited_last = _is_limited(taken[0])
            lane.give(taken)

    def _chunk(self, held: Held, share: int) -> int:
        """How many jobs like this a lane should hold; with several lanes per child, its share."""
        if _is_limited(held):
            return min(self._pace.prompt(held.handler), share)
        chunk = self._pace.chunk(held.handler)
        return chunk if self._places.concurrency == 1 else min(chunk, share)

    def _take_chunk(self, before: Sequence[Held], share: int) -> Iterable[Held]:
        """Take jobs from the head while each is short and small enough for the chunk."""
        now, handler, chunk = time.monotonic(), None, 0
        count, size = len(before), sum([len(held.lease.message.body) for held in before])
        limited = bool(self.ready) and _is_limited(self.ready[0])
        while self.ready:
            head = self.ready[0]
            if head.handler != handler:
                handler, chunk = head.handler, self._chunk(head, share)
            lease = head.lease
            if (lease.start_by is not None) is not limited or (limited and lease.is_late):
                return
            if lease.suspect or count >= chunk or now > head.fence:
                return
            size += len(lease.message.body)
            if count and size > CHUNK_BYTES:
                return
            count += 1
            yield self.ready.popleft()

    def _free_waiting(self) -> None:
        """Take back jobs that wait behind a long one; another lane or worker may run them."""
        now = time.monotonic()
        if now < self._free_at:
            return
        self._free_at = now + FREE_SECONDS
        began_before = now - LONG_SECONDS
        for lane in self._lanes():
            if len(lane.held) > 1 and lane.is_running_since(began_before):
                self.ready.extendleft(reversed(lane.take_back_all()))

    def _balance(self) -> None:
        """Take jobs from the busiest lane while another lane is idle."""
        now = time.monotonic()
        if self.ready or self._keeps_free or now < self._balance_at:
            return
        lanes = self._lanes()
        if not any(lane.accepts and not lane.held for lane in lanes):
            return
        if self._places.concurrency > 1:  # many lanes to look at
            self._balance_at = now + BALANCE_SECONDS
        busy = [lane for lane in lanes if lane.makes_wait(now) and not lane.child.killed]
        busiest = max(busy, key=lambda lane: len(lane.unstarted()), default=None)
        if busiest is not None and (waiting := len(busiest.unstarted())):
            self.ready.extend(busiest.take_back((waiting + 1) // 2))


def _is_limited(held: Held) -> bool:
    """Whether it has to start at once, because its queue has a rate limit."""
    return held.lease.start_by is not None
