"""Decides whether a leased message may run here. If not, it never reaches a handler.

The checks in order: open and verify the message; whether the job's end is decided already
(cancelled, crashed too often, out of retries, expired); whether this process knows the handler;
whether the queue allows it; whether the handler accepts the payload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from django.utils.module_loading import import_string

from django_jobs.clock import SECOND, to_microseconds
from django_jobs.exceptions import HandlerRefused, InvalidPayload, Rejection, SettingsError
from django_jobs.execution.timeout import soft_timeout
from django_jobs.handlers.base import JobTimeout
from django_jobs.handlers.registry import check_allowed
from django_jobs.outcome import (
    ASKED_TO_STOP,
    Cancelled,
    ErrorText,
    Failed,
    Interrupted,
    Rejected,
    Skipped,
    Snoozed,
)
from django_jobs.retry import LONGEST_DELAY, RetryPolicy
from django_jobs.texts import printable
from django_jobs.wire.opening import NotJudged, early_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.handlers.base import Handler
    from django_jobs.handlers.registry import Registry
    from django_jobs.retry import RetrySpec
    from django_jobs.wire.envelope import (
        Envelope,
        Header,
        Message,
        Terms,
    )
    from django_jobs.wire.opening import Opener


LONGEST_SNOOZE = 300.0
_DOUBLINGS = 10


class Admitted(NamedTuple):
    """A message that may run, opened, with its handler."""

    envelope: Envelope
    header: Header
    handler: Handler


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that may not run now, or not at all; the outcome says which."""

    outcome: Rejected | Snoozed | Failed | Cancelled | Skipped | Interrupted
    envelope: Envelope | None = None


def _nothing(_timeout: float | None) -> None:
    """There is no process that enforces timeouts from outside."""


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """Admits the messages of one backend.

    ``starting`` is called with the time limit before a message makes it import user code.
    ``runs_delayed``: this backend is configured to run delayed jobs at once.
    """

    settings: JobsSettings
    opener: Opener
    registry: Registry
    starting: Callable[[float | None], object] = _nothing
    runs_delayed: bool = False

    def believed(self, lease: Lease) -> Envelope | None:
        """The envelope of a message that can be opened, or None."""
        try:
            return self.opener.open(lease.message, lease.queue)
        except Rejection:
            return None

    def admit(self, lease: Lease, now: int, opened: Envelope | None = None) -> Admitted | Refused:
        """Check a message that was leased at ``now`` on the store's clock.

        ``opened``: what ``believed`` returned for this lease.
        """
        try:
            envelope = opened or self.opener.open(lease.message, lease.queue)
        except NotJudged as unknown:
            return self._not_judged(lease, now, unknown.reason, unknown.detail)
        except Rejection as rejection:
            return Refused(Rejected(rejection.reason, rejection.detail))
        header = lease.message.header.clamped(envelope.terms)
        if decided := self._decided(lease, envelope, header, now):
            return Refused(decided, envelope)
        try:
            handler = self._handler(lease, envelope)
        except JobTimeout as over:
            detail = f"{over}: it went into importing the module of {envelope.terms.job!r}"
            return Refused(Failed(ErrorText("JobTimeout", detail), timed_out=True), envelope)
        if handler is None:
            unknown_handler = _unknown_handler(envelope)
            return self._not_judged(lease, now, *unknown_handler, envelope)
        if rejected := self._not_allowed(lease, envelope, handler):
            return Refused(rejected, envelope)
        return Admitted(envelope, header, handler)

    def foresee(self, message: Message, queue: str) -> Rejected | None:
        """Why a waiting message would not be run here, found without running user code.

        So the handler does not check the payload.
        """
        try:
            envelope = self.opener.open(message, queue)
        except Rejection as rejection:
            return Rejected(rejection.reason, rejection.detail)
        key = envelope.terms.job
        if key not in self.registry and not self.registry.may_find(key):
            return Rejected(*_unknown_handler(envelope))
        return self._disallowed(key, queue)

    def _decided(
        self, lease: Lease, envelope: Envelope, header: Header, now: int
    ) -> Rejected | Cancelled | Skipped | Snoozed | None:
        """The outcome if it is clear without looking up the handler."""
        if lease.replayed:
            detail = "a job of this id has ended already; its message was put back"
            return Rejected("rejected-replayed", detail)
        if not lease.keyed and _has_keys(envelope.terms):
            detail = "its keys were not checked: the store was led to believe that it has none"
            return Rejected("rejected-mismatch", detail)
        if lease.cancelled:
            return Cancelled(ASKED_TO_STOP)
        if over := self._over(envelope, header, now):
            return over
        if lease.done_by:
            return Skipped(f"the job {lease.done_by} did the work of its idempotency key")
        if not self.runs_delayed and (early := early_by(envelope, now)):
            detail = "it was leased before its signed time, and waits for the rest of it"
            return Snoozed(min(early / SECOND, LONGEST_DELAY), detail)
        return None

    def _handler(self, lease: Lease, envelope: Envelope) -> Handler | None:
        """The handler. An unregistered key is searched further only if it can be trusted."""
        key = envelope.terms.job
        if (handler := self.registry.get(key)) is not None:
            return handler
        allowed = self.settings.queue(lease.queue).handlers
        if not self.opener.verify_signatures or not (allowed is None or key in allowed):
            return None
        seconds = envelope.terms.timeout
        if seconds is None:
            seconds = self.settings.effective_timeout(lease.queue)
        self.starting(seconds or None)  # importing a module may run any code
        with soft_timeout(seconds or None):
            return self.registry.get_verified(key)

    def _disallowed(self, key: str, queue: str) -> Rejected | None:
        try:
            check_allowed(key, queue, self.settings.queue(queue).handlers)
        except HandlerRefused as refusal:
            return Rejected("rejected-handler", str(refusal))
        return None

    def _not_allowed(self, lease: Lease, envelope: Envelope, handler: Handler) -> Rejected | None:
        """Why the queue does not allow the handler, or the handler not the job."""
        terms = envelope.terms
        if disallowed := self._disallowed(terms.job, lease.queue):
            return disallowed
        if terms.atomic and handler.is_coroutine:
            detail = f"atomic=True needs a plain function; {handler.key} is a coroutine by now"
            return Rejected("rejected-atomic", detail)
        return _refused_by(handler, envelope)

    def _over(self, envelope: Envelope, header: Header, now: int) -> Rejected | None:
        """Why the job is over: it has crashed too often, used up its retries or expired."""
        terms = envelope.terms
        crashes_allowed = terms.max_crashes or self.settings.max_crashes
        if header.crashes >= crashes_allowed:
            # For each of them it is unknown whether a process died or the lease only ended.
            times = "once" if header.crashes == 1 else f"{header.crashes} times"
            detail = f"its lease ended {times} without a verdict while it was to run alone"
            return Rejected("crashed", detail)
        if header.attempts > terms.max_retries:
            return Rejected("exhausted", f"all {header.attempts} attempts were made")
        if terms.expires_at is not None and now >= terms.expires_at:
            late = (now - terms.expires_at) / to_microseconds(1)
            return Rejected("expired", f"it was to run before {late:.0f} s ago")
        return None

    def _not_judged(
        self, lease: Lease, now: int, reason: str, detail: str, envelope: Envelope | None = None
    ) -> Refused:
        """Let the job wait by default: a rolling deploy is the likely cause."""
        policy, header = self.settings.unknown_handler, lease.message.header
        if policy == "fail" and envelope is not None:
            return Refused(Failed(ErrorText("UnknownHandler", detail)), envelope)
        if policy == "discard":
            return Refused(Cancelled(f"discarded: {detail}"), envelope)
        # The moment is not signed: one in the future counts as now; one long ago ends the wait.
        since = now if header.put_off_since is None else min(header.put_off_since, now)
        left = self.settings.unknown_patience - (now - since) / SECOND
        if policy == "snooze" and left > 0:
            doublings = min(max(header.deliveries - 1, 0), _DOUBLINGS)
            delay = min(self.settings.snooze_delay * 2**doublings, LONGEST_SNOOZE, left)
            return Refused(Snoozed(delay, detail, put_off=True), envelope)
        return Refused(Rejected(reason, detail), envelope)


