"""What a database says it did for a statement, in one shape for every vendor."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

_EXPLAIN = {
    "postgresql": "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ",
    "mysql": "ANALYZE FORMAT=JSON ",
    "sqlite": "EXPLAIN QUERY PLAN ",
}


@dataclass
class Plan:
    """``rows``: how many were read, filtered ones included; SQLite does not count them.

    ``covered``: whether indexes alone were read, and no row of the table itself.
    """

    sql: str
    text: str
    indexes: set[str] = field(default_factory=set)
    rows: int = 0
    sorted_rows: int = 0
    scans: bool = False
    covered: bool = True

    def __str__(self) -> str:
        where = self.sql.partition(" WHERE ")[2][:160]
        seen = f"rows {self.rows}, sorted {self.sorted_rows}"
        return f"{self.sql[:6]} … WHERE {where}\n    {sorted(self.indexes)}, {seen}"


def explain(connection: BaseDatabaseWrapper, sql: str, params: Any) -> Plan:
    """Run a statement for its plan. An UPDATE is really made: roll it back."""
    with connection.cursor() as cursor:
        cursor.execute(_EXPLAIN[connection.vendor] + sql, params)
        rows = cursor.fetchall()
    return {"postgresql": _postgresql, "mysql": _mariadb, "sqlite": _sqlite}[connection.vendor](
        sql, rows
    )


def _postgresql(sql: str, rows: list[Any]) -> Plan:
    (document,) = rows[0]
    document = json.loads(document) if isinstance(document, str) else document
    plan = Plan(sql, json.dumps(document, indent=1))
    for node in _walk(document):
        kind = node.get("Node Type", "")
        if "Index Name" in node:
            plan.indexes.add(node["Index Name"])
        # A bitmap counts index entries, those of rolled-back versions too; the rows that
        # they lead to are counted where the heap is read. What a statement keeps for itself
        # it has read before.
        if "Scan" in kind and kind not in {"Bitmap Index Scan", "CTE Scan"}:
            read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            plan.rows += int(read * node["Actual Loops"])
        plan.scans |= kind == "Seq Scan"
        plan.covered &= kind not in {"Seq Scan", "Index Scan", "Bitmap Heap Scan"}
        if "Sort" in kind:
            plan.sorted_rows += max(int(node["Plans"][0]["Actual Rows"]), 1)
    return plan


def _mariadb(sql: str, rows: list[Any]) -> Plan:
    document = json.loads(rows[0][0])
    plan = Plan(sql, json.dumps(document, indent=1))
    for node in _walk(document):
        if "access_type" in node:
            plan.indexes.add(node.get("key", "none"))
            plan.rows += int((node.get("r_rows") or 0) * (node.get("r_loops") or 0))
            # What a query made for itself has no index; it counts as rows.
            own = str(node.get("table_name", "")).startswith("<")
            plan.scans |= node["access_type"] == "ALL" and not own
            in_index = node.get("using_index") or node.get("using_index_for_group_by")
            plan.covered &= own or bool(in_index)
        if "filesort" in node:
            plan.sorted_rows += int(node["filesort"].get("r_output_rows") or 0)
        assert "temporary_table" not in node, plan.text
    return plan


def _sqlite(sql: str, rows: list[Any]) -> Plan:
    text = "\n".join(str(row[-1]) for row in rows)
    plan = Plan(sql, text, sorted_rows=text.count("USE TEMP B-TREE"))
    for line in text.splitlines():
        _, using, index = line.partition("INDEX ")
        if using:
            plan.indexes.add(index.split()[0])
        plan.scans |= line.startswith("SCAN django_jobs") and not using
        reads = line.startswith(("SCAN django_jobs", "SEARCH django_jobs"))
        plan.covered &= not reads or "COVERING INDEX" in line
    return plan


def _walk(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _walk(child)
    elif isinstance(node, list):
        for child in node:
            yield from _walk(child)
