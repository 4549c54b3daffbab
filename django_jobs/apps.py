"""Django's entry to the package."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class DjangoJobsConfig(AppConfig):
    """Finds the handlers of all installed apps and registers the system checks."""

    name = "django_jobs"
    label = "django_jobs"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_jobs import checks  # noqa: F401, PLC0415 - registers them; needs loaded apps
        from django_jobs.backends import sync  # noqa: PLC0415 - as above
        from django_jobs.telemetry import events, logs  # noqa: PLC0415 - as above
        from django_jobs.worker.build import run_lease  # noqa: PLC0415 - as above

        events.subscribe(logs.write)
        sync.run_lease = run_lease
        autodiscover_modules("jobs", "tasks")
