"""The handler itself: check, call, follow what may be followed, tell what came back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django_jobs.conf import get_settings
from django_jobs.exceptions import UrlFailed
from django_jobs.handlers.url.answers import as_result, excerpt
from django_jobs.handlers.url.deadline import Deadline
from django_jobs.handlers.url.exchange import exchange
from django_jobs.handlers.url.redirects import is_redirect, redirected
from django_jobs.handlers.url.request import Request
from django_jobs.handlers.url.resolving import addresses_of, lookup
from django_jobs.handlers.url.rules import rule_for, rules_of

if TYPE_CHECKING:
    from django_jobs.handlers.base import JobContext
    from django_jobs.handlers.url.exchange import Answer
    from django_jobs.handlers.url.resolving import Resolve

GOOD = range(200, 300)


class UrlHandler:
    """Makes the HTTP call that a payload describes, where ALLOWED_URLS allows it.

    What is refused is refused again at the next attempt, so only failures are retried.
    """

    key = "url"
    retry_on = (UrlFailed,)

    def __init__(self, resolve: Resolve = lookup) -> None:
        self._resolve = resolve

    def validate(self, payload: Any) -> None:
        """Raise InvalidPayload, or UrlRefused for what is not allowed. No name is resolved: what
        it leads to counts when the call is made.
        """
        rule_for(Request.of(payload), rules_of(get_settings()))

    def destination(self, payload: Any) -> tuple[str, str, int]:
        """The origin that gets headers and body."""
        return Request.of(payload).target.origin

    def admit(self, payload: Any) -> None:
        """The same once more, before a run: what is allowed may have changed."""
        self.validate(payload)

    def handle(self, context: JobContext) -> dict[str, Any]:
        """The answer's status and body; raises UrlRefused, or UrlFailed when there is none or
        its status is not 2xx. The body is then in the job's output, in part and redacted.
        """
        request = Request.of(context.payload)
        answer = self._called(request, context)
        if answer.status not in GOOD:
            sys.stdout.write(f"{answer.status}\n{excerpt(answer, request)}\n")
            raise UrlFailed(f"{request.target} answered {answer.status}")
        return as_result(answer)

    def _called(self, request: Request, context: JobContext) -> Answer:
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
