"""Checks of handlers, queues of jobs and retry policies."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it
from django.utils.module_loading import import_string

from django_jobs.backends.registry import build
from django_jobs.conf.model import nearest
from django_jobs.definition import Options
from django_jobs.enqueue import DEFAULT_QUEUE, check
from django_jobs.exceptions import InvalidJob
from django_jobs.handlers.registry import BUILT_IN_KEYS, registry
from django_jobs.retry import built_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.checks import CheckMessage

    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings, Problem
    from django_jobs.handlers.base import Handler


JOBS_NAMED = 3
_OWN_LISTS = {
    "command": "allowed_commands",
    "shell": "allowed_shell_commands",
    "event": "allowed_events",
    "url": "allowed_urls",
}


def check_handler_paths(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Each entry of HANDLERS leads to something that can be run."""
    for key, path in settings.handlers.items():
        reason = ""
        try:
            handler = import_string(path)
        except Exception as error:  # noqa: BLE001 - importing runs code that may raise anything
            reason = f"cannot be imported: {error}"
        else:
            if not callable(handler) and not callable(getattr(handler, "handle", None)):
                reason = "is neither a function nor a handler with handle()"
        if reason:
            yield Error(
                f"HANDLERS[{key!r}] is {path!r}, which {reason}.",
                hint="Name a function, or a class or object with handle(context).",
                id="django_jobs.E014",
            )


def check_allowed_keys(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """A queue allows only what exists."""
    keys = {*registry, *settings.handlers, *BUILT_IN_KEYS}
    for queue in settings.queues.values():
        for key in queue.handlers or ():
            if key not in keys:
                yield Warning(
                    f"QUEUES[{queue.name!r}]['HANDLERS'] allows {key!r}, which is not "
                    f"registered{nearest(key, keys)}.",
                    hint="Correct the key. Handlers are found in jobs.py and tasks.py of "
                    "installed apps, and in HANDLERS.",
                    id="django_jobs.W005",
                )


def check_queues_of_jobs(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """The queue of a job exists. A job without one may get it when enqueued."""
    refused: dict[str, list[str]] = {}
    for handler in registry.loaded():
        queue = registry.options_of(handler.key).queue
        if queue and settings.queue_problem(queue):
            refused.setdefault(queue, []).append(handler.key)
    for queue, keys in sorted(refused.items()):
        yield Warning(
            f"The queue {queue!r} of {_listed(keys)} is not in "
            f"QUEUES{nearest(queue, settings.queues)}: an enqueue to it is refused.",
            hint="Correct the queue in the decorator, add it to QUEUES, or set STRICT_QUEUES to "
            "False.",
            id="django_jobs.W016",
        )


def check_options_of_jobs(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """The backend of a job can do what its options ask for, unless an enqueue changes them."""
    able = _Backends(settings)
    refused: dict[tuple[str, str], list[str]] = {}
    for handler in registry.loaded():
        options = registry.options_of(handler.key)
        queue = options.queue or DEFAULT_QUEUE
        if handler.is_task or options == Options() or settings.queue_problem(queue):
            continue
        if reason := able.why_refused(handler, options, queue):
            refused.setdefault((queue, reason), []).append(handler.key)
    for (queue, reason), keys in sorted(refused.items()):
        yield Warning(
            f"An enqueue of {_listed(keys)} to the queue {queue!r} is refused: {reason}.",
            hint="Leave the option out of the decorator, or name a queue or backend there that "
            "can do it. Where each enqueue changes the options with using(), silence this.",
            id="django_jobs.W018",
        )


class _Backends:
    """Backends to judge options by. They are made for the check, and connect to nothing."""

    def __init__(self, settings: JobsSettings) -> None:
        self._settings = settings
        self._made: dict[str, Backend | None] = {}

    def why_refused(self, handler: Handler, options: Options, queue: str) -> str:
        """Why an enqueue with these options is refused; empty if it is not."""
        backend = self._backend(options.backend or self._settings.backend_for(queue))
        if backend is None:
            return ""
        try:
            check(options, handler, backend, self._settings, queue)
        except InvalidJob as error:
            return str(error)
        except Exception:  # noqa: BLE001 - a database without a driver or alias: E007, and Django's
            return ""
        return ""

    def _backend(self, alias: str) -> Backend | None:
        if alias not in self._made:
            self._made[alias] = None
            try:
                self._made[alias] = build(self._settings.backends[alias])
            except Exception:  # noqa: BLE001 - E003, E004, E005 and E016 say what it raises
                return None
        return self._made[alias]


def _listed(keys: Sequence[str]) -> str:
    more = len(keys) - JOBS_NAMED
    return ", ".join(sorted(keys)[:JOBS_NAMED]) + (f" and {more} more" if more > 0 else "")


def check_own_lists(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """The far-reaching handlers need both a queue and a list of their own, or they run nothing."""
    for queue in settings.queues.values():
        for key in queue.handlers or ():
            field = _OWN_LISTS.get(key, "")
            if field and not getattr(settings, field):
                yield Warning(
                    f"QUEUES[{queue.name!r}]['HANDLERS'] allows {key!r}, but {field.upper()} "
                    "is empty: every such job will be refused.",
                    hint=f"List in {field.upper()} what may be run, or remove {key!r} from "
                    "the queue.",
                    id="django_jobs.W006",
                )


def check_retry_policies(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """A custom retry policy can be imported and has a method ``delay``."""
    specs = {"RETRY": settings.retry} | {
        f"QUEUES[{queue.name!r}]['RETRY']": queue.retry
        for queue in settings.queues.values()
        if queue.retry is not None
    }
    for path, spec in specs.items():
        if isinstance(spec, str) and built_in(spec) is None and (reason := _why_no_policy(spec)):
            yield Error(
                f"{path} is {spec!r}, which {reason}.",
                hint='Name a class or object with delay(retry_number), or use "none", '
                '"fixed", "exponential" or a list of seconds.',
                id="django_jobs.E015",
            )


def _why_no_policy(path: str) -> str:
    try:
        policy = import_string(path)
    except Exception as error:  # noqa: BLE001 - importing runs code that may raise anything
        return f"cannot be imported: {error}"
    if not callable(getattr(policy, "delay", None)):
        return "has no delay(retry_number)"
    if inspect.isclass(policy):
        return _why_not_made(policy)
    return ""


def _why_not_made(policy_class: type) -> str:
    try:
        inspect.signature(policy_class).bind()
    except TypeError:
        return "is a class that needs arguments"
    except ValueError:
        return ""  # a class in C without a signature
    return ""


HANDLER_CHECKS = (
    check_handler_paths,
    check_allowed_keys,
    check_queues_of_jobs,
    check_options_of_jobs,
    check_own_lists,
    check_retry_policies,
)
