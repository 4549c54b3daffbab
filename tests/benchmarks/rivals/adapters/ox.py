"""django-ox, a backend of Django's Tasks."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rivals.adapters.djangos_tasks import TasksSite
from tests.benchmarks.rivals.site import CORES, DEFAULTS, MACHINE, ONE, POSTGRES, Way

WORKER = ("django", "ox_worker")
TUNED = (*WORKER, "-v0", "--concurrency", "4")


class OxSite(TasksSite):
    """Claims one task at a time, whatever its concurrency."""

    name = "django-ox"
    vendor = POSTGRES
    distribution = "django-ox"
    keeps = (
        "a commit per claim and one per finish, both fenced; killed work runs again "
        "when its lock is old (300 s)"
    )
    model = "django_ox.OxTask"
    left = "SELECT count(*) FROM django_ox_oxtask WHERE status <> 'SUCCESSFUL'"
    apps = ("django_ox",)
    ways = (
        Way(DEFAULTS, (WORKER,), "one thread, a new connection per task", 250, reconnects=True),
        Way(ONE, (TUNED,), "-v0 --concurrency 4, CONN_MAX_AGE None", 800),
        Way(
            MACHINE,
            ((*TUNED, "--processes", str(CORES)),),
            f"-v0 --concurrency 4 --processes {CORES}, CONN_MAX_AGE None",
            1_000,
        ),
    )

    def extra(self) -> dict[str, Any]:
        return {"TASKS": {"default": {"BACKEND": "django_ox.backend.OxBackend"}}}

    def many(self, numbers: list[int]) -> None:
        from django_ox.bulk import enqueue_many

        from tests.benchmarks.rivals.handlers.tasks import noop

        enqueue_many(noop, [((), {"n": n}) for n in numbers])
