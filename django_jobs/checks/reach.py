"""Checks of what built-in handlers may reach: signals, commands, programs and hosts in settings.

Imported only if settings name any, because it needs the code of these handlers.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it
from django.core.management import get_commands

from django_jobs.handlers.event import find_signal
from django_jobs.handlers.shell.handler import real_path
from django_jobs.handlers.url.allow_list import UrlRule, WrongEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.checks import CheckMessage

    from django_jobs.conf import JobsSettings, Problem


FAR_REACHING = frozenset(
    {"changepassword", "createsuperuser", "dbshell", "flush", "loaddata", "makemigrations"}
    | {"migrate", "runserver", "shell", "startapp", "startproject", "test", "testserver"}
)
"""Commands that run code, start a server, or can change or empty a database."""

ON_POSIX = os.name == "posix"
RUNS_OTHERS = re.compile(
    r"(?:ba|da|z|k|c|tc|fi)?sh|busybox|(?:python|pypy|perl|ruby|node|php|lua|tclsh)[\d.]*|"
    r"[gmn]?awk|sed|find|xargs|env|nice|nohup|timeout|setsid|watch|strace|sudo|su|doas|ssh|scp|"
    r"rsync|tar|zip|git|make|vim?|less|man|ed|tee|dd|docker|kubectl|systemctl|systemd-run|crontab"
)
"""Programs that can run others or write any file, with the right arguments."""


def check_events(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Each event leads to a signal."""
    for name, path in settings.allowed_events.items():
        signal, problem = find_signal(path)
        if signal is None:
            yield Error(
                f"ALLOWED_EVENTS[{name!r}] is {path!r}, which {problem}.",
                hint="Name a django.dispatch.Signal by its dotted path.",
                id="django_jobs.E020",
            )


def check_system(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Starting, limiting and killing programs needs POSIX."""
    if settings.allowed_shell_commands and not ON_POSIX:
        yield Error(
            "ALLOWED_SHELL_COMMANDS is set, but the handler shell does not work on this system.",
            hint="Run it on Linux, or another POSIX system.",
            id="django_jobs.E021",
        )


def check_commands(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Each command exists, and dangerous ones are limited to certain arguments."""
    commands = get_commands()
    for name, arguments in settings.allowed_commands.items():
        if name not in commands:
            yield Warning(
                f"ALLOWED_COMMANDS names {name!r}, which is not a management command.",
                hint="Correct the name, or install its app.",
                id="django_jobs.W020",
            )
        if name in FAR_REACHING and arguments.forms is None:
            yield Warning(
                f"ALLOWED_COMMANDS lets jobs run {name!r} with any arguments: anyone who can "
                "enqueue to such a queue can do anything that the command can.",
                hint=f"Remove it, or say which arguments it may have: {{{name!r}: [[…]]}}.",
                id="django_jobs.W021",
            )


def check_programs(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Each program exists, no other user can replace it, and it cannot run others."""
    for entry, arguments in settings.allowed_shell_commands.items():
        path = real_path(entry)
        if arguments.forms is None and _runs_others(entry, path):
            yield Warning(
                f"ALLOWED_SHELL_COMMANDS lets jobs start {entry!r} with any arguments: with some "
                "of them it runs other programs, or writes any file.",
                hint=f"Say which arguments it may have: {{{entry!r}: [[…]]}}. Better still, allow "
                "a script of your own that does the one thing.",
                id="django_jobs.W022",
            )
        if path is None:
            yield Warning(
                f"ALLOWED_SHELL_COMMANDS names {entry!r}, which is not on this machine, or cannot "
                "be started.",
                hint="Correct the path, or silence this warning on machines without a worker.",
                id="django_jobs.W024",
            )
        elif place := _open_to_others(Path(path)):
            yield Warning(
                f"ALLOWED_SHELL_COMMANDS names {entry!r}, but any user of this machine can write "
                f"to {str(place)!r}, and so replace the program.",
                hint=f"chmod o-w {place}",
                id="django_jobs.W023",
            )


def _runs_others(entry: str, path: str | None) -> bool:
    return any(RUNS_OTHERS.fullmatch(Path(name).name) for name in (entry, path or entry))


def _open_to_others(path: Path) -> Path | None:
    """The file or a directory above it, if any user may write to it."""
    for place in (path, *path.parents):
        mode = place.stat().st_mode
        # In a sticky directory such as /tmp, users cannot replace files of others.
        if mode & stat.S_IWOTH and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
            return place
    return None


# Checks of ALLOWED_URLS.

_IDS = {
    "URL": "django_jobs.E030",
    "METHODS": "django_jobs.E031",
    "HEADERS": "django_jobs.E032",
    "PRIVATE": "django_jobs.E033",
    "CA_FILE": "django_jobs.E034",
}


def check_allowed_urls(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Each entry is valid and allows no more than it seems to."""
    for index, entry in enumerate(settings.allowed_urls):
        if not entry.url:
            continue
        where = f"ALLOWED_URLS[{index}]"
        try:
            rule = UrlRule.of(entry)
        except WrongEntry as wrong:
            yield Error(f"{where} {wrong.what}.", hint=wrong.hint, id=_IDS[wrong.key])
        else:
            yield from _check_width(rule, where)


def _check_width(rule: UrlRule, where: str) -> Iterator[CheckMessage]:
    if rule.host is None:
        yield Warning(
            f"{where} lets jobs call every public host.",
            hint="Name the hosts. If you cannot know them, as with webhooks that customers enter, "
            "silence this warning.",
            id="django_jobs.W030",
        )
    if rule.scheme == "http" and not rule.private:
        yield Warning(
            f"{where} allows plain http over the internet: anyone on the network path can "
            "read the request and forge the answer.",
            hint="Write https://.",
            id="django_jobs.W031",
        )


REACH_CHECKS = (check_events, check_system, check_commands, check_programs, check_allowed_urls)
