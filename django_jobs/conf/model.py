"""The settings as frozen objects. Nothing here reads or checks anything."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django_jobs.definition import UNSET, Unset, queue_name_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from django_jobs.retry import RetrySpec
    from django_jobs.wire.signing import SigningKey


# What the built-in handlers may reach.


class Arguments(NamedTuple):
    """The arguments allowed for a command or program.

    ``forms`` are lists of patterns, with one pattern per argument; None allows any arguments.
    """

    forms: tuple[tuple[str, ...], ...] | None = None

    def fit(self, arguments: Sequence[str]) -> bool:
        """Whether the arguments match one of the forms, each argument in full."""
        return self.forms is None or any(
            len(form) == len(arguments) and all(map(_fits, form, arguments)) for form in self.forms
        )


def _fits(pattern: str, argument: str) -> bool:
    return compiled(pattern).fullmatch(argument) is not None


def compiled(pattern: str) -> re.Pattern[str]:
    r"""A site's pattern, in which ``\d`` and ``\w`` mean what they mean to most programs.

    Digits and letters of other scripts match only if the pattern names them.
    """
    return re.compile(pattern, re.ASCII)


ANY = Arguments()


class ShellConfig(NamedTuple):
    """The environment of every program that the handler ``shell`` starts.

    A limit of None leaves the worker's own. ``environment`` names variables of the worker that
    are passed on.
    """

    directory: str = "/"
    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    environment: tuple[str, ...] = ()
    cpu_seconds: int | None = None
    memory_bytes: int | None = 4 * 1024**3
    file_bytes: int | None = 10 * 1024**3
    open_files: int | None = 1024
    processes: int | None = None
    core_bytes: int | None = 0


T = TypeVar("T")

SHOWN_LENGTH = 80
SMALL_RESULT = 1024
"""The minimum of MAX_RESULT_BYTES."""
LARGE_RESULT = 2 * 1024 * 1024
"""The maximum of MAX_RESULT_BYTES: three times as much, escaped, has to fit into a frame."""
IN_MEMORY = "django_jobs.telemetry.collectors.InMemory"
INLINE_QUEUE = "inline"
"""The queue of schedules without a queue; it needs no entry in QUEUES."""
DATABASE_BACKEND = "django_jobs.backends.database.DatabaseBackend"


SCHEDULE_KEYS = (
    *("CRON", "HANDLER", "ARGS", "KWARGS", "PAYLOAD"),
    *("TIMEZONE", "DESCRIPTION", "ENABLED", "ENVIRONMENTS", "BETWEEN", "UNLESS_BETWEEN", "WHEN"),
    *("DEPENDS_ON", "DEPENDENCY", "MISSED", "MISSED_LIMIT", "DEADLINE", "OVERLAP", "DAYLIGHT"),
    *("JITTER", "QUEUE", "BACKEND", "PRIORITY", "MAX_RETRIES", "RETRY", "TIMEOUT"),
    *("EXPIRES", "SINGLE_INSTANCE", "CONCURRENCY_KEY", "CONCURRENCY", "ATOMIC", "RESULT_TTL"),
    *("MAX_CRASHES", "TENANT", "META"),
)
"""The keys of an entry of SCHEDULE."""


class UnknownHandlerPolicy(StrEnum):
    """What happens to a job that this process cannot judge.

    Its handler, signing key or version is unknown here, or it belongs to another site.
    """

    SNOOZE = "snooze"
    FAIL = "fail"
    DEAD_LETTER = "dead-letter"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """One entry of BACKENDS. Options may hold passwords and stay out of the repr.

    ``on_commit`` and ``outbox`` may name a database alias; None is "not set".
    """

    alias: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    on_commit: bool | str | None = None
    outbox: bool | str = False


class QueueConfig(NamedTuple):
    """One entry of QUEUES; None or UNSET leaves a value to the site's settings.

    ``handlers`` is different: None lets every ``@job`` and task run, ``()`` none.
    """

    name: str
    backend: str | None = None
    handlers: tuple[str, ...] | None = None
    rate_limit: str | None = None
    retry: RetrySpec | None = None
    timeout: float | Unset | None = UNSET
    lease_seconds: float | None = None
    outbox: bool | None = None


class UrlEntry(NamedTuple):
    """One entry of ALLOWED_URLS as written; the handler ``url`` interprets it."""

    url: str
    methods: tuple[str, ...] = ("GET", "HEAD", "POST")
    headers: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    max_bytes: int = 65_536
    redirects: int = 0
    timeout: float = 30.0
    ca_file: str | None = None


class HandlerBreakerConfig(NamedTuple):
    """The breaker of a handler; None takes a value from the breaker of backends."""

    threshold: int | None = None
    cooldown: float | None = None


def _fixed(content: Mapping[str, T]) -> Mapping[str, T]:
    return MappingProxyType(dict(content))


def _default_backends() -> Mapping[str, BackendConfig]:
    return _fixed({"database": BackendConfig("database", DATABASE_BACKEND)})


def _nothing() -> Mapping[str, Any]:
    return _fixed({})


class CircuitBreakerConfig(NamedTuple):
    """After ``threshold`` errors of a backend in a row, no calls for ``cooldown`` seconds.

    ``rejections``: after so many refused messages in a row the same for a queue; None: never.
    """

    threshold: int = 5
    cooldown: float = 60.0
    rejections: int | None = 10
    handlers: Mapping[str, HandlerBreakerConfig] = _nothing()


# eq=False: caches of values derived from the settings compare them by identity.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobsSettings:
    """The complete, checked settings. All lengths of time are in seconds."""

    backends: Mapping[str, BackendConfig] = field(default_factory=_default_backends)
    default_backend: str = "database"
    queues: Mapping[str, QueueConfig] = field(default_factory=_nothing)
    strict_queues: bool = True
    handlers: Mapping[str, str] = field(default_factory=_nothing)

    signing_keys: tuple[SigningKey, ...] = ()
    verify_signatures: bool = True
    site: str = "django"
    environment: str | None = None

    allowed_commands: Mapping[str, Arguments] = field(default_factory=_nothing)
    allowed_shell_commands: Mapping[str, Arguments] = field(default_factory=_nothing)
    shell: ShellConfig = field(default_factory=ShellConfig)
    allowed_events: Mapping[str, str] = field(default_factory=_nothing)
    allowed_urls: tuple[UrlEntry, ...] = ()
    task_modules: tuple[str, ...] = ()

    retry: RetrySpec = "exponential"
    max_retries: int = 0
    timeout: float | None = 300.0
    kill_grace: float = 5.0
    max_crashes: int = 3
    lease_seconds: float = 30.0
    poll_interval: float = 1.0
    snooze_delay: float = 5.0
    max_payload_bytes: int = 262_144
    max_result_bytes: int = 262_144
    result_ttl: float = 86_400.0
    idempotency_ttl: float = 86_400.0
    dead_letter_ttl: float | None = None

    circuit_breaker: CircuitBreakerConfig = field(default_factory=CircuitBreakerConfig)
    unknown_handler: UnknownHandlerPolicy = UnknownHandlerPolicy.SNOOZE
    unknown_patience: float = 86_400.0
    schedule: Mapping[str, Mapping[str, Any]] = field(default_factory=_nothing)
    schedule_handlers: tuple[str, ...] = ()
    metrics: tuple[str, ...] = (IN_MEMORY,)
    monitor_token: str | None = field(default=None, repr=False)
    redact_keys: tuple[str, ...] = ()

    def queue(self, name: str) -> QueueConfig:
        """The entry of a queue in QUEUES, or an empty one."""
        return self.queues.get(name) or _empty_queue(name)

    def backend_for(self, queue: str) -> str:
        """The alias of the backend that carries a queue."""
        return self.queue(queue).backend or self.default_backend

    def effective_timeout(self, queue: str) -> float | None:
        """Seconds that a run may take on a queue; None for no limit."""
        timeout = self.queue(queue).timeout
        return self.timeout if timeout is UNSET else timeout

    def effective_retry(self, queue: str) -> RetrySpec:
        """The retry policy of jobs without one of their own."""
        own = self.queue(queue).retry
        return self.retry if own is None else own

    def effective_lease(self, queue: str) -> float:
        """Seconds that a lease on a queue lasts."""
        own = self.queue(queue).lease_seconds
        return self.lease_seconds if own is None else own

    def queue_problem(self, name: str) -> str | None:
        """Why a queue name is refused, or None."""
        if problem := queue_name_problem(name):
            return problem
        if not (self.queues and self.strict_queues) or name in (INLINE_QUEUE, *self.queues):
            return None
        return (
            f"the queue {name!r} is not in DJANGO_JOBS['QUEUES']"
            f"{nearest(name, self.queues)}; add it there, or set STRICT_QUEUES to False"
        )


@lru_cache(maxsize=1024)
def _empty_queue(name: str) -> QueueConfig:
    """Cached, as each job asks several times."""
    return QueueConfig(name)


def nearest(word: object, names: Collection[str]) -> str:
    """The end of an error message: the most similar name, or all names."""
    near = difflib.get_close_matches(word, names, n=1) if isinstance(word, str) else []
    if not near and isinstance(word, str):
        near = difflib.get_close_matches(word.upper(), names, n=1)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (known: {', '.join(sorted(names))})" if names else ""


def shown(value: object) -> str:
    """A value for an error message: escaped, and never longer than a line."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a value too odd to be printed must not hide the message
        return f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."
