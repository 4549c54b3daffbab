"""One attempt of a built-in handler, without a queue or a database."""

from __future__ import annotations

import time

from django_jobs.execution.attempt import Attempt
from django_jobs.handlers.base import JobContext


def attempt(handler, payload, timeout=None):
    """The outcome of a run."""
    times = {} if timeout is None else {"timeout": timeout, "ends_at": time.monotonic() + timeout}
    context = JobContext(id="job-1", payload=payload, name="a name", queue="q", **times)
    return Attempt(handler=handler, context=context, timeout=timeout).run()
