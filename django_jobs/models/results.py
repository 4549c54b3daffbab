"""How jobs ended: dead letters, failed runs, results."""

from __future__ import annotations

from django.db import models

from django_jobs.models.jobs import Identity
from django_jobs.texts import printable


class FailedJob(Identity):
    """A dead letter of any backend, until it is replayed or discarded."""

    id = models.BigAutoField(primary_key=True)
    job_id = models.UUIDField()
    reason = models.CharField(max_length=64)
    error_type = models.CharField(max_length=255, default="", db_default="", blank=True)
    error_message = models.TextField(default="", blank=True)
    traceback = models.TextField(default="", blank=True)
    output = models.TextField(default="", blank=True)
    fingerprint = models.CharField(max_length=64, default="", db_default="", blank=True)
    enqueued_at = models.DateTimeField(null=True, blank=True)
    failed_at = models.DateTimeField()
    resolution = models.CharField(max_length=16, default="", db_default="", blank=True)
    resolution_note = models.TextField(default="", blank=True)
    resolved_by = models.CharField(max_length=150, default="", db_default="", blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)
    replayed_as = models.UUIDField(null=True, blank=True)

    class Meta:
        verbose_name = "dead letter"
        permissions = (
            ("replay_failedjob", "Can replay dead letters"),
            ("discard_failedjob", "Can discard dead letters"),
            ("view_payload", "Can view the payload of jobs"),
            ("edit_payload", "Can edit the arguments of a dead letter before its replay"),
        )
        constraints = (
            models.UniqueConstraint(fields=("backend", "job_id"), name="dj_failed_once"),
        )
        indexes = (
            # Latest first, of one resolution and perhaps one more filter. Further filter columns
            # stand at the end, so that the index alone skips what does not match: two filters may
            # match nothing among very many rows, without reading the table.
            models.Index(
                fields=("failed_at", "id", "queue", "handler", "reason", "fingerprint"),
                name="dj_failed_when",
            ),
            models.Index(fields=("resolution", "failed_at", "id"), name="dj_failed_open"),
            # With the backend: the open dead letters of a queue are counted from this index.
            models.Index(
                fields=("resolution", "queue", "failed_at", "id", "handler", "reason", "backend"),
                name="dj_failed_queue",
            ),
            models.Index(
                fields=("resolution", "handler", "failed_at", "id", "queue", "reason"),
                name="dj_failed_handler",
            ),
            models.Index(
                fields=("resolution", "reason", "failed_at", "id", "queue", "handler"),
                name="dj_failed_reason",
            ),
            models.Index(
                fields=(
                    "resolution",
                    "fingerprint",
                    "failed_at",
                    "id",
                    "queue",
                    "handler",
                    "reason",
                ),
                name="dj_failed_group",
            ),
            models.Index(fields=("job_id",), name="dj_failed_job"),
            # For LIKE 'x%' under any collation of PostgreSQL; only it has operator classes.
            models.Index(
                fields=("trace_id",), name="dj_failed_trace", opclasses=("varchar_pattern_ops",)
            ),
        )

    def __str__(self) -> str:
        return printable(f"{self.handler} {self.job_id}: {self.reason}")


class JobAttempt(models.Model):
    """A run that did not succeed."""

    id = models.BigAutoField(primary_key=True)
    backend = models.CharField(max_length=64)
    job_id = models.UUIDField()
    number = models.PositiveIntegerField()
    outcome = models.CharField(max_length=16)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    error_type = models.CharField(max_length=255, default="", db_default="", blank=True)
    error_message = models.TextField(default="", blank=True)
    traceback = models.TextField(default="", blank=True)
    output = models.TextField(default="", blank=True)
    worker = models.CharField(max_length=128, default="", db_default="", blank=True)

    class Meta:
        verbose_name = "attempt"
        indexes = (
            models.Index(fields=("job_id", "number"), name="dj_attempt_job"),
            models.Index(fields=("finished_at",), name="dj_attempt_when"),
        )

    def __str__(self) -> str:
        return printable(f"attempt {self.number} of {self.job_id}: {self.outcome}")


class JobResult(models.Model):
    """How a job ended without dying, kept until ``expires``."""

    job_id = models.UUIDField(primary_key=True, editable=False)
    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    handler = models.CharField(max_length=255)
    name = models.CharField(max_length=255, default="", db_default="", blank=True)
    status = models.CharField(max_length=16)
    value = models.TextField(default="null")
    output = models.TextField(default="", blank=True)
    attempts = models.PositiveIntegerField(default=0, db_default=0)
    trace_id = models.CharField(max_length=64, null=True, blank=True)
    tenant = models.CharField(max_length=255, null=True, blank=True)
    worker = models.CharField(max_length=128, default="", db_default="", blank=True)
    enqueued_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    body = models.TextField(null=True, blank=True)
    expires = models.BigIntegerField()

    class Meta:
        verbose_name = "result"
        indexes = (models.Index(fields=("expires",), name="dj_result_expires"),)

    def __str__(self) -> str:
        return printable(f"{self.handler} {self.job_id}: {self.status}")


class EndedIds(models.Model):
    """Ids of jobs that ended together without a result that is kept for at least an hour.

    They show that a prepared job that is enqueued again has already ended. Ids with the same
    ``start`` were made within a minute; ``ids`` has the rest of each. So one row serves all jobs
    that were settled in one step, and few rows have to be read to find an id.
    """

    id = models.BigAutoField(primary_key=True)
    start = models.CharField(max_length=8)
    ids = models.TextField()
    expires = models.BigIntegerField()

    class Meta:
        verbose_name = "ids of ended jobs"
        verbose_name_plural = "ids of ended jobs"
        indexes = (models.Index(fields=("start",), name="dj_ended_start"),)

    def __str__(self) -> str:
        return f"{self.start}…: {self.ids.count(' ') + 1}"


# Groups of dead letters, and runs that resolve many of them.


class FailureGroup(models.Model):
    """How many dead letters share an error; only ever changed by increments.

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
    """A replay or discard of many dead letters, done in steps by any process.

    ``cursor`` is the last dead letter dealt with, ``upto`` the greatest at the start. The process
    that makes a step holds the run until ``stepping_until``.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        FINISHED = "finished"
        STOPPED = "stopped"

    id = models.BigAutoField(primary_key=True)
    # The token of the form: submitted twice, it begins one run.
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
        actor = self.started_by or "an unknown user"
        return printable(f"{self.verb} of {self.total}, begun by {actor}")

    @property
    def dealt_with(self) -> int:
        return self.done + self.refused + self.passed_over
