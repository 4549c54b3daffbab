"""Turn the raw dict into JobsSettings and a list of all problems. Never raises."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django_jobs.conf import allow_lists, keys
from django_jobs.conf import parsers as p
from django_jobs.conf.model import (
    LARGE_RESULT,
    SCHEDULE_KEYS,
    SMALL_RESULT,
    BackendConfig,
    CircuitBreakerConfig,
    HandlerBreakerConfig,
    JobsSettings,
    QueueConfig,
    UrlEntry,
    nearest,
)
from django_jobs.conf.parsers import (
    Parser,
    Place,
    Problem,
    ProblemKind,
    SettingRefused,
)
from django_jobs.definition import queue_name_problem
from django_jobs.wire.envelope import MAX_COUNT

if TYPE_CHECKING:
    from django_jobs.wire.signing import SigningKey


def read(
    raw: object,
    *,
    site: str = "django",
    secret_key: str | bytes = "",
    fallbacks: Iterable[str | bytes] = (),
    environment_key: str | None = None,
    environment: str | None = None,
) -> tuple[JobsSettings, list[Problem]]:
    """The settings and all problems. An invalid value falls back to its default."""
    root = Place()
    try:
        values = root.members(raw, _SETTINGS)
    except SettingRefused as refusal:
        root.problems.append(refusal.problem)
        values = {}
    # None is "not set". Keys that are set and refused are not replaced by other ones.
    if not isinstance(raw, Mapping) or raw.get("SIGNING_KEYS") is None:
        values["signing_keys"] = _implied_keys(root, environment_key, secret_key, fallbacks)
    values.setdefault("site", site)
    if environment:
        values.setdefault("environment", environment)
    settings = JobsSettings(**values)
    root.problems.extend(_unknown_backends(raw, settings))
    return settings, root.problems


def _implied_keys(
    root: Place,
    environment_key: str | None,
    secret_key: str | bytes,
    fallbacks: Iterable[str | bytes],
) -> tuple[SigningKey, ...]:
    try:
        if environment_key is not None:
            return keys.from_environment(environment_key)
        return keys.from_secret_key(secret_key, fallbacks)
    except SettingRefused as refusal:
        root.problems.append(refusal.problem)
        return ()


def _unknown_backends(raw: object, settings: JobsSettings) -> Iterable[Problem]:
    aliases: Collection[str] = settings.backends
    written = raw.get("BACKENDS") if isinstance(raw, Mapping) else None
    if written and isinstance(written, Mapping):
        # A refused entry is reported once, not again wherever it is used.
        aliases = [alias for alias in written if isinstance(alias, str)]
    wanted = {"DEFAULT_BACKEND": settings.default_backend} | {
        f"QUEUES[{name!r}]['BACKEND']": queue.backend
        for name, queue in settings.queues.items()
        if queue.backend is not None
    }
    for path, alias in wanted.items():
        if alias not in aliases:
            yield Problem(
                path,
                f"{path} is {alias!r}, which is not in BACKENDS{nearest(alias, aliases)}",
                f"Name one of the aliases in BACKENDS, or add {alias!r} there.",
                ProblemKind.UNKNOWN_BACKEND,
            )


def _backends(place: Place, value: object) -> Mapping[str, BackendConfig]:
    configs = place.entries(value, p.text(64), _backend)
    if not p.mapping(place, value):
        raise place.refused("is an empty dict", "Leave it out for the database, or fill it.")
    return MappingProxyType(
        {alias: replace(config, alias=alias) for alias, config in configs.items()}
    )


def _backend(place: Place, value: object) -> BackendConfig:
    options = place.members(value, _BACKEND)
    path = _required_path(place, value, options)
    options.pop("backend", None)
    return BackendConfig("", path, **options)


def _required_path(place: Place, value: object, options: Mapping[str, Any]) -> str:
    if "BACKEND" not in p.mapping(place, value):
        hint = f'Add "BACKEND": the dotted path of its class to {place.path}.'
        raise place.refused("has no BACKEND", hint)
    # A refused path has been reported; "" leads to no class.
    return str(options.get("backend", ""))


def _options(place: Place, value: object) -> Mapping[str, Any]:
    return MappingProxyType(place.entries(value, p.text(), lambda _place, option: option))


def _queues(place: Place, value: object) -> Mapping[str, QueueConfig]:
    queues = place.entries(value, _queue_name, _queue)
    return MappingProxyType({name: queue._replace(name=name) for name, queue in queues.items()})


def _queue(place: Place, value: object) -> QueueConfig:
    return QueueConfig("", **place.members(value, _QUEUE))


def _queue_name(place: Place, value: object) -> str:
    if problem := queue_name_problem(value):
        what, _, hint = problem.partition("; ")
        raise SettingRefused(
            Problem(place.path, f"QUEUES: {what}", f"Please {hint}.", ProblemKind.QUEUE_NAME)
        )
    return str(value)


def _handlers(place: Place, value: object) -> Mapping[str, str]:
    return MappingProxyType(place.entries(value, p.text(), p.dotted_path))


def _schedule(place: Place, value: object) -> Mapping[str, Mapping[str, Any]]:
    return MappingProxyType(place.entries(value, p.text(), _schedule_entry))


def _schedule_entry(place: Place, value: object) -> Mapping[str, Any]:
    # Only the keys are checked here; the values where schedules are read.
    values = place.members(value, dict.fromkeys(SCHEDULE_KEYS, _as_written))
    for key in ("CRON", "HANDLER"):
        if key not in p.mapping(place, value):
            raise place.refused(f"has no {key}", f'Add "{key}" to {place.path}.')
    return MappingProxyType({key.upper(): value for key, value in values.items()})


def _as_written(_place: Place, value: object) -> object:
    return value


def _circuit_breaker(place: Place, value: object) -> CircuitBreakerConfig:
    return CircuitBreakerConfig(**place.members(value, _BREAKER))


def _breakers_of_handlers(place: Place, value: object) -> Mapping[str, HandlerBreakerConfig]:
    return MappingProxyType(place.entries(value, p.listed_name, _breaker_of_a_handler))


def _breaker_of_a_handler(place: Place, value: object) -> HandlerBreakerConfig:
    return HandlerBreakerConfig(**place.members(value, _BREAKER_OF_A_HANDLER))


_BREAKER_OF_A_HANDLER: Mapping[str, Parser[Any]] = {
    "THRESHOLD": p.whole(1, MAX_COUNT),
    "COOLDOWN": p.some_seconds,
}
_BREAKER: Mapping[str, Parser[Any]] = {
    **_BREAKER_OF_A_HANDLER,
    "REJECTIONS": p.optional(p.whole(1, MAX_COUNT)),
    "HANDLERS": _breakers_of_handlers,
}


def _metrics(place: Place, value: object) -> tuple[str, ...]:
    if value is None or isinstance(value, str):
        return () if value is None else (p.dotted_path(place, value),)
    return p.several(p.dotted_path, "shop.metrics.Collector")(place, value)


def _url_entry(place: Place, value: object) -> UrlEntry:
    # A refused URL has been reported. "" keeps its place, so that the entries after it keep
    # their numbers.
    values: dict[str, Any] = {}
    if isinstance(value, str):
        place.collect(values, "url", place, value, p.url)
    else:
        values = place.members(value, _URL_ENTRY)
        if "URL" not in p.mapping(place, value):
            raise place.refused("has no URL", 'Add "URL": "https://host/path/*".')
    return UrlEntry(**{"url": "", **values})


_URL_ENTRY: Mapping[str, Parser[Any]] = {
    "URL": p.url,
    "METHODS": p.several(p.listed_name, "POST"),
    "HEADERS": p.several(p.listed_name, "Authorization"),
    "PRIVATE": p.several(p.text(64), "10.1.2.0/24"),
    "MAX_BYTES": p.whole(0, 1_048_576),
    "REDIRECTS": p.whole(0, 3),
    "TIMEOUT": p.some_seconds,
    "CA_FILE": p.optional(p.text(4096)),
}

_BACKEND: Mapping[str, Parser[Any]] = {
    "BACKEND": p.dotted_path,
    "OPTIONS": _options,
    "ON_COMMIT": p.optional(p.flag_or_alias),
    "OUTBOX": p.flag_or_alias,
}

_QUEUE: Mapping[str, Parser[Any]] = {
    "BACKEND": p.optional(p.text(64)),
    "HANDLERS": p.optional(p.several(p.listed_name, "shop.jobs.send_mail")),
    "RATE_LIMIT": p.optional(p.rate),
    "RETRY": p.optional(p.retry),
    "TIMEOUT": p.optional(p.some_seconds),
    "LEASE_SECONDS": p.optional(p.some_seconds),
    "OUTBOX": p.optional(p.flag),
}

_SETTINGS: Mapping[str, Parser[Any]] = {
    "BACKENDS": _backends,
    "DEFAULT_BACKEND": p.text(64),
    "QUEUES": _queues,
    "STRICT_QUEUES": p.flag,
    "HANDLERS": _handlers,
    "SIGNING_KEYS": p.optional(keys.configured),
    "VERIFY_SIGNATURES": p.flag,
    "SITE": p.text(),
    "ENVIRONMENT": p.optional(p.text()),
    "ALLOWED_COMMANDS": allow_lists.commands,
    "ALLOWED_SHELL_COMMANDS": allow_lists.programs,
    "SHELL": allow_lists.shell,
    "ALLOWED_EVENTS": allow_lists.events,
    "ALLOWED_URLS": p.several(_url_entry, "https://hooks.example.com/*"),
    "TASK_MODULES": p.several(p.module_name, "shop.tasks"),
    "RETRY": p.retry,
    "MAX_RETRIES": p.whole(0, MAX_COUNT - 1),
    "TIMEOUT": p.optional(p.some_seconds),
    "KILL_GRACE": p.seconds,
    "MAX_CRASHES": p.whole(1, MAX_COUNT),
    "LEASE_SECONDS": p.some_seconds,
    "POLL_INTERVAL": p.some_seconds,
    "SNOOZE_DELAY": p.some_seconds,
    "MAX_PAYLOAD_BYTES": p.whole(1, MAX_COUNT),
    "MAX_RESULT_BYTES": p.whole(SMALL_RESULT, LARGE_RESULT),
    "RESULT_TTL": p.seconds,
    "IDEMPOTENCY_TTL": p.some_seconds,
    "DEAD_LETTER_TTL": p.optional(p.some_seconds),
    "CIRCUIT_BREAKER": _circuit_breaker,
    "UNKNOWN_HANDLER": p.unknown_handler,
    "UNKNOWN_PATIENCE": p.some_seconds,
    "SCHEDULE": _schedule,
    "SCHEDULE_HANDLERS": p.several(p.listed_name, "shop.jobs.send_report"),
    "METRICS": _metrics,
    "MONITOR_TOKEN": p.optional(p.token),
    "REDACT_KEYS": p.several(p.word_of_keys, "iban"),
}

SETTING_NAMES = frozenset(_SETTINGS)
