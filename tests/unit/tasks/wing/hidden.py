"""A module that is imported for a message, if at all."""

import os

from django_jobs import job
from django_jobs.tasks import task


@task
def found():
    return os.getpid()


@task(key="tests.wing.another-key")
def renamed():
    """Not under its path: its messages carry the key."""


@job
def job_beside():
    """Registers itself."""


def plain():
    """No task."""


class Thing:
    @staticmethod
    def method():
        """No task either."""
