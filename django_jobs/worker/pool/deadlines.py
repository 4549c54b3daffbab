"""Deadlines and fences: what runs too long is killed, what has no lease does not run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django_jobs.worker.pool.children import Child, Held, Lane
    from django_jobs.worker.pool.dispatch import Dispatch
    from django_jobs.worker.pool.thread_messages import StopAsked

LOOK_SECONDS = 0.25
DISCONNECTED_SECONDS = 1.0
SILENT_SECONDS = 8.0
BIRTH_SECONDS = 60.0  # a child that is started afresh sets up a whole project first


def enforce_deadlines(children: Iterable[Child], dispatch: Dispatch) -> None:
    """Stop what has to be stopped now."""
    now = time.monotonic()
    for child in children:
        if child.disconnected_at and now - child.disconnected_at > DISCONNECTED_SECONDS:
            child.kill("disconnected", child.lanes[0].marks.ran)
        if now - child.looked_at > LOOK_SECONDS and not (child.killed or child.disconnected_at):
            child.watch(now)
            _check_silence(child, now, dispatch)
        for lane in child.lanes:
            if lane.held:
                _check_lane(lane, now)
                fence = lane.fence
                lane.marks.hold_until(fence)
                if now > fence:
                    dispatch.ready.extend(lane.take_back_all())
        if child.overruns:
            _check_overruns(child, now, dispatch)


def _check_lane(lane: Lane, now: float) -> None:
    running = lane.running()
    if running is None:
        return
    number, held = running
    deadline = lane.marks.deadline
    if lane.marks.started != number:  # it went on meanwhile; the deadline may be another's
        return
    if 0.0 < deadline < now:
        lane.stop("timeout", number)
    elif now > held.fence:
        lane.stop("fence", number)
    elif lane.asked[0] == number and now > lane.asked[1]:
        lane.stop("asked", number)


def _check_silence(child: Child, now: float, dispatch: Dispatch) -> None:
    """A child that hangs where no job runs is replaced, and no job is charged for it.

    It may hang in a signal handler, in what a thread left behind does, in a lock. Beside
    user code that runs it is left alone, for that may take as long as its job allows.
    """
    limit = SILENT_SECONDS if child.is_up else BIRTH_SECONDS
    silent = [lane for lane in child.lanes if lane.quiet > limit]
    if not silent:
        return
    # With a verdict that does not come, what runs beside it could not report its own either.
    if any(lane.has_unheard for lane in silent) or not any(x.is_occupied for x in child.lanes):
        where = "between two jobs" if child.is_up else "before it was ready for jobs"
        child.kill("silent", fault=f"nothing went on in it for {limit:g} seconds {where}")
        return
    for lane in silent:
        if taken := lane.take_back_all():
            dispatch.ready.extend(taken)
        elif not child.is_stuck(now):  # its loop goes on, and it does not come to them
            child.retiring = child.retiring or "it does not come to jobs that it was handed"


def _check_overruns(child: Child, now: float, dispatch: Dispatch) -> None:
    """It gets nothing new, its neighbours may end, and then it is killed."""
    for lane in child.lanes:
        dispatch.ready.extend(lane.take_back_all())
    for index, overrun in list(child.overruns.items()):
        if overrun.number not in child.lanes[index].held:
            del child.overruns[index]
        elif now > overrun.kill_at:
            child.kill("stuck" if child.is_stuck(now) else overrun.why, overrun.number)


def stop_lost(child: Child, dispatch: Dispatch, is_lost: Callable[[Held], bool]) -> None:
    """Stop what it runs without a lease, and let it begin nothing without one."""
    for lane in child.lanes:
        running = lane.running()
        if running is not None and is_lost(running[1]):
            lane.stop("lost", running[0])
        if any(is_lost(held) for held in lane.held.values()):
            dispatch.ready.extend(lane.take_back_all())


def ask_to_stop(children: Iterable[Child], dispatch: Dispatch, asked: StopAsked) -> None:
    """Tell what runs; what does not yet will not."""
    lanes = [lane for child in children for lane in child.lanes]
    for lane in lanes:
        running = lane.running()
        if running is not None and running[1].lease.id in asked.ids:
            lane.ask_to_stop(running[0], asked.kill_at)
        if any(held.lease.id in asked.ids for held in lane.held.values()):
            dispatch.ready.extend(lane.take_back_all())
    for held in dispatch.ready:
        if held.lease.id in asked.ids:
            held.lease = held.lease._replace(cancelled=True)


def select_timeout(children: Iterable[Child]) -> float:
    """How long nothing can become due."""
    now = time.monotonic()
    lanes = [lane for child in children for lane in child.lanes if lane.held]
    moments = [lane.marks.deadline for lane in lanes]
    return max(min([LOOK_SECONDS, *(moment - now for moment in moments if moment > now)]), 0.001)
