"""A formatter for the log: each record is one line of JSON, with all its facts."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
LONGEST_TEXT = 16_384


class JsonFormatter(logging.Formatter):
    """For ``LOGGING``: ``{"()": "django_jobs.telemetry.json_lines.JsonFormatter"}``.

    ``at``, ``level``, ``logger`` and ``message``, then the attributes of the record:
    ``key``, ``job_id``, ``trace_id`` and so on. Records of other loggers have the same form.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _short(record.getMessage()),
            "process": record.process,
        }
        facts = vars(record).items()
        line |= {name: _plain(value) for name, value in facts if name not in _USUAL | line.keys()}
        if record.exc_info:
            line["traceback"] = _short(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=True, allow_nan=False)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no infinity
    try:
        return _short(str(value))
    except Exception:  # noqa: BLE001 - an object's __str__() may be broken
        return f"a {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
