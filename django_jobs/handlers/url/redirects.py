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
_KEEPING = frozenset({307, 308})
_BECOMES_GET = {301: {"POST"}, 302: {"POST"}}
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
    if status in _KEEPING or method in {"GET", "HEAD"}:
        return False
    return method in _BECOMES_GET.get(status, {method})


def _next_target(current: Target, locations: tuple[str, ...]) -> Target:
    location = locations[0].partition("#")[0]
    if len(locations) > 1:
        raise UrlRefused(f"{current} redirects to several places at once")
    if not all("!" <= letter <= "~" for letter in location):
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
