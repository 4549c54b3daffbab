"""Queues and workers as operators set and see them, their counts, and an audit log."""

from __future__ import annotations

from django.db import models

from django_jobs.texts import printable


class QueueControl(models.Model):
    """Settings of a queue that operators change at run time."""

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
        verbose_name = "queue"
        permissions = (
            ("pause_queue", "Can pause and resume queues"),
            ("limit_queue", "Can limit the rate and the concurrency of queues"),
        )
        constraints = (
            models.UniqueConstraint(fields=("backend", "queue"), name="dj_control_queue"),
        )

    def __str__(self) -> str:
        return printable(f"{self.backend}/{self.queue}")


class QueueMeter(models.Model):
    """The recent starts of a queue with a rate limit. A claim from the queue locks the row."""

    id = models.BigAutoField(primary_key=True)
    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    starts = models.JSONField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("backend", "queue"), name="dj_meter_queue"),)

    def __str__(self) -> str:
        return f"{self.backend}/{self.queue}"


class QueueMinute(models.Model):
    """Counts of a queue during one minute; only ever increased."""

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
        indexes = (models.Index(fields=("minute",), name="dj_minute_when"),)

    def __str__(self) -> str:
        return f"{self.backend}/{self.queue} minute {self.minute}"


class Overview(QueueMinute):
    """The overview page of the admin; a proxy without a table of its own."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name = verbose_name_plural = "overview"


class OperatorEvent(models.Model):
    """An operator's action on a job, a queue or a schedule; rows are only added."""

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
        return printable(f"{self.action} {self.subject} by {self.actor or 'an unknown user'}")


class Worker(models.Model):
    """A running ``jobs_work``, as it last reported itself."""

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
        permissions = (("drain_worker", "Can drain workers"),)
        indexes = (models.Index(fields=("seen",), name="dj_worker_seen"),)

    def __str__(self) -> str:
        return printable(f"{self.host}:{self.pid}")


# Circuit breakers that workers share.


class Breaker(models.Model):
    """A circuit breaker of a queue or a handler.

    ``probe`` is the lease, of the job ``probe_job``, that it let pass as a probe. A breaker
    without a failure so far has no row.
    """

    id = models.BigAutoField(primary_key=True)
    backend = models.CharField(max_length=64)
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=255)
    failures = models.PositiveIntegerField(default=0, db_default=0)
    opened_at = models.BigIntegerField(null=True, blank=True)
    probe = models.CharField(max_length=32, default="", db_default="", blank=True)
    probe_job = models.UUIDField(null=True, blank=True)

    class Meta:
        verbose_name = "circuit breaker"
        constraints = (
            models.UniqueConstraint(fields=("backend", "kind", "name"), name="dj_breaker_once"),
        )

    def __str__(self) -> str:
        return f"{self.backend}/{self.kind} {self.name}"


# The totals of all workers' counters.


class Metric(models.Model):
    """A counter, or a part of a histogram: a bucket or the sum of its seconds."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=64)
    queue = models.CharField(max_length=64, default="", db_default="", blank=True)
    part = models.CharField(max_length=16, default="", db_default="", blank=True)
    value = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("name", "queue", "part"), name="dj_metric_once"),
        )

    def __str__(self) -> str:
        return f"{self.name} of {self.queue or 'no queue'}: {self.value}"
