"""PostgreSQL arrays as text in a single parameter: a fraction of the cost of adapting a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import F, Lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler


def plain_array(items: Iterable[str]) -> str:
    """An array of items that need no quotes: ids, hex, numbers, NULL."""
    return "{" + ",".join(items) + "}"


def quoted_array(items: Iterable[str]) -> str:
    """An array of any texts; raises ValueError for a NUL, which a text column cannot store."""
    texts = list(items)
    if not texts:
        return "{}"
    joined = "\x00".join(texts)
    if joined.count("\x00") != len(texts) - 1:
        raise ValueError("a text holds a NUL character, which PostgreSQL cannot store")
    escaped = joined.replace("\\", "\\\\").replace('"', '\\"').replace("\x00", '","')
    return '{"' + escaped + '"}'


class Among(Lookup):
    """Whether a column of text is one of these: a condition for filter()."""

    prepare_rhs = False

    def __init__(self, column: str, texts: Sequence[str]) -> None:
        super().__init__(F(column), list(texts))

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[str | int, ...]]:
        column, _ = self.process_lhs(compiler, connection)
        sql, params = self.sql(connection, column, self.rhs)
        return sql, tuple(params)

    @staticmethod
    def sql(
        connection: BaseDatabaseWrapper, column: str, texts: Sequence[str]
    ) -> tuple[str, list[str]]:
        """The condition as SQL and parameters."""
        if connection.vendor == "postgresql":
            return f"{column} = ANY (%s::text[])", [quoted_array(texts)]
        return f"{column} IN ({', '.join(['%s'] * len(texts))})", list(texts)
