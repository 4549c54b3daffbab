"""Schedules: how far each is decided, its ticks, and the schedules of the admin.

Names are compared by their digest: under some collations "Report" would equal "report".
"""

from __future__ import annotations

import hashlib

from django.db import models
from django.db.models import Q

from django_jobs.models.indexes import PartialIndex
from django_jobs.texts import printable


class TickDecision(models.TextChoices):
    """What a scheduler did with a tick."""

    ENQUEUED = "enqueued"
    CAUGHT_UP = "caught-up", "caught up"
    PRESSED = "run-now", "run now"
    WAITING = "waiting"
    SKIPPED = "skipped"
    MISSED = "missed"
    FAILED = "failed", "failed to enqueue"


class TickOutcome(models.TextChoices):
    """How the job of a tick ended."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    DEAD = "dead"
    UNKNOWN = "unknown"
    NONE = "none", "no job"


def schedule_key(name: str) -> str:
    """The digest of a name, by which the tables compare it."""
    return hashlib.sha256(name.encode()).hexdigest()


class ScheduleState(models.Model):
    """How far a schedule was decided, when it is due next, and whether it is paused.

    ``decided_until``: every tick up to this moment has been decided. ``version`` is a digest of
    what the moments of the schedule depend on; if it changes, they are computed anew from
    ``begun`` on.
    """

    key = models.CharField(max_length=64, primary_key=True)
    name = models.CharField(max_length=255)
    version = models.CharField(max_length=64)
    begun = models.BigIntegerField(default=0, db_default=0)
    decided_until = models.BigIntegerField()
    next_due = models.BigIntegerField(null=True, blank=True)
    paused = models.BooleanField(default=False, db_default=False)
    paused_by = models.CharField(max_length=150, default="", db_default="", blank=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    reason = models.TextField(default="", blank=True)

    class Meta:
        verbose_name = "schedule"
        permissions = (
            ("pause_schedule", "Can pause and resume schedules"),
            ("run_schedule", "Can run schedules now"),
        )
        indexes = (models.Index(fields=("next_due",), name="dj_schedule_due"),)

    def __str__(self) -> str:
        return printable(self.name)


class ScheduleTick(models.Model):
    """The decision for one tick of one schedule; the constraint makes it happen only once.

    ``press`` distinguishes ticks that operators asked for: a form submitted twice has the same
    one.
    """

    id = models.BigAutoField(primary_key=True)
    key = models.CharField(max_length=64)
    name = models.CharField(max_length=255)
    tick = models.BigIntegerField()
    decision = models.CharField(max_length=16, choices=TickDecision.choices)
    outcome = models.CharField(
        max_length=16, choices=TickOutcome.choices, default=TickOutcome.NONE, db_default="none"
    )
    reason = models.TextField(default="", blank=True)
    backend = models.CharField(max_length=64, default="", db_default="", blank=True)
    job_id = models.UUIDField(null=True, blank=True)
    decided_at = models.DateTimeField()
    decided_by = models.CharField(max_length=150, default="", db_default="", blank=True)
    press = models.CharField(max_length=64, null=True, blank=True)

    class Meta:
        verbose_name = "tick"
        constraints = (
            models.UniqueConstraint(fields=("key", "tick"), name="dj_tick_once"),
            models.UniqueConstraint(fields=("press",), name="dj_tick_press"),
        )
        indexes = (
            models.Index(fields=("decided_at",), name="dj_tick_when"),
            PartialIndex(
                fields=("outcome", "id"), name="dj_tick_open", where=Q(outcome=TickOutcome.OPEN)
            ),
            PartialIndex(
                fields=("decision", "tick"),
                name="dj_tick_waiting",
                where=Q(decision=TickDecision.WAITING),
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.tick}: {self.decision}"


class AdminSchedule(models.Model):
    """A schedule that is edited in the admin. Its handler has to be exposed for that."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=255, unique=True)
    description = models.TextField(default="", blank=True)
    expression = models.CharField(max_length=255)
    timezone = models.CharField(max_length=64, default="UTC", db_default="UTC")
    handler = models.CharField(max_length=255)
    payload = models.JSONField(null=True, blank=True)
    queue = models.CharField(max_length=64, default="", db_default="", blank=True)
    priority = models.SmallIntegerField(default=0, db_default=0)
    max_retries = models.PositiveSmallIntegerField(null=True, blank=True)
    timeout = models.FloatField(null=True, blank=True)
    enabled = models.BooleanField(default=True, db_default=True)
    missed = models.CharField(max_length=16, default="latest", db_default="latest")
    deadline = models.FloatField(null=True, blank=True)
    overlap = models.CharField(max_length=16, default="allow", db_default="allow")
    changed_by = models.CharField(max_length=150, default="", db_default="", blank=True)
    changed_at = models.DateTimeField()

    class Meta:
        verbose_name = "schedule of the admin"
        verbose_name_plural = "schedules of the admin"

    def __str__(self) -> str:
        return printable(self.name)
