"""Handlers that a benchmark's worker runs in processes of its own."""

import os
import time

from django_jobs import job


@job(key="benchmark.stamp")
def stamp(path: str, number: int) -> None:
    """Say when it began."""
    line = f"{number} {time.time():.6f}\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)
