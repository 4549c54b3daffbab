"""Who may look: whoever shows ``MONITOR_TOKEN``, or a user with the permission to see workers."""

from __future__ import annotations

import hmac
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_jobs.conf import get_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

PERMISSION = "django_jobs.view_worker"
SCHEME = "bearer"


def for_monitors(
    view: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """A view for GET and HEAD, never cached, for those who may look."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponseBase:
        return view(request) if may_look(request) else _refused()

    return require_safe(never_cache(guarded))


def may_look(request: HttpRequest) -> bool:
    """Whether a request comes from somebody who may."""
    if _shows_token(request):
        return True
    user: Any = getattr(request, "user", None)
    return bool(user and user.is_active and user.has_perm(PERMISSION))


def _shows_token(request: HttpRequest) -> bool:
    wanted = get_settings().monitor_token
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if wanted is None or scheme.lower() != SCHEME:
        return False
    # Bytes: text that is not ASCII would raise instead of being different.
    return hmac.compare_digest(shown.strip().encode("utf-8", "replace"), wanted.encode())


def _refused() -> HttpResponse:
    told = "show MONITOR_TOKEN as a bearer token, or log in with the permission to view workers"
    refused = JsonResponse({"error": told}, status=401)
    refused["WWW-Authenticate"] = 'Bearer realm="django_jobs"'
    return refused
