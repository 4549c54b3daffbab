"""Django's entry to the package."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

if TYPE_CHECKING:
    from django_jobs.conf import JobsSettings

logger = logging.getLogger("django_jobs")


class DjangoJobsConfig(AppConfig):
    """Finds the handlers of all installed apps and registers the system checks."""

    name = "django_jobs"
    label = "django_jobs"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_jobs import checks  # noqa: F401, PLC0415 - registers them; needs loaded apps
        from django_jobs.backends import sync  # noqa: PLC0415 - as above
        from django_jobs.conf import read_current  # noqa: PLC0415 - as above
        from django_jobs.handlers.built_in import register_built_in  # noqa: PLC0415 - as above
        from django_jobs.handlers.registry import registry  # noqa: PLC0415 - as above
        from django_jobs.telemetry import events, logs  # noqa: PLC0415 - as above
        from django_jobs.worker.announcing import announce  # noqa: PLC0415 - as above
        from django_jobs.worker.build import run_lease  # noqa: PLC0415 - as above

        events.subscribe(logs.write)
        events.subscribe(announce)
        sync.run_lease = run_lease
        autodiscover_modules("jobs", "tasks")
        settings, _problems = read_current()
        register_built_in(registry, settings)
        self._register_configured(settings)

    def _register_configured(self, settings: JobsSettings) -> None:
        from django_jobs.handlers.configured import register_configured  # noqa: PLC0415 - as above
        from django_jobs.handlers.registry import registry  # noqa: PLC0415 - as above

        for key, path in settings.handlers.items():
            try:
                register_configured({key: path}, registry)
            except Exception as error:  # noqa: BLE001 - an import runs code that may raise anything
                # Raised here, it would keep the system checks from telling it well.
                logger.error("HANDLERS[%r] was not registered: %s", key, error)  # noqa: TRY400 - E014 has the rest
