"""What is changed of a query, be it one of Django's or the text of an SQL statement.

A condition that is left out, an order that is another, a lock that is not taken: such a
statement still runs, and whether it does its work only a test can tell.
"""

from __future__ import annotations

import ast
import re

NARROWING = {"filter": "exclude", "exclude": "filter"}
WITH_KEYWORDS = {*NARROWING, "update"}
LOOKUPS = {"lt": ["lte", "gte"], "lte": ["lt", "gt"], "gt": ["gte", "lte"], "gte": ["gt", "lt"]}

MARK = "[\ue000-\uf8ff]"  # stands for a value in the text
IS_SQL = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|FROM|AND|EXISTS|LIMIT)\b")
# A condition goes and its parameters stay, for the driver counts them.
CONDITION = re.compile(
    r"(?:(?<=WHERE )|(?<= AND ))[\w.:]+ (?:=|<=|>=|<|>) (?:ANY )?"
    r"(\([^()]*\)|[^\s()]+)(?= AND| ORDER| RETURNING|\)|$)"
)
ORDER = re.compile(r"(?<= ORDER BY )\w+, | ORDER BY \w+(?:, \w+)*")
IN_SQL = [
    (re.compile(before), after)
    for before, afters in {
        r" AND (?=NOT )": [" OR "],
        r"\bNOT (?!\w+ NULL)": [""],
        r" = (?!ANY)": [" <> "],
        r" <= ": [" < ", " > "],
        r" < ": [" <= ", " >= "],
        r" > ": [" >= ", " < "],
        r" \+ ": [" - "],
        r" - ": [" + "],
        r"\bmin\(": ["max("],
        r"\bgreatest\(": ["least("],
        r"\bfalse\b": ["true"],
        r" FOR UPDATE SKIP LOCKED": ["", " FOR UPDATE"],
        r" LIMIT (?:\d+|\{\w+\})": [""],
        r" ON CONFLICT DO NOTHING": [""],
        r" OR IGNORE": [""],
        r"\b(?<!\.)\d+\b(?!\.)": [lambda found: str(int(found[0]) + 1)],
    }.items()
    for after in afters
]


def of_queryset(node):
    """A queryset's call without one of its conditions, in another order, without its lock."""
    if not isinstance(node.func, ast.Attribute):
        return
    name, queryset = node.func.attr, node.func.value
    if name in NARROWING:
        other = ast.Attribute(queryset, NARROWING[name], ast.Load())
        yield ast.Call(other, node.args, node.keywords)
    if name in WITH_KEYWORDS:
        yield from _keywords(node)
    if name == "select_for_update" and node.keywords:
        yield queryset
    if name == "order_by":
        for index, field in enumerate(node.args):
            left = node.args[:index] + node.args[index + 1 :]
            yield _told(f"the same without {ast.unparse(field)}", ast.Call(node.func, left, []))


def _keywords(node):
    for index, keyword in enumerate(node.keywords):
        before, after = node.keywords[:index], node.keywords[index + 1 :]
        told = f"the same without {ast.unparse(keyword)}"
        yield _told(told, ast.Call(node.func, node.args, [*before, *after]))
        field, _, lookup = (keyword.arg or "").rpartition("__")
        for other in LOOKUPS.get(lookup, ()):
            changed = ast.keyword(f"{field}__{other}", keyword.value)
            told = f"the same with {changed.arg}"
            yield _told(told, ast.Call(node.func, node.args, [*before, changed, *after]))


def of_text(node):
    """The text of a statement with one thing in it changed."""
    text, values = _with_marks(node)
    if not IS_SQL.search(text):
        return
    for start, end, instead in _changes(text):
        part, other = (re.sub(MARK, "{…}", shown) for shown in (text[start:end], instead))
        changed = _without_marks(text[:start] + instead + text[end:], values)
        yield _told(f"the same with {other!r} for {part!r}", changed)


def is_statement(node):
    """Whether a literal, with or without values in it, is SQL."""
    return bool(IS_SQL.search(_with_marks(node)[0]))


def _changes(text):
    for found in CONDITION.finditer(text):
        yield *found.span(), f"({found[1]}) IS NOT NULL"
    for found in ORDER.finditer(text):
        yield *found.span(), ""
    for pattern, instead in IN_SQL:
        for found in pattern.finditer(text):
            yield *found.span(), instead(found) if callable(instead) else instead


def _with_marks(node):
    """The text with a mark in each value's place, and the values."""
    if isinstance(node, ast.Constant):
        return node.value, []
    values = [part for part in node.values if not isinstance(part, ast.Constant)]
    marks = iter(range(0xE000, 0xE000 + len(values)))
    parts = [
        part.value if isinstance(part, ast.Constant) else chr(next(marks)) for part in node.values
    ]
    return "".join(parts), values


def _without_marks(text, values):
    parts = re.split(f"({MARK})", text)
    if len(parts) == 1:
        return ast.Constant(text)
    return ast.JoinedStr(
        [
            values[ord(part) - 0xE000] if index % 2 else ast.Constant(part)
            for index, part in enumerate(parts)
        ]
    )


def _told(told, node):
    node.told = told
    return node
