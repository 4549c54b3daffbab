"""What comes after a redirect. The result is a request like any other, to be checked as one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin

from django_jobs.exceptions import UrlRefused
from django_jobs.handlers.url.request import Request
from django_jobs.handlers.url.target import Target

if TYPE_CHECKING:
    from django_jobs.handlers.url.exchange import Answer

STATUSES = frozenset({301, 302, 303, 307, 308})
SEE_OTHER = 303
_AFTER_POST = frozenset({301, 302})
_FOR_BODIES = "content-"


def is_redirect(answer: Answer) -> bool:
    return answer.status in STATUSES and bool(answer.locations)


def redirected(request: Request, answer: Answer) -> Request:
    """The request to make next; raises UrlRefused.

    Headers of the payload, which may be credentials, stay with the origin they were written
    for. A body is not sent on to another one: there it is not known what to do with it.
    """
    target = _next_target(request.target, answer.locations)
    method, body, headers = request.method, request.body, dict(request.headers)
    if _becomes_get(method, answer.status):
        method, body = "GET", None
        headers = {k: v for k, v in headers.items() if not k.lower().startswith(_FOR_BODIES)}
    if target.origin != request.target.origin:
        if body is not None:
            raise UrlRefused(f"{request.target} redirects a body to {target}; it is not sent on")
        headers = {}
    return Request(method, target, headers, body)


def _becomes_get(method: str, status: int) -> bool:
    """As browsers do it: 303 always says where to look, 301 and 302 only after a POST."""
    if status == SEE_OTHER:
        return method not in {"GET", "HEAD"}
    return status in _AFTER_POST and method == "POST"


def _next_target(current: Target, locations: tuple[str, ...]) -> Target:
    said, *others = locations
    if others:
        raise UrlRefused(f"{current} redirects to several places at once")
    location = said.partition("#")[0]
    if not (location.isascii() and location.isprintable()) or " " in location:
        raise UrlRefused(f"{current} redirects to something that is no url")
    try:
        joined = urljoin(current.url, location)
    except ValueError:
        raise UrlRefused(f"{current} redirects to something that is no url") from None
    try:
        target = Target.parse(joined)
    except UrlRefused as refusal:
        raise UrlRefused(f"{current} redirects elsewhere, and there {refusal}") from None
    if current.scheme == "https" and target.scheme != "https":
        raise UrlRefused(f"{current} redirects to plain http; an answer could be forged there")
    return target
