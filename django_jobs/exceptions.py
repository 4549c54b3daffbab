"""Every exception of the package.

    JobsError
    ├── ConfigurationError          (also Django's ImproperlyConfigured)
    │   ├── SettingsError           a value in DJANGO_JOBS is wrong
    │   ├── InvalidBackend          an alias or dotted path leads to no backend
    │   └── InvalidSchedule         a schedule cannot be read, or cannot be put in order
    ├── InvalidJob                  (also ValueError) a job asks for the impossible
    │   ├── InvalidOption           an option is out of range or contradicts another
    │   │   └── UnknownOption       (also TypeError) there is no option of that name
    │   ├── InvalidPayload          arguments are not plain JSON, too deep or too large
    │   │   └── InvalidCall         (also TypeError) arguments do not fit the function
    │   ├── UnknownHandler          nothing is registered under the handler key
    │   ├── HandlerRefused          the queue, or its own list, does not allow what it is to do
    │   │   └── UrlRefused          no entry of ALLOWED_URLS allows the web request
    │   ├── QueueRefused            the queue is not one of QUEUES
    │   ├── NotSupported            the backend cannot do what an option asks for
    │   └── UnknownSchedule         no schedule has the name
    ├── DuplicateJob                unique_key: a live job holds the key
    ├── EnqueueOutcomeUnknown       the connection broke before the store answered
    │   └── PushFailed              the transaction was committed, its jobs did not reach the broker
    ├── BackendUnavailable          a backend failed again and again, and is left alone for a while
    ├── StoreUnavailable            (also ConnectionError) what carries the jobs does not serve
    │   └── PrefixInUse             the keys of a Redis backend are another site's
    ├── TablesMissing               (also Django's DatabaseError) migrate has to be run
    ├── Rejection                   a message failed a check and must not run
    ├── InvalidResult               (also ValueError) what was returned is work not yet done
    ├── CommandFailed               a management command ended with an exit code that is not 0
    ├── ProgramFailed               a program could not be started, or did not end well
    ├── EventFailed                 receivers of an event raised
    ├── UrlFailed                   a web request got no answer, or none of the 2xx ones
    ├── ResultUnavailable           a result was asked for that is not (or no longer) there
    │   └── ResultNotKept           (also ValueError) the job succeeded, its value is not kept
    └── JobFailed                   a result was asked for of a job that did not succeed

The exceptions by which a handler steers its own job are in ``django_jobs.handlers.base``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, DatabaseError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BackendUnavailable",
    "CommandFailed",
    "ConfigurationError",
    "DuplicateJob",
    "EnqueueOutcomeUnknown",
    "EventFailed",
    "HandlerRefused",
    "InvalidBackend",
    "InvalidCall",
    "InvalidJob",
    "InvalidOption",
    "InvalidPayload",
    "InvalidResult",
    "InvalidSchedule",
    "JobFailed",
    "JobsError",
    "NotSupported",
    "PrefixInUse",
    "ProgramFailed",
    "PushFailed",
    "QueueRefused",
    "Rejection",
    "ResultNotKept",
    "ResultUnavailable",
    "SettingsError",
    "StoreUnavailable",
    "TablesMissing",
    "UnknownHandler",
    "UnknownOption",
    "UnknownSchedule",
    "UrlFailed",
    "UrlRefused",
]


class JobsError(Exception):
    """Base of all exceptions that the package raises on purpose."""


class ConfigurationError(JobsError, ImproperlyConfigured):
    """The site's configuration cannot work."""


class SettingsError(ConfigurationError):
    """A value in the ``DJANGO_JOBS`` setting is wrong."""


class InvalidBackend(ConfigurationError):
    """A backend alias or dotted path leads to no usable backend."""


class InvalidSchedule(ConfigurationError):
    """A schedule that cannot be read, or that cannot be put in order with the others."""


class InvalidJob(JobsError, ValueError):
    """A job was described in a way that could never run."""


class InvalidOption(InvalidJob):
    """An option is out of range, or contradicts another one; see UnknownOption."""


class UnknownOption(InvalidOption, TypeError):
    """There is no option of this name. Also a TypeError, as for any Python call."""


class InvalidPayload(InvalidJob):
    """The payload is not strict JSON, does not fit the handler, or is too large.

    ``where`` is the place of the refused value in a typed payload, and empty otherwise.
    """

    def __init__(self, *args: object, where: str = "") -> None:
        super().__init__(*args)
        self.where = where


class InvalidCall(InvalidPayload, TypeError):
    """The arguments do not fit the function. Also a TypeError, as calling it would raise."""


class UnknownHandler(InvalidJob):
    """No handler is registered under the given key.

    ``nearest`` is the most similar key, and empty if none is similar.
    """

    def __init__(self, *args: object, nearest: str = "") -> None:
        super().__init__(*args)
        self.nearest = nearest


class HandlerRefused(InvalidJob):
    """The queue's ``HANDLERS`` does not name the handler, or its own list forbids the payload."""


class UrlRefused(HandlerRefused):
    """A web request, or its redirect, goes to an address that ALLOWED_URLS does not allow.

    The message quotes neither the whole address nor what its name resolves to.
    """


class QueueRefused(InvalidJob):
    """``QUEUES`` is set and does not name the queue."""


