"""SQLite's counter of changes: cheap to read, and moved by every commit of others."""

from __future__ import annotations

import sqlite3
from typing import Any

EVERY_SECONDS = 0.01


class Changes:
    """Whether the file was changed, by whatever other connection, since ``begin``."""

    every = EVERY_SECONDS

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._version: int | None = None

    def begin(self) -> None:
        """Changes count from here. Called before a look, so that none falls in between."""
        self._connection.ensure_connection()
        self._version = self._read()

    def seen(self) -> bool:
        """Whether there was a change; also when it cannot be told: then a look tells."""
        version = self._read()
        return version is None or version != self._version

    def _read(self) -> int | None:
        raw = self._connection.connection
        if raw is None:
            return None
        try:
            # Past Django's cursor, which would do ten times the work a hundred times a second.
            (version,) = raw.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return None
        return int(version)


def can_see_others(connection: Any) -> bool:
    """Whether there are others, and nothing hides what they do."""
    return not (connection.in_atomic_block or connection.is_in_memory_db())
