"""Django's entry to the package."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from django.apps import AppConfig, apps
from django.conf import settings
from django.db.models.signals import post_migrate
from django.utils.module_loading import module_has_submodule

if TYPE_CHECKING:
    from django_jobs.conf import JobsSettings


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
        from django_jobs.cron import stored  # noqa: PLC0415 - as above
        from django_jobs.cron.registry import register_source  # noqa: PLC0415 - as above
        from django_jobs.handlers.built_in import register_built_in  # noqa: PLC0415 - as above
        from django_jobs.handlers.registry import registry  # noqa: PLC0415 - as above
        from django_jobs.operations.gauges import store_gauges  # noqa: PLC0415 - as above
        from django_jobs.routers import tell_of_tables_not_made  # noqa: PLC0415 - as above
        from django_jobs.telemetry import events, logs, metrics  # noqa: PLC0415 - as above
        from django_jobs.worker import signals  # noqa: PLC0415 - as above
        from django_jobs.worker.build import run_lease  # noqa: PLC0415 - as above

        post_migrate.connect(tell_of_tables_not_made, sender=self)
        events.subscribe(logs.write, logs.wants)
        events.subscribe(metrics.count, metrics.wants)
        events.subscribe(signals.announce, signals.wants)
        metrics.gauges = store_gauges
        sync.run_lease = run_lease
        register_source(stored.schedules)
        self._connect_tasks()
        self._discover()
        configured, _problems = read_current()
        register_built_in(registry)
        self._register_configured(configured)

    def _discover(self) -> None:
        """Import ``jobs`` and ``tasks`` of the other apps, as autodiscover_modules() does.

        Ours holds what few processes need; and the package ``django_jobs.tasks`` cannot be
        imported where Django has no Tasks.
        """
        for config in apps.get_app_configs():
            for name in ("jobs", "tasks"):
                if config is not self and module_has_submodule(config.module, name):
                    import_module(f"{config.name}.{name}")

    def _connect_tasks(self) -> None:
        """Bring in Django's Tasks, with their checks and signals, where they can be had."""
        # The package for Django 5.2 may be there for somebody else; then TASKS is not ours.
        wanted = getattr(settings, "TASKS", None) and find_spec("django_tasks")
        if not (find_spec("django.tasks") or wanted):
            return
        from django_jobs import decorators  # noqa: PLC0415 - as above
        from django_jobs.handlers.registry import registry  # noqa: PLC0415 - as above
        from django_jobs.tasks import declared, finder  # noqa: PLC0415 - as above

        registry.finder = finder.find
        registry.may_find = finder.may_find
        decorators.task_of = declared.task_of_job

    def _register_configured(self, configured: JobsSettings) -> None:
        from django_jobs.handlers import registry as handlers  # noqa: PLC0415 - as above
        from django_jobs.telemetry import events  # noqa: PLC0415 - as above

        for key, path in configured.handlers.items():
            try:
                handlers.register_configured({key: path}, handlers.registry)
            except Exception as error:  # noqa: BLE001 - an import runs code that may raise anything
                # Raised here, it would keep the system checks from telling it well.
                events.emit(events.HandlerUnregistered(handler=key, error=error))
