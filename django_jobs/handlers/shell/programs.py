"""Which entry of the allow-list a word means, and which file that is.

Files are compared after all their links are followed, and the path so found is the one
that is started: no link is followed a second time. ``PATH`` of the worker, its directory
and the job's own choice of a first argument play no part.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_jobs.conf.model import shown
from django_jobs.exceptions import HandlerRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.conf import JobsSettings


@dataclass(frozen=True, slots=True)
class Program:
    """An entry of the allow-list, and its file; None where this machine has no such file."""

    entry: str
    path: str | None


def find_program(word: str, settings: JobsSettings) -> Program:
    """The allowed program that a word means; raises HandlerRefused."""
    entries = settings.allowed_shell_commands
    if word in entries:
        return Program(word, real_path(word))
    path = _located(word, settings.shell.path)
    same = [entry for entry in entries if path is not None and real_path(entry) == path]
    if len(same) > 1:  # one file with many names does what the name says, as busybox
        same = [entry for entry in same if os.path.basename(entry) == os.path.basename(word)]  # noqa: PTH119 - text, no file
    if len(same) != 1:
        raise HandlerRefused(
            f"the program {shown(word)} is not in ALLOWED_SHELL_COMMANDS; add its absolute path "
            "there if jobs may start it"
        )
    return Program(same[0], path)


def _located(word: str, directories: Sequence[str]) -> str | None:
    if word.startswith("/"):
        return real_path(word)
    if "/" in word:  # it would be another file in every directory
        return None
    found = (real_path(f"{directory}/{word}") for directory in directories)
    return next((path for path in found if path is not None), None)


def real_path(path: str) -> str | None:
    """The file behind a path, if there is one that can be started."""
    try:
        real = os.path.realpath(path, strict=True)
    except (OSError, ValueError):
        return None
    return real if os.path.isfile(real) and os.access(real, os.X_OK) else None  # noqa: PTH113 - text in, text out
