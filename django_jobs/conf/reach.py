"""How far the built-in handlers reach, as frozen objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments that an allowed name may be given.

    ``forms`` are lists of patterns, one pattern for each argument; None allows any.
    """

    forms: tuple[tuple[str, ...], ...] | None = None

    def fit(self, given: Sequence[str]) -> bool:
        """Whether the given arguments have one of the forms, each of them in full."""
        return self.forms is None or any(
            len(form) == len(given) and all(map(_fits, form, given)) for form in self.forms
        )


def _fits(pattern: str, argument: str) -> bool:
    return compiled(pattern).fullmatch(argument) is not None


def compiled(pattern: str) -> re.Pattern[str]:
    r"""A site's pattern, in which ``\d`` and ``\w`` mean what they mean to most programs.

    Digits and letters of other scripts pass where the site names them.
    """
    return re.compile(pattern, re.ASCII)


ANY = Arguments()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellConfig:
    """The surroundings of every program that the handler ``shell`` starts.

    A limit of None leaves what the worker has. ``environment`` names variables of the
    worker that are passed on.
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
