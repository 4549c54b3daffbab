"""The handler: check the request, make the call, follow allowed redirects, return the answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from django_jobs.conf import get_settings
from django_jobs.exceptions import UrlFailed, UrlRefused
from django_jobs.handlers.base import Handler
from django_jobs.handlers.url.addresses import addresses_of, lookup
from django_jobs.handlers.url.allow_list import rule_for, rules_of
from django_jobs.handlers.url.http import (
    Deadline,
    as_result,
    excerpt,
    exchange,
)
from django_jobs.handlers.url.request import Request
from django_jobs.handlers.url.url import Target

if TYPE_CHECKING:
    from django_jobs.handlers.base import JobContext
    from django_jobs.handlers.url.addresses import Resolve
    from django_jobs.handlers.url.http import UrlResponse


# Redirects: each makes a new request, which is checked like the first.

STATUSES = frozenset({301, 302, 303, 307, 308})
SEE_OTHER = 303
_AFTER_POST = frozenset({301, 302})
_FOR_BODIES = "content-"


def is_redirect(answer: UrlResponse) -> bool:
    return answer.status in STATUSES and bool(answer.locations)


def redirected(request: Request, answer: UrlResponse) -> Request:
    """The request to make next; raises UrlRefused.

    Headers of the payload may be credentials, so they stay with the origin they were written
    for. A body is not sent on to another origin, which was not meant to receive it.
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
    """As in browsers: a 303 becomes a GET always, 301 and 302 only after a POST."""
    if status == SEE_OTHER:
        return method not in {"GET", "HEAD"}
    return status in _AFTER_POST and method == "POST"


def _next_target(current: Target, locations: tuple[str, ...]) -> Target:
    first, *others = locations
    if others:
        raise UrlRefused(f"{current} redirects to several places at once")
    location = first.partition("#")[0]
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


GOOD = range(200, 300)


class UrlHandler(Handler):
    """Makes the HTTP call that a payload describes, where ALLOWED_URLS allows it.

    A refused call would be refused again at the next attempt, so only failures are retried.
    """

    key = "url"
    retry_on = (UrlFailed,)

    def __init__(self, resolve: Resolve = lookup) -> None:
        self._resolve = resolve

    def validate(self, payload: Any) -> None:
        """Raise InvalidPayload, or UrlRefused for a call that is not allowed. No name is
        resolved: only its addresses at the time of the call count.
        """
        rule_for(Request.of(payload), rules_of(get_settings()))

    def destination(self, payload: Any) -> tuple[str, str, int]:
        """The origin that receives headers and body."""
        return Request.of(payload).target.origin

    def admit(self, payload: Any) -> None:
        """Validate again before a run: ALLOWED_URLS may have changed."""
        self.validate(payload)

    def handle(self, context: JobContext) -> dict[str, Any]:
        """The answer's status and body. Raises UrlRefused, or UrlFailed if there is no answer
        or its status is not 2xx; the job's output then has the redacted beginning of the body.
        """
        request = Request.of(context.payload)
        answer = self._called(request, context)
        if answer.status not in GOOD:
            sys.stdout.write(f"{answer.status}\n{excerpt(answer, request)}\n")
            raise UrlFailed(f"{request.target} answered {answer.status}")
        return as_result(answer)

    def _called(self, request: Request, context: JobContext) -> UrlResponse:
        rules = rules_of(get_settings())
        rule = rule_for(request, rules)
        redirects = rule.redirects
        deadline = Deadline(rule.timeout, context.timeout, context.ends_at)
        while True:
            addresses = addresses_of(request.target, rule, self._resolve, deadline)
            answer = exchange(request, rule, addresses, deadline)
            if not (redirects and is_redirect(answer)):
                return answer
            redirects -= 1
            request = redirected(request, answer)
            rule = rule_for(request, rules)
