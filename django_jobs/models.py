"""The tables. Rows only: every change of state lives with the backend that makes it.

Rules for all of them, so that version N and N−1 can share one database: a column added
later is nullable or has a database default, and raw INSERTs name their columns.

Instants that decide something (``due``, ``lease_expires``, ``expires``) are microseconds
on the store's clock; ``DateTimeField`` is for people.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from django_jobs.indexes import PartialIndex


class JobState(models.IntegerChoices):
    """Where a live job stands. Jobs that ended are not in this table."""

    SCHEDULED = 0, "scheduled"
    READY = 1, "ready"
    RUNNING = 2, "running"


class Identity(models.Model):
    """What a live job and a dead one have in common: who it is, and its exact signed body."""

    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    handler = models.CharField(max_length=255)
    name = models.CharField(max_length=255, db_default="", default="", blank=True)
    rank = models.SmallIntegerField(default=0, db_default=0)
    body = models.TextField()
    signature = models.CharField(max_length=64)
    key_id = models.CharField(max_length=64)
    # Plain integers: every INSERT would pay for the checks of positive ones.
    attempts = models.IntegerField(default=0, db_default=0)
    deliveries = models.IntegerField(default=0, db_default=0)
    crashes = models.IntegerField(default=0, db_default=0)
    # Null means "none was given"; an empty string would be a value of its own.
    trace_id = models.CharField(max_length=64, null=True, blank=True)
    trace_parent = models.CharField(max_length=64, null=True, blank=True)
    tenant = models.CharField(max_length=255, null=True, blank=True)
    schedule = models.CharField(max_length=255, null=True, blank=True)
    tick = models.BigIntegerField(null=True, blank=True)
    replay_of = models.UUIDField(null=True, blank=True)
    meta = models.JSONField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def priority(self) -> int:
        return -self.rank


class Job(Identity):
    """A live job. Ack and abandon delete the row, so that the table stays small."""

    id = models.UUIDField(primary_key=True, editable=False)
    state = models.SmallIntegerField(choices=JobState.choices)
    due = models.BigIntegerField()
    suspect = models.BooleanField(default=False, db_default=False)
    lease_token = models.CharField(max_length=32, null=True, blank=True)
    lease_expires = models.BigIntegerField(null=True, blank=True)
    worker = models.CharField(max_length=128, null=True, blank=True)
    leased_at = models.BigIntegerField(null=True, blank=True)
    # A digest of the key: of fixed length, and the same under every collation.
    unique_key = models.CharField(max_length=64, null=True, blank=True)
    concurrency_key = models.CharField(max_length=255, null=True, blank=True)
    cancel_requested = models.BooleanField(default=False, db_default=False)
    expires = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = "live job"
        constraints = (
            # Not unique=True: that makes a second index for LIKE on PostgreSQL.
            models.UniqueConstraint(fields=("unique_key",), name="dj_job_unique_key"),
        )
        indexes = (
            # A claim walks this index from its start and sorts nothing.
            models.Index(fields=("queue", "state", "rank", "due", "id"), name="dj_job_claim"),
            # Where partial indexes are to be had, a ready job pays for the one above only.
            # MariaDB and MySQL have none; hence state among the fields.
            PartialIndex(
                fields=("queue", "state", "due"),
                name="dj_job_promote",
                where=Q(state=JobState.SCHEDULED),
            ),
            PartialIndex(
                fields=("lease_expires",),
                name="dj_job_reap",
                where=Q(state=JobState.RUNNING),
            ),
        )

    def __str__(self) -> str:
        return f"{self.handler} {self.pk}"


class FailedJob(Identity):
    """A dead letter, of whatever backend, until somebody replays or discards it."""

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
        )
        constraints = (
            models.UniqueConstraint(fields=("backend", "job_id"), name="dj_failed_once"),
        )
        indexes = (
            models.Index(fields=("failed_at", "id"), name="dj_failed_when"),
            models.Index(fields=("queue", "failed_at"), name="dj_failed_queue"),
            models.Index(fields=("handler", "failed_at"), name="dj_failed_handler"),
            models.Index(fields=("reason", "failed_at"), name="dj_failed_reason"),
            models.Index(fields=("fingerprint", "failed_at"), name="dj_failed_group"),
            models.Index(fields=("job_id",), name="dj_failed_job"),
            models.Index(fields=("trace_id",), name="dj_failed_trace"),
        )

    def __str__(self) -> str:
        return f"{self.handler} {self.job_id}: {self.reason}"


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
        return f"attempt {self.number} of {self.job_id}: {self.outcome}"


class JobResult(models.Model):
    """How a job ended that is not dead, kept until ``expires``."""

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
        return f"{self.handler} {self.job_id}: {self.status}"


class QueueControl(models.Model):
    """What operators set for a queue while it runs."""

    id = models.BigAutoField(primary_key=True)
    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    paused = models.BooleanField(default=False, db_default=False)
    reason = models.TextField(default="", blank=True)
    rate_limit = models.CharField(max_length=32, default="", db_default="", blank=True)
    concurrency = models.PositiveIntegerField(null=True, blank=True)
    changed_by = models.CharField(max_length=150, default="", db_default="", blank=True)
    changed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "queue control"
        constraints = (
            models.UniqueConstraint(fields=("backend", "queue"), name="dj_control_queue"),
        )

    def __str__(self) -> str:
        return f"{self.backend}/{self.queue}"


class QueueMinute(models.Model):
    """What happened in a queue during one minute; only ever added to."""

    id = models.BigAutoField(primary_key=True)
    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    minute = models.BigIntegerField()
    claimed = models.PositiveBigIntegerField(default=0, db_default=0)
    succeeded = models.PositiveBigIntegerField(default=0, db_default=0)
    failed = models.PositiveBigIntegerField(default=0, db_default=0)
    retried = models.PositiveBigIntegerField(default=0, db_default=0)
    dead = models.PositiveBigIntegerField(default=0, db_default=0)
    run_microseconds = models.PositiveBigIntegerField(default=0, db_default=0)
    wait_microseconds = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        verbose_name = "queue minute"
        constraints = (
            models.UniqueConstraint(fields=("backend", "queue", "minute"), name="dj_minute_once"),
        )

    def __str__(self) -> str:
        return f"{self.backend}/{self.queue} minute {self.minute}"


class OperatorEvent(models.Model):
    """What somebody did to a job, a queue or a schedule; only ever added to."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    actor = models.CharField(max_length=150, default="", db_default="", blank=True)
    action = models.CharField(max_length=64)
    backend = models.CharField(max_length=64, default="", db_default="", blank=True)
    queue = models.CharField(max_length=64, default="", db_default="", blank=True)
    subject = models.CharField(max_length=255, default="", db_default="", blank=True)
    reason = models.TextField(default="", blank=True)
    detail = models.JSONField(null=True, blank=True)

    class Meta:
        verbose_name = "operator event"
        indexes = (models.Index(fields=("at",), name="dj_event_when"),)

    def __str__(self) -> str:
        return f"{self.action} {self.subject} by {self.actor or 'nobody'}"


class Worker(models.Model):
    """A running ``jobs_work``, as it last told about itself."""

    id = models.UUIDField(primary_key=True, editable=False)
    backend = models.CharField(max_length=64)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    queues = models.TextField(default="", blank=True)
    processes = models.PositiveIntegerField(default=0, db_default=0)
    concurrency = models.PositiveIntegerField(default=1, db_default=1)
    running = models.PositiveIntegerField(default=0, db_default=0)
    draining = models.BooleanField(default=False, db_default=False)
    started_at = models.DateTimeField()
    seen = models.BigIntegerField()

    class Meta:
        indexes = (models.Index(fields=("seen",), name="dj_worker_seen"),)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
