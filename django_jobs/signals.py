"""Django signals for jobs and breakers. Connect receivers in your AppConfig's ``ready()``.

They are sent after the store has answered, at most once, and never in a worker's parent: a
worker with children sends them in a process of their own. What a receiver raises is logged
and changes nothing. ``sender`` is None; what is known comes as keywords, and there may be
more of them in later releases.
"""

from __future__ import annotations

from django.dispatch import Signal

__all__ = ["breaker_opened", "job_crashed", "job_dead"]

job_dead = Signal()
"""A job is a dead letter. Keywords: job_id, queue, handler, attempt, trace_id, reason,
error_type, error_message."""

job_crashed = Signal()
"""A job was charged a crash and runs again. Keywords: job_id, queue, handler, attempt,
trace_id, crashes, reason, delay. The crash that is one too many sends ``job_dead`` alone,
unless it was charged because a lease ended without a verdict: then by this one first, and by
``job_dead`` when the job is claimed next."""

breaker_opened = Signal()
"""A circuit breaker opened. Keywords: kind (``queue``, ``handler`` or ``backend``), backend,
subject, failures, seconds. For breakers that workers share one of them sends it; each of them
sends it if it cannot reach its own backend."""
