"""The health of queues and workers as JSON: 200 when all is well, 503 when it is not."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django.db import Error
from django.http import JsonResponse

from django_jobs.management.arguments import queue_name, seconds, whole
from django_jobs.operations.health import Limits, troubles
from django_jobs.views.access import for_monitors

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

LIMITS: dict[str, Callable[[str], Any]] = {
    "max_age": seconds,
    "min_workers": whole,
    "queue": queue_name,
}


@for_monitors
def health(request: HttpRequest) -> JsonResponse:
    """What ``jobs_status --check`` finds. The limits are parameters of the query."""
    try:
        limits = _limits(request)
    except ArgumentTypeError as error:
        return JsonResponse({"error": str(error)}, status=400)
    try:
        found = [asdict(one) for one in troubles(limits)]
    except Error as error:
        # What the database says may name hosts and users, and belongs into the log alone.
        found = [{"kind": "unreachable", "detail": type(error).__name__}]
    return JsonResponse({"ok": not found, "troubles": found}, status=503 if found else 200)


def _limits(request: HttpRequest) -> Limits:
    given = {}
    for name, text in request.GET.items():
        if name not in LIMITS:
            raise ArgumentTypeError(f"there is no limit {name!r}; known are {', '.join(LIMITS)}")
        try:
            given[name] = LIMITS[name](str(text))
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"{name}: {error}") from None
    return Limits(**given)
