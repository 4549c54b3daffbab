"""What the backends of Django's Tasks have in common: the same task, and results to look up."""

from __future__ import annotations

import time
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, ClassVar

from tests.benchmarks.rivals.site import DjangoSite

if TYPE_CHECKING:
    from collections.abc import Callable

DIFFERENT = 500


class TasksSite(DjangoSite):
    """A backend of Tasks; ``model`` is where it keeps results, by their id."""

    model: ClassVar[str]

    def one(self, n: int) -> None:
        from tests.benchmarks.rivals.handlers.tasks import noop

        noop.enqueue(n=n)

    def look_up(self, reads: int) -> dict[str, float]:
        """How many results of finished tasks a second, and bare rows by primary key."""
        from django.apps import apps

        from tests.benchmarks.rivals.handlers.tasks import noop

        objects: Any = apps.get_model(self.model)._default_manager
        keys = list(objects.values_list("pk", flat=True)[:DIFFERENT])
        ids = [str(key) for key in keys]
        return {
            "results": _rate(noop.get_result, ids, reads),
            "rows": _rate(lambda key: objects.get(pk=key), keys, reads),
        }


def _rate(read: Callable[[Any], Any], keys: list[Any], reads: int) -> float:
    began = time.perf_counter()
    for key in islice(cycle(keys), reads):
        read(key)
    return reads / (time.perf_counter() - began)
