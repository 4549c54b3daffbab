"""Which child gets which job: chunks of short ones, suspects alone, none behind a busy child."""

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
    from django_jobs.worker.pool.settlement import Desk
    from django_jobs.worker.pool.shared_memory import Places

AHEAD_AT_ONCE = 4  # what is fetched ahead comes in so many parts at most
BALANCE_SECONDS = 0.01
FREE_SECONDS = 0.1
CHUNK_BYTES = 1 << 20
SHORTEST_TURN = 0.01
LONGEST_WAIT = 60.0  # after so long a suspect that was put off is claimed again
WHY_STALE = "its lease could not be renewed in time"
WHY_LATE = "no process was free to start it before its count in the rate limit ended"
RESERVED_SHARE = 8
WHY_PUT_OFF = "it has to run alone, and others that have to do so now"


class Dispatch:
    """The leases that wait in this worker, and the lanes of children they are for.

    A suspect runs alone. Where a child runs one job at a time any idle one will do. Elsewhere
    one beside the others is for suspects only, and no suspect waits here for it: all that a
    machine holds of them is charged should it die, and what waits is in the way of the others.
    It is put off until its turn may have come, and the worker goes on with other jobs.

    Jobs of a queue with a rate limit have to start at once (``Lease.start_by``). So they come
    first, into lanes that do nothing, or go back. They are fetched for such lanes only, and
    one is kept free for them where they ``lack_lanes``.
    """

    def __init__(
        self, children: Mapping[int, Child], desk: Desk, places: Places, limits: ChildLimits
    ) -> None:
        self.ready: deque[Held] = deque()
        self.lacks_isolated = False
        self.lack_lanes = False
        self._children = children
        self._desk = desk
        self._places = places
        self._limits = limits
        self._pace, self._prompt = Pace(), Pace()
        self._apart = places.concurrency > 1
        self._suspicious = self._limited_last = False
        self._suspect_at = self._turn_at = time.monotonic()
        self._progress_at = time.monotonic()
        self._balance_at = self._free_at = 0.0

    def observe(self, held: Held, seconds: float) -> None:
        """A job has ended after so long."""
        self._pace.observe(held.handler, seconds)
        if held.lease.start_by is not None and not self._apart:
            self._prompt.observe(held.lease.queue, seconds)
        self._progress_at = time.monotonic()

    def receive(self, held: Sequence[Held]) -> None:
        """Leases have come. A suspect comes alone, and others like it may be next."""
        is_suspect, is_limited = held[-1].lease.suspect, _is_limited(held[-1])
        if is_limited or (is_suspect and self._apart):
            self.ready.extendleft(reversed(held))  # it is in the way of none
        else:
            self.ready.extend(held)
        self._suspicious = is_suspect and not self._apart

    def held(self) -> Iterator[Held]:
        """Every lease that this worker has, run or not."""
        yield from self.ready
        for child in self._children.values():
            for lane in child.lanes:
                yield from lane.held.values()

    def drop(self, held: Held, why: str) -> None:
        """Give back what waits here."""
        if held in self.ready:
            self.ready.remove(held)
            self._desk.give_back(held, why)

    def outstanding(self) -> int:
        handed_over = sum(child.load for child in self._children.values())
        return len(self.ready) + handed_over

    def wanted(self, *, has_plenty: bool = False) -> int:
        """How many more leases could be used; with ``has_plenty`` of bytes none ahead."""
        lanes = self._places.lanes
        # Should this machine die, each suspect that it holds is charged: few are to wait here.
        looks_ahead = not (has_plenty or self._suspicious or self._is_slow())
        ahead = self._pace.ahead(self._places.processes) if looks_ahead else 0
        wanted = max(lanes + ahead + self._beside() - self.outstanding(), 0)
        # A claim of many costs hardly more than one of few, and the others last until then.
        return wanted if wanted >= ahead // AHEAD_AT_ONCE else 0

    def idle(self, received: int, most: int) -> Idle:
        """The lanes that do nothing, after so many leases, and while so many more may come."""
        lanes = sum(self._is_idle(lane) for lane in self._lanes())
        waiting = sum(map(_is_limited, islice(self.ready, lanes)))
        return Idle(max(lanes - waiting, 0), received, most, self._prompt)

    def _is_idle(self, lane: Lane) -> bool:
        return lane.accepts and not lane.held and lane.child.is_up

    @property
    def _keeps_free(self) -> bool:
        """Whether a lane is kept free for jobs that have to start at once.

        Not when such jobs were the last to get one: in between it is the turn of others.
        """
        return self.lack_lanes and not self._limited_last

    def _beside(self) -> int:
        """What children beside the others run: those about to leave, and those for suspects."""
        children = self._children.values()
        return sum(child.load for child in children if child.retiring or child.isolated)

    def has_work_for(self, seconds: float) -> bool:
        """Whether no lane will ask for more within this time."""
        least = self._pace.jobs_within(seconds)
        lanes = self._lanes()
        return bool(lanes) and all(len(lane.held) >= least for lane in lanes)

    def return_all(self, why: str) -> None:
        """What has not begun goes back to the store."""
        for lane in self._lanes():
            self.ready.extend(lane.take_back_all())
        while self.ready:
            self._desk.give_back(self.ready.popleft(), why)

    def step(self) -> None:
        self._balance()
        self._free_what_waits()
        self._hand_over()
        if self.ready and self._is_slow():
            # Fetched while jobs were short, and they no longer are: others may have time.
            most = self._places.lanes + self._beside()
            while self.outstanding() > most and self.ready:
                self._desk.give_back(self.ready.pop(), "the jobs before it take long")

    def _lanes(self) -> list[Lane]:
        """Of the children for everything, not of those for what has to run alone."""
        return [x for child in self._children.values() if not child.isolated for x in child.lanes]

    def _is_slow(self) -> bool:
        """Whether nothing has ended for a while: what is fetched now would only lie here."""
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
        if self._keeps_free:  # these stay idle, or become so
            del lanes[: max(self._places.lanes // RESERVED_SHARE, 1)]
        for place, lane in enumerate(lanes):
            self._place_suspects()
            if not self.ready or (self._apart and self.ready[0].lease.suspect):
                break
            self._fill(lane, share=-(-len(self.ready) // (len(lanes) - place)))
        for child in self._children.values():
            child.hand_over()

    def _place_limited(self) -> None:
        """What has to start at once goes to lanes that do nothing, its share to each."""
        if not (self.ready and _is_limited(self.ready[0])):
            return
        loads = {child.slot: child.load for child in self._children.values()}
        idle = [lane for lane in self._lanes() if self._is_idle(lane)]
        idle.sort(key=lambda lane: loads[lane.child.slot])
        for place, lane in enumerate(idle):
            self._place_suspects()
            limited = sum(1 for _ in takewhile(_is_limited, self.ready))
            if not limited or (self._apart and self.ready[0].lease.suspect):
                return
            self._fill(lane, share=-(-limited // (len(idle) - place)))

    def _drop_stale(self) -> None:
        """Give back what must not be run any more."""
        now = time.monotonic()
        while self.ready and (now > self.ready[0].fence or self.ready[0].lease.is_late):
            why = WHY_LATE if self.ready[0].lease.is_late else WHY_STALE
            self._desk.give_back(self.ready.popleft(), why)

    def needs_no_isolated(self) -> bool:
        """Whether there has been no suspect for so long that those put off have all come back."""
        return time.monotonic() - self._suspect_at > LONGEST_WAIT

    def _place_suspects(self) -> None:
        """Where children run several jobs at once, a suspect goes to one that runs nothing else."""
        self._drop_stale()
        while self._apart and self.ready and self.ready[0].lease.suspect:
            self._suspect_at = now = time.monotonic()
            isolated = [child for child in self._children.values() if child.isolated]
            if (child := next((child for child in isolated if child.is_free), None)) is not None:
                self._turn_at = now
                child.lanes[0].give([self.ready.popleft()])
                continue
            self.lacks_isolated = True
            if not self._desk.can_put_off:
                return
            # It may be its turn when others have taken as long as the latest one until now.
            since = max((child.given_at for child in isolated), default=now)
            turn = max(now - since, SHORTEST_TURN) / self._places.isolated
            self._turn_at = min(max(self._turn_at, now) + turn, now + LONGEST_WAIT)
            self._desk.put_off(self.ready.popleft(), self._turn_at - now, WHY_PUT_OFF)

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
        if taken := list(islice(self._taken(list(lane.held.values()), share), allowed)):
            if not lane.held:
                self._progress_at = time.monotonic()
            self._limited_last = _is_limited(taken[0])
            lane.give(taken)

    def _chunk(self, held: Held, share: int) -> int:
        """How many jobs like this one a lane should hold: among many lanes, its share."""
        if _is_limited(held):
            return min(self._pace.prompt(held.handler), share)
        chunk = self._pace.chunk(held.handler)
        return chunk if self._places.concurrency == 1 else min(chunk, share)

    def _taken(self, before: Sequence[Held], share: int) -> Iterable[Held]:
        """Jobs from the head, as long as each is short and small enough to be one of so many."""
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

    def _free_what_waits(self) -> None:
        """What was to run soon after a job that takes long is for others, also of other workers."""
        now = time.monotonic()
        if now < self._free_at:
            return
        self._free_at = now + FREE_SECONDS
        began_before = now - LONG_SECONDS
        for lane in self._lanes():
            if len(lane.held) > 1 and lane.is_running_since(began_before):
                self.ready.extendleft(reversed(lane.take_back_all()))

    def _balance(self) -> None:
        """No job waits behind a busy lane while another lane is idle."""
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
    """Whether it has to start at once, for its queue has a rate limit."""
    return held.lease.start_by is not None
