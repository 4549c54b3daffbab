"""What workers have learned of queues and handlers, and share."""

from __future__ import annotations

from django.db import models


class Breaker(models.Model):
    """A circuit breaker of a queue or a handler.

    ``probe`` is the lease, of the job ``probe_job``, that it let pass to try. One that
    never had anything to count has no row.
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
