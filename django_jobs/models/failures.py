"""What is kept about many dead letters at once: their groups, and runs through them."""

from __future__ import annotations

from django.db import models

from django_jobs.texts import printable


class FailureGroup(models.Model):
    """How many dead letters share an error; only ever added to and taken from.

    The counts of a group are the sums over its slots. Each process has a slot, so that
    workers that see the same error at once do not wait for each other.
    """

    id = models.BigAutoField(primary_key=True)
    fingerprint = models.CharField(max_length=64)
    slot = models.SmallIntegerField()
    handler = models.CharField(max_length=255)
    reason = models.CharField(max_length=64)
    error_type = models.CharField(max_length=255, default="", db_default="", blank=True)
    error_message = models.CharField(max_length=255, default="", db_default="", blank=True)
    open = models.BigIntegerField(default=0, db_default=0)
    seen = models.BigIntegerField(default=0, db_default=0)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()

    class Meta:
        verbose_name = "error group"
        constraints = (
            models.UniqueConstraint(fields=("fingerprint", "slot"), name="dj_group_slot"),
        )

    def __str__(self) -> str:
        return f"{self.error_type or self.reason} in {self.handler}"


class ResolutionRun(models.Model):
    """A replay or discard of many dead letters, carried on in steps by whoever may.

    ``cursor`` is the last dead letter that was dealt with, ``upto`` the greatest that was
    there at the start. Who steps holds the run until ``stepping_until``.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        FINISHED = "finished"
        STOPPED = "stopped"

    id = models.BigAutoField(primary_key=True)
    # Of the form that began it: pressed twice, it begins one run.
    token = models.CharField(max_length=64, null=True, blank=True)
    verb = models.CharField(max_length=16)
    matching = models.JSONField()
    reason = models.TextField(default="", blank=True)
    rate = models.FloatField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING)
    total = models.BigIntegerField()
    upto = models.BigIntegerField()
    cursor = models.BigIntegerField(default=0, db_default=0)
    done = models.BigIntegerField(default=0, db_default=0)
    refused = models.BigIntegerField(default=0, db_default=0)
    passed_over = models.BigIntegerField(default=0, db_default=0)
    problems = models.JSONField(default=list, blank=True)
    next_at = models.BigIntegerField(default=0, db_default=0)
    stepper = models.CharField(max_length=32, default="", db_default="", blank=True)
    stepping_until = models.BigIntegerField(default=0, db_default=0)
    carrier = models.CharField(max_length=255, default="", db_default="", blank=True)
    obstacle = models.TextField(default="", blank=True)
    started_by = models.CharField(max_length=150, default="", db_default="", blank=True)
    started_at = models.DateTimeField()
    stepped_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=150, default="", db_default="", blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("token",), name="dj_run_once"),)
        verbose_name = "run through dead letters"
        verbose_name_plural = "runs through dead letters"

    def __str__(self) -> str:
        return printable(f"{self.verb} of {self.total}, begun by {self.started_by or 'somebody'}")

    @property
    def dealt_with(self) -> int:
        return self.done + self.refused + self.passed_over
