"""What all workers have counted, added up."""

from __future__ import annotations

from django.db import models


class Figure(models.Model):
    """A counter, or a part of a histogram: one of its buckets, or the sum of its seconds."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=64)
    queue = models.CharField(max_length=64, default="", db_default="", blank=True)
    part = models.CharField(max_length=16, default="", db_default="", blank=True)
    value = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("name", "queue", "part"), name="dj_figure_once"),
        )

    def __str__(self) -> str:
        return f"{self.name} of {self.queue or 'no queue'}: {self.value}"
