"""An app with receivers for the signals of django_jobs."""

import os

from django.apps import AppConfig

HURRY = float(os.environ.get("GANG_HURRY", "0.4"))


class Listening(AppConfig):
    name = "tests.integration.worker.pool.listening"
    label = "listening"

    def ready(self):
        from django_jobs import signals  # noqa: PLC0415 - apps are loaded now
        from django_jobs.worker import signals as delivery  # noqa: PLC0415 - as above
        from django_jobs.worker.pool import side_processes  # noqa: PLC0415 - as above
        from tests.integration.worker.pool.listening import receivers  # noqa: PLC0415 - as above

        delivery.RECEIVERS_SECONDS = side_processes.KILL_GRACE = HURRY  # a test waits for their end
        side_processes.IDLE_SECONDS = float(os.environ.get("GANG_IDLE", "30"))
        signals.job_dead.connect(receivers.misbehave)
        signals.job_dead.connect(receivers.note_death)
        signals.job_crashed.connect(receivers.note_crash)
