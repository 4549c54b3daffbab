"""Crashes of the gang are run again at once, unless a test is about the pause."""

import os

from django.apps import AppConfig

from django_jobs.backends import charged


class Gang(AppConfig):
    name = "tests.integration.worker.pool.gang"

    def ready(self):
        if "GANG_PAUSES" not in os.environ:
            charged.CRASH_DELAYS = (0.0,)
