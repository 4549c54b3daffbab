"""Live jobs, which wait or run, and the keys that they share."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from django_jobs.models.indexes import PartialIndex
from django_jobs.texts import printable


class JobState(models.IntegerChoices):
    """The state of a live job. Jobs that ended are not in this table."""

    SCHEDULED = 0, "scheduled"
    READY = 1, "ready"
    RUNNING = 2, "running"
    BLOCKED = 3, "blocked"

    @classmethod
    def label_of(cls, state: Any) -> str:
        """The label of a state, also of a value that is no state."""
        return str(cls(state).label) if state in cls else "no-state"


class Identity(models.Model):
    """The fields that live jobs and dead letters share: identity and signed body."""

    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    handler = models.CharField(max_length=255)
    name = models.CharField(max_length=255, db_default="", default="", blank=True)
    rank = models.SmallIntegerField(default=0, db_default=0)
    body = models.TextField()
    signature = models.CharField(max_length=64)
    key_id = models.CharField(max_length=64)
    # Not PositiveIntegerField, whose checks would slow down every INSERT.
    attempts = models.IntegerField(default=0, db_default=0)
    deliveries = models.IntegerField(default=0, db_default=0)
    crashes = models.IntegerField(default=0, db_default=0)
    # Null means "not set"; an empty string would be a value.
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
    # When a worker first could not judge it; null once it has been run.
    put_off_since = models.BigIntegerField(null=True, blank=True)
    suspect = models.BooleanField(default=False, db_default=False)
    lease_token = models.CharField(max_length=32, null=True, blank=True)
    lease_expires = models.BigIntegerField(null=True, blank=True)
    worker = models.CharField(max_length=128, null=True, blank=True)
    leased_at = models.BigIntegerField(null=True, blank=True)
    # The lease that was reaped last, and whether it was charged a crash: its holder may still
    # live and take the charge back. Null while there is nothing to take back.
    reaped_token = models.CharField(max_length=32, null=True, blank=True)
    reap_charged = models.BooleanField(null=True, blank=True)
    # Digests of the keys: of fixed length, and the same under every collation.
    unique_key = models.CharField(max_length=64, null=True, blank=True)
    concurrency_key = models.CharField(max_length=64, null=True, blank=True)
    concurrency = models.IntegerField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=64, null=True, blank=True)
    # While it is blocked: the key that had no place for it.
    blocked_by = models.CharField(max_length=64, null=True, blank=True)
    cancel_requested = models.BooleanField(default=False, db_default=False)
    expires = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = "live job"
        permissions = (("cancel_job", "Can cancel jobs and ask running ones to stop"),)
        constraints = (
            # Not unique=True: that makes a second index for LIKE on PostgreSQL.
            models.UniqueConstraint(fields=("unique_key",), name="dj_job_unique_key"),
        )
        indexes = (
            # A claim walks this index from its start and sorts nothing.
            models.Index(fields=("queue", "state", "rank", "due", "id"), name="dj_job_claim"),
            # With partial indexes a ready job is only in the index above. MariaDB and MySQL have
            # none; hence the state among the fields. With the id, because many jobs become due
            # at the same moment when a breaker has cooled, and must keep their order.
            PartialIndex(
                fields=("queue", "state", "due", "id"),
                name="dj_job_promote",
                where=Q(state=JobState.SCHEDULED),
            ),
            # Also has waiting suspects, which have no lease and stand together before or behind the
            # running jobs, so finding them costs other jobs nothing. The state is there for
            # PostgreSQL, which would otherwise read the claims' index too for running jobs.
            PartialIndex(
                fields=("lease_expires", "suspect", "state"),
                whole=("lease_expires", "suspect"),
                name="dj_job_reap",
                where=Q(state=JobState.RUNNING) | Q(suspect=True),
            ),
            PartialIndex(
                fields=("concurrency_key", "state"),
                name="dj_job_concurrency",
                where=Q(concurrency_key__isnull=False),
            ),
            PartialIndex(
                fields=("idempotency_key", "state"),
                name="dj_job_idempotency",
                where=Q(idempotency_key__isnull=False),
            ),
            # The jobs that wait for a key: one line for each queue, in its order.
            PartialIndex(
                fields=("blocked_by", "queue", "rank", "due", "id"),
                name="dj_job_blocked",
                where=Q(blocked_by__isnull=False),
            ),
        )

    def __str__(self) -> str:
        return printable(f"{self.handler} {self.pk}")


class JobKey(models.Model):
    """A key that jobs of the same kind share: what they lock, and whether its work is done.

    ``fence`` only ever grows. ``done_by``: the job that did the work of an idempotency key.
    ``places``: the largest number of places that a waiting job allows; 0 while none waits.
    """

    key = models.CharField(max_length=64, primary_key=True)
    fence = models.BigIntegerField(default=0, db_default=0)
    done_by = models.UUIDField(null=True, blank=True)
    keep_until = models.BigIntegerField()
    places = models.IntegerField(default=0, db_default=0)

    class Meta:
        indexes = (models.Index(fields=("keep_until",), name="dj_key_keep"),)

    def __str__(self) -> str:
        return self.key
