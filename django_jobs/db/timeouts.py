"""Time limits that the database itself enforces, for the connections of a worker's parent.

A statement that waits too long for a lock, or runs too long, then fails and is rolled back, and
its caller gets an error. Otherwise a hung statement could only be ended by breaking its
connection, and its outcome would be unknown.

On PostgreSQL the limits are set in each transaction, because behind a pooler every transaction may
use another session. They are sent together with the first statement, which costs no round trip.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.backends.base.base import BaseDatabaseWrapper

_IDLE = 0  # libpq's PQTRANS_IDLE: no transaction was begun


class StatementLimits(NamedTuple):
    """How many seconds a statement may wait for a lock or run, and a transaction may be idle."""

    lock: float
    statement: float
    idle: float


def limit_connection(
    connection: BaseDatabaseWrapper, limits: StatementLimits, on_progress: Callable[[], None]
) -> None:
    """Apply the limits to this thread's connection to a database, also after a reconnect.

    ``on_progress`` is called when a statement begins and when it ends.
    """
    limiter = _LIMITERS.get(connection.vendor)
    if limiter is not None:
        connection.execute_wrappers.append(limiter(limits, on_progress))


def is_limited(connection: BaseDatabaseWrapper) -> bool:
    """Whether this connection's statements give up when they wait too long for a lock."""
    return any(isinstance(wrapper, _Limiter) for wrapper in connection.execute_wrappers)


class _Limiter(ABC):
    """Runs the statements of one connection within the limits."""

    def __init__(self, limits: StatementLimits, on_progress: Callable[[], None]) -> None:
        self.limits = limits
        self._on_progress = on_progress

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,  # noqa: FBT001 - Django calls it so
        context: dict[str, Any],
    ) -> Any:
        self._on_progress()
        try:
            return self._execute(execute, sql, params, many, context)
        finally:
            self._on_progress()

    @abstractmethod
    def _execute(
        self, execute: Callable[..., Any], sql: str, params: Any, many: Any, context: dict[str, Any]
    ) -> Any: ...


class _OfSession(_Limiter):
    """For databases where a session belongs to one client: set once for each connection."""

    def __init__(self, limits: StatementLimits, on_progress: Callable[[], None]) -> None:
        super().__init__(limits, on_progress)
        self._prepared: Any = None

    def _execute(
        self, execute: Callable[..., Any], sql: str, params: Any, many: Any, context: dict[str, Any]
    ) -> Any:
        connection = context["connection"]
        if self._prepared is not connection.connection:
            self._prepared = connection.connection  # first, as Django may query the server itself
            try:
                for statement in self._session(connection):
                    execute(statement, None, False, context)  # noqa: FBT003 - Django calls it so
            except BaseException:
                self._prepared = None
                raise
        return execute(sql, params, many, context)

    @abstractmethod
    def _session(self, connection: Any) -> list[str]:
        """The statements that set a connection's limits."""


class _OnPostgreSQL(_Limiter):
    def __init__(self, limits: StatementLimits, on_progress: Callable[[], None]) -> None:
        super().__init__(limits, on_progress)
        alone = {"statement_timeout": limits.statement, "lock_timeout": limits.lock}
        self._alone = _set_local(alone)
        # A parent that is frozen inside a transaction must not keep its locks.
        self._first = _set_local(alone | {"idle_in_transaction_session_timeout": limits.idle})

    def _execute(
        self, execute: Callable[..., Any], sql: str, params: Any, many: Any, context: dict[str, Any]
    ) -> Any:
        connection = context["connection"]
        if connection.connection.info.transaction_status != _IDLE:
            return execute(sql, params, many, context)
        settings = self._alone if connection.get_autocommit() else self._first
        if many or not _takes_several_statements(connection, context["cursor"]):
            if not connection.get_autocommit():
                execute("".join(settings), None, False, context)  # noqa: FBT003 - as above
            return execute(sql, params, many, context)
        # Statements that are sent together form one transaction if none was begun.
        result = execute("".join(settings) + sql, params, many, context)
        if _returns_each_result():
            for _ in settings:
                context["cursor"].nextset()
        return result


class _OnMySQL(_OfSession):
    def _session(self, connection: Any) -> list[str]:
        lock = max(round(self.limits.lock), 1)
        values: dict[str, float] = {"innodb_lock_wait_timeout": lock, "lock_wait_timeout": lock}
        if connection.mysql_is_mariadb:
            values |= {
                "max_statement_time": self.limits.statement,
                "idle_transaction_timeout": max(round(self.limits.idle), 1),
            }
        else:  # MySQL can limit SELECT statements only
            values["max_execution_time"] = round(self.limits.statement * 1000)
        return ["SET SESSION " + ", ".join(f"{name} = {value}" for name, value in values.items())]


class _OnSQLite(_OfSession):
    """SQLite has a single lock, and its driver waits for it."""

    def _session(self, connection: Any) -> list[str]:
        configured = float(connection.settings_dict["OPTIONS"].get("timeout", 5.0))
        return [f"PRAGMA busy_timeout = {round(min(configured, self.limits.statement) * 1000)}"]


_LIMITERS: dict[str, type[_Limiter]] = {
    "postgresql": _OnPostgreSQL,
    "mysql": _OnMySQL,
    "sqlite": _OnSQLite,
}


def _set_local(seconds: dict[str, float]) -> list[str]:
    return [f"SET LOCAL {name} = {round(value * 1000)};" for name, value in seconds.items()]


def _takes_several_statements(connection: Any, cursor: Any) -> bool:
    """Not with server-side binding of parameters, nor in the query of a named cursor."""
    options = connection.settings_dict["OPTIONS"]
    return not options.get("server_side_binding") and not getattr(cursor.cursor, "name", None)


def _returns_each_result() -> bool:
    """Psycopg 3 has a result for each statement, psycopg2 the last one alone."""
    from django.db.backends.postgresql.psycopg_any import (  # noqa: PLC0415 - the driver may be absent
        is_psycopg3,
    )

    return bool(is_psycopg3)