def _has_keys(terms: Terms) -> bool:
    """Whether a claim has to check the job's keys."""
    return (
        terms.idempotency_key is not None
        or terms.concurrency_key is not None
        or terms.single_instance is not None
    )


def _unknown_handler(envelope: Envelope) -> tuple[str, str]:
    """The reason and its description."""
    key = envelope.terms.job
    return "unknown-handler", (
        f"no handler is registered as {key!r} in this process, which knows the modules jobs and "
        "tasks of installed apps, and what TASK_MODULES names"
    )


def _refused_by(handler: Handler, envelope: Envelope) -> Rejected | None:
    """Why the handler does not accept the payload, if that is clear without running user code."""
    try:
        handler.admit(envelope.payload)
    except HandlerRefused as refusal:
        return Rejected("rejected-target", printable(str(refusal)))
    except InvalidPayload as invalid:
        return Rejected("rejected-payload", printable(str(invalid)))
    return None


class Policies:
    """Custom retry policies, by dotted path; each is created once per process.

    A path from a message is never imported. It only selects among the paths that this site's own
    settings and decorators name.
    """

    def __init__(self, settings: JobsSettings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._made: dict[str, RetryPolicy] = {}

    def own(self, spec: RetrySpec | None, queue: str) -> RetryPolicy | None:
        """The policy for a job, or None when a built-in one decides."""
        if spec is None:
            spec = self._settings.effective_retry(queue)
        if not isinstance(spec, str) or "." not in spec:  # the same test as in built_in()
            return None
        if spec not in self._named_here():
            return None
        if spec not in self._made:
            try:
                self._made[spec] = _make(spec)
            except Exception as error:  # noqa: BLE001 - user code; the attempt reports it and goes on
                self._made[spec] = _Unusable(error)
        return self._made[spec]

    def _named_here(self) -> set[str]:
        specs = [self._settings.retry, *(queue.retry for queue in self._settings.queues.values())]
        specs += [self._registry.find(key).retry for key in self._registry]
        return {path for path in specs if isinstance(path, str)}


class _Unusable:
    """A policy that could not be created; raises that error when it is used."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def delay(self, retry_number: int) -> float | None:
        raise self._error


def _make(path: str) -> RetryPolicy:
    try:
        policy_or_class = import_string(path)
    except ImportError as error:
        raise SettingsError(f"the retry policy {path!r} cannot be imported: {error}") from error
    policy = policy_or_class() if isinstance(policy_or_class, type) else policy_or_class
    if not isinstance(policy, RetryPolicy):
        raise SettingsError(f"the retry policy {path!r} has no delay(retry_number)")
    return policy