class NotSupported(InvalidJob):
    """The backend lacks a capability that an option needs, or no backend has it yet."""


class UnknownSchedule(InvalidJob):
    """No schedule has this name."""


class DuplicateJob(JobsError):
    """A live job already holds the ``unique_key``.

    ``existing_id`` is the id of that job.
    """

    def __init__(self, unique_key: str, existing_id: str) -> None:
        super().__init__(f"unique_key {unique_key!r} is held by the live job {existing_id}")
        self.unique_key = unique_key
        self.existing_id = existing_id


def listed(prepared: Sequence[Any]) -> str:
    """The ids of the first few jobs, and how many more there are."""
    named, unnamed = prepared[:3], len(prepared[3:])
    ids = ", ".join(str(job.id) for job in named)
    return ids + (f" and {unnamed} more" if unnamed else "")


class EnqueueOutcomeUnknown(JobsError):
    """The connection broke before the store answered: the jobs may or may not be there.

    ``prepared`` holds them with their ids fixed. Enqueueing them again is safe: what
    is there already is left alone.
    """

    def __init__(self, prepared: Sequence[Any], cause: str) -> None:
        super().__init__(
            f"the store did not answer the enqueue of {listed(prepared)} ({cause}); "
            "enqueue the same prepared jobs again, which is a no-op for those that arrived"
        )
        self.prepared = prepared


class BackendUnavailable(JobsError):
    """A backend failed so often in a row that it is not called for a while.

    Nothing was sent to it. Enqueue again later, or through another backend.
    """


class StoreUnavailable(JobsError, ConnectionError):
    """The store of the jobs cannot be reached, or does not serve at the moment.

    ``undone``: it is certain that nothing was changed. ``answered``: the store itself answered
    so. ``spares_others``: other queues may be on other servers, which may serve.
    """

    def __init__(self, message: str, *, undone: bool = False, answered: bool = False) -> None:
        super().__init__(message)
        self.undone = undone
        self.answered = answered
        self.spares_others = False


class PrefixInUse(StoreUnavailable):
    """Another site uses the keys of a Redis backend. No command was run."""

    def __init__(self, message: str) -> None:
        super().__init__(message, undone=True, answered=True)


class TablesMissing(JobsError, DatabaseError):
    """A database lacks tables or columns that this version needs; ``database`` is its alias."""

    def __init__(self, database: str, detail: str) -> None:
        super().__init__(
            f"the database {database!r} lacks tables or columns of django_jobs ({detail}): "
            f"run {self.way_out(database)}"
        )
        self.database = database

    @staticmethod
    def way_out(database: str) -> str:
        """The command that creates the tables; in a database other than the default, only ours."""
        app = "" if database == DEFAULT_DB_ALIAS else "django_jobs "
        return f"manage.py migrate {app}--database {database}"


class PushFailed(EnqueueOutcomeUnknown):
    """The caller's transaction was committed, but its jobs did not reach the broker.

    They are lost unless ``prepared`` is enqueued again, which does no harm to jobs that did
    arrive. An outbox prevents this.
    """

    def __init__(self, backend: str, prepared: Sequence[Any], cause: str) -> None:
        super().__init__(prepared, cause)
        self.backend = backend
        message = (
            f"the transaction is committed, but {listed(prepared)} did not reach the backend "
            f"{backend!r} ({cause}); enqueue error.prepared again, or the jobs are lost. "
            "OUTBOX keeps jobs until the backend has them"
        )
        self.args = (message,)


class Rejection(JobsError):
    """A message failed a check; it must never reach a handler.

    ``reason`` is the stable word kept with the dead letter, ``detail`` explains it to people and
    never contains payload or key material.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class CommandFailed(JobsError):
    """A management command ended with an exit code that is not 0."""


class ProgramFailed(JobsError):
    """A program could not be started, or ended otherwise than with exit code 0."""


class EventFailed(JobsError):
    """Receivers of an event raised; the others were called all the same."""


class UrlFailed(JobsError):
    """A web request got no answer, only half of one, or one whose status is not 2xx."""


class JobFailed(JobsError):
    """A result was requested of a job that ended without success.

    ``status`` is ``dead``, ``cancelled`` or ``skipped``; ``reason``, ``error_type``,
    ``error_message`` and ``traceback`` are texts, as kept with the job.
    """

    def __init__(self, job_id: str, ended: Any) -> None:
        error = ": ".join(part for part in (ended.error_type, ended.error_message) if part)
        why = f" ({ended.reason})" if ended.reason else ""
        super().__init__(
            f"the job {job_id} is {ended.status}{why}" + (f": {error}" if error else "")
        )
        self.job_id = job_id
        self.status: str = ended.status
        self.reason: str = ended.reason
        self.error_type: str = ended.error_type
        self.error_message: str = ended.error_message
        self.traceback: str = ended.traceback


class ResultUnavailable(JobsError):
    """A job's result was requested before it ended, or after its retention."""


class ResultNotKept(ResultUnavailable, ValueError):
    """A job succeeded, but its return value could not be kept; the message says why.

    ``reason`` is the same without the job.
    """

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"the job {job_id} succeeded, but its return value was not kept: {reason}")
        self.job_id = job_id
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id, self.reason)


class InvalidResult(JobsError, ValueError):
    """A handler returned work that is not done yet: a generator or a coroutine."""
