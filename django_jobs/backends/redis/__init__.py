"""Jobs in Redis or Valkey: every transition is one script."""

from __future__ import annotations

from django_jobs.backends.redis.backend import RedisBackend

__all__ = ["RedisBackend"]
