"""Asking a person before something happens that cannot be undone."""

from __future__ import annotations

import getpass
import sys

from django_jobs.management.base import refused


def check_can_ask(way_out: str, *, as_json: bool) -> None:
    """Refuse where there is nobody to ask, or no room for a question."""
    if as_json:
        raise refused(f"--json leaves no room for a question; add {way_out}")
    if not sys.stdin.isatty():
        raise refused(f"there is no terminal to ask for confirmation; add {way_out}")


def confirmed(question: str) -> bool:
    """Whether a person said yes. No answer is a no."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def system_user() -> str:
    """Who runs this command, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
