"""Deadlines and fences: kills jobs that run too long, and lets none run without a lease."""

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
BIRTH_SECONDS = 60.0  # a spawned child sets up the whole project first


def enforce_deadlines(children: Iterable[Child], dispatch: Dispatch) -> None:
    """Kill or cancel what is past its time, and take back jobs whose lease may end."""
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
    if lane.marks.started != number:  # the deadline may be the next job's
        return
    if 0.0 < deadline < now:
        lane.stop("timeout", number)
    elif now > held.fence:
        lane.stop("fence", number)
    elif lane.stop_request[0] == number and now > lane.stop_request[1]:
        lane.stop("asked", number)


def _check_silence(child: Child, now: float, dispatch: Dispatch) -> None:
    """Replace a child that hangs outside of any job; no job is charged for it.

    It may hang in a signal handler, in a lock, or because of a thread that a job left behind.
    While a handler runs it is left alone: that may take as long as its job allows.
    """
    limit = SILENT_SECONDS if child.is_up else BIRTH_SECONDS
    silent = [lane for lane in child.lanes if lane.quiet > limit]
    if not silent:
        return
    # If one lane cannot report an end, the jobs beside it could not report theirs either.
    if any(lane.has_unreported for lane in silent) or not any(x.is_occupied for x in child.lanes):
        where = "between two jobs" if child.is_up else "before it was ready for jobs"
        child.kill("silent", fault=f"nothing went on in it for {limit:g} seconds {where}")
        return
    for lane in silent:
        if taken := lane.take_back_all():
            dispatch.ready.extend(taken)
        elif not child.is_stuck(now):  # its loop runs, but not this lane
            child.retiring = child.retiring or "it does not come to jobs that it was handed"


def _check_overruns(child: Child, now: float, dispatch: Dispatch) -> None:
    """Give the child nothing new, let the other jobs end, then kill it."""
    for lane in child.lanes:
        dispatch.ready.extend(lane.take_back_all())
    for index, overrun in list(child.overruns.items()):
        if overrun.number not in child.lanes[index].held:
            del child.overruns[index]
        elif now > overrun.kill_at:
            child.kill("stuck" if child.is_stuck(now) else overrun.why, overrun.number)


def stop_lost(child: Child, dispatch: Dispatch, is_lost: Callable[[Held], bool]) -> None:
    """Stop the runs whose lease was lost, and take back jobs of lost leases."""
    for lane in child.lanes:
        running = lane.running()
        if running is not None and is_lost(running[1]):
            lane.stop("lost", running[0])
        if any(is_lost(held) for held in lane.held.values()):
            dispatch.ready.extend(lane.take_back_all())


def ask_to_stop(children: Iterable[Child], dispatch: Dispatch, asked: StopAsked) -> None:
    """Ask running jobs to stop; those that have not begun are cancelled."""
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
    """How long until something may become due."""
    now = time.monotonic()
    lanes = [lane for child in children for lane in child.lanes if lane.held]
    moments = [lane.marks.deadline for lane in lanes]
    return max(min([LOOK_SECONDS, *(moment - now for moment in moments if moment > now)]), 0.001)
