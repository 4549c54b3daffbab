"""Jobs on their way to a broker: written in the caller's transaction, moved by a relay."""

from __future__ import annotations

from django.db import models


class OutboxJob(models.Model):
    """A sealed job that has not been pushed to its broker, as far as is known.

    Its row is deleted after the push. The jobs of a queue are pushed in the order of ``id``;
    ``retry_at`` is for a job that the broker refused while it took others, or that the relay
    cannot judge. ``put_off_since``: when a relay first could not judge it.
    """

    id = models.BigAutoField(primary_key=True)
    job_id = models.UUIDField()
    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    handler = models.CharField(max_length=255)
    body = models.TextField()
    signature = models.CharField(max_length=64)
    key_id = models.CharField(max_length=64)
    created = models.BigIntegerField()
    refusals = models.IntegerField(default=0, db_default=0)
    retry_at = models.BigIntegerField(default=0, db_default=0)
    put_off_since = models.BigIntegerField(null=True, blank=True)
    problem = models.TextField(default="", blank=True)

    class Meta:
        verbose_name = "outbox job"
        constraints = (
            models.UniqueConstraint(fields=("backend", "job_id"), name="dj_outbox_once"),
        )
        indexes = (models.Index(fields=("backend", "queue", "id"), name="dj_outbox_order"),)

    def __str__(self) -> str:
        return f"{self.handler} {self.job_id}"


class RelayLease(models.Model):
    """The relay that moves the jobs of a queue now, and until when no other may.

    ``moving_to``: rows of the queue with an ``id`` up to this one may have been pushed, although
    they are still there.
    """

    id = models.BigAutoField(primary_key=True)
    backend = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    token = models.CharField(max_length=32, default="", db_default="", blank=True)
    expires = models.BigIntegerField(default=0, db_default=0)
    moving_to = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        verbose_name = "relay lease"
        constraints = (models.UniqueConstraint(fields=("backend", "queue"), name="dj_relay_queue"),)

    def __str__(self) -> str:
        return f"{self.backend}/{self.queue}"
