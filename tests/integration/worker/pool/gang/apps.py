"""Crashes of the gang are run again at once, unless a test is about the pause, and so on."""

import os

from django.apps import AppConfig

from django_jobs.backends import crash_events


class Gang(AppConfig):
    name = "tests.integration.worker.pool.gang"

    def ready(self):
        if "GANG_PAUSES" not in os.environ:
            crash_events.CRASH_DELAYS = (0.0,)
        if "GANG_EXIT_SECONDS" in os.environ:  # a test waits for it
            from django_jobs.worker.pool import child  # noqa: PLC0415 - it knows models

            child.EXIT_SECONDS = float(os.environ["GANG_EXIT_SECONDS"])
