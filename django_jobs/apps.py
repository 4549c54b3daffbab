"""Django's entry to the package."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from django.apps import AppConfig, apps
from django.conf import global_settings, settings
from django.db.models.signals import post_migrate
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string, module_has_submodule

from django_jobs.lazy import LazyFunction

if TYPE_CHECKING:
    from django_jobs.conf import JobsSettings


# Dotted paths, so that a process that only enqueues does not load this code.
SUBSCRIBERS = {
    "django_jobs.telemetry.logs.write": "django_jobs.telemetry.logs.wants",
    "django_jobs.telemetry.metrics.count": "django_jobs.telemetry.metrics.wants",
    "django_jobs.worker.signals.announce": "django_jobs.worker.signals.wants",
}
"""Subscriber of events → the function that says which kinds it handles."""
GAUGES = "django_jobs.operations.gauges.store_gauges"


class DjangoJobsConfig(AppConfig):
    """Finds the handlers of all installed apps and registers the system checks."""

    name = "django_jobs"
    label = "django_jobs"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_jobs import checks  # noqa: F401, PLC0415 - registers them; needs loaded apps
        from django_jobs.conf import read_current  # noqa: PLC0415 - as above
        from django_jobs.handlers import registry as handlers  # noqa: PLC0415 - as above
        from django_jobs.routers import tell_of_tables_not_made  # noqa: PLC0415 - as above
        from django_jobs.telemetry import events, metrics  # noqa: PLC0415 - as above

        post_migrate.connect(tell_of_tables_not_made, sender=self)
        for path, wants in SUBSCRIBERS.items():
            events.subscribe_path(path, wants)
        metrics.gauges = SimpleLazyObject(partial(import_string, GAUGES))
        self._connect_tasks()
        self._discover()
        configured, _problems = read_current()
        handlers.register_built_in(handlers.registry)
        self._register_configured(configured)

    def _discover(self) -> None:
        """Import ``jobs`` and ``tasks`` of the other apps, as autodiscover_modules() does.

        Our own ``jobs`` is needed by few processes, and the package ``django_jobs.tasks`` cannot be
        imported if Django has no Tasks.
        """
        for config in apps.get_app_configs():
            for name in ("jobs", "tasks"):
                if config is not self and module_has_submodule(config.module, name):
                    import_module(f"{config.name}.{name}")

    def _connect_tasks(self) -> None:
        """Connect Django's Tasks, with their checks and signals, if they are available."""
        # The package for Django 5.2 may be installed for another app; then TASKS is not ours.
        default = getattr(global_settings, "TASKS", None)
        configured = getattr(settings, "TASKS", None) is not default
        if find_spec("django.tasks"):
            package = "django.tasks"
        elif configured and find_spec("django_tasks"):
            package = "django_tasks"
        else:
            return
        from django_jobs import decorators  # noqa: PLC0415 - as above
        from django_jobs.handlers.registry import registry  # noqa: PLC0415 - as above

        registry.finder = LazyFunction("django_jobs.tasks.finder.find")
        registry.may_find = LazyFunction("django_jobs.tasks.finder.may_find")
        decorators.task_of = LazyFunction("django_jobs.tasks.declared.task_of_job")
        if configured:
            import_module(f"{package}.checks")
            import_module(f"{package}.signals")

    def _register_configured(self, configured: JobsSettings) -> None:
        from django_jobs.handlers import registry as handlers  # noqa: PLC0415 - as above
        from django_jobs.telemetry import events  # noqa: PLC0415 - as above

        for key, path in configured.handlers.items():
            try:
                handlers.register_configured({key: path}, handlers.registry)
            except Exception as error:  # noqa: BLE001 - an import runs code that may raise anything
                # Raising here would prevent the system checks from reporting it.
                events.emit(events.HandlerUnregistered(handler=key, error=error))
