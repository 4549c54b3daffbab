"""Finding dead letters by a word: by what names them, and by what stands in them.

A name (the id of a job, a trace id, a fingerprint, or how one begins) is looked up in an
index, whatever the size of the table. Text has no index, so it is looked for among the
latest dead letters only. Many a word may be either ("404", "dead"), so both are looked for,
unless it is the whole name of something. What is redacted when shown is not found either.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connections
from django.db.models import Q

from django_jobs.ids import parse_id
from django_jobs.models import FailedJob
from django_jobs.operations.replay import DISCARDED, REPLAYED
from django_jobs.redaction import redacted

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

TEXT_WINDOW = 3_000
"""Among how many of the latest dead letters a text is looked for."""
FOUND_AT_MOST = 500
READ_AT_ONCE = 1_000
MOST_WORDS = 5
RESOLUTIONS = ("", REPLAYED, DISCARDED)
FINGERPRINT_DIGITS = 32
_ID_DIGITS = 32
_SHORTEST_PREFIX = 8
_LONGEST_NUMBER = 18
_HEX = frozenset("0123456789abcdef")
_READ = ("error_type", "error_message", "handler", "name")


@dataclass(frozen=True, slots=True)
class Found:
    """``keys`` are those of dead letters, unless all of a ``fingerprint`` are meant.

    ``named`` is how many of them a name led to. ``by_text``: text was looked for as well.
    ``since`` is how far back that went, when it did not go back to the first one; ``more``,
    whether only the first ones are told.
    """

    keys: list[int]
    fingerprint: str = ""
    named: int = 0
    by_text: bool = False
    since: datetime | None = None
    more: bool = False

    @property
    def wanted(self) -> Q:
        """What narrows dead letters to those found."""
        return Q(fingerprint=self.fingerprint) if self.fingerprint else Q(pk__in=self.keys)


def search(letters: QuerySet[FailedJob], text: str, *, payloads: bool) -> Found:
    """Those of some dead letters that a text names, and those that hold it.

    ``payloads``: whether to look into what jobs were given, as it is shown.
    """
    words = text.replace("\x00", " ").split()[:MOST_WORDS]
    if not words:
        return Found([])
    whole = words[0].lower()
    if len(words) == 1 and _is_fingerprint(letters.db, whole):
        return Found([], fingerprint=whole)
    named, more = _named(letters, words)
    if named and any(parse_id(word) for word in words):
        return _told(named, len(named), more=more)
    since, holding = _holding(letters, words, payloads=payloads)
    keys = list(dict.fromkeys([*named, *holding]))
    return replace(_told(keys, len(named), more=more), by_text=True, since=since)


def _told(keys: list[int], named: int, *, more: bool) -> Found:
    more = more or len(keys) > FOUND_AT_MOST
    return Found(keys[:FOUND_AT_MOST], named=min(named, FOUND_AT_MOST), more=more)


def _is_fingerprint(alias: str, word: str) -> bool:
    if len(word) != FINGERPRINT_DIGITS or set(word) - _HEX:
        return False
    known = FailedJob.objects.using(alias).filter(resolution__in=RESOLUTIONS, fingerprint=word)
    return known.exists()


def _named(letters: QuerySet[FailedJob], words: list[str]) -> tuple[list[int], bool]:
    """The keys of those of some dead letters that all words name, and whether there may be more."""
    unordered = letters.order_by()
    keys: list[int] = []
    more = False
    # What all of them name is among what any of them names: one that names few tells them all.
    for first in words:
        keys, more = _named_by(unordered, first)
        if not more:
            break
    for word in words:
        if keys and word != first:
            any_way = Q(pk__in=[])
            for wanted in _ways(letters.db, word):
                any_way |= wanted
            both = unordered.filter(any_way, pk__in=keys)
            keys = list(both.values_list("pk", flat=True))
    return keys, more


def _named_by(unordered: QuerySet[FailedJob], word: str) -> tuple[list[int], bool]:
    """The keys of the first that a word names, and whether it names more of them."""
    found: dict[int, None] = {}
    more = False
    # One index at a time: of an OR over several, a planner may make a walk through the table.
    for wanted in _ways(unordered.db, word):
        rows = unordered.filter(wanted).values_list("pk", flat=True)
        keys = list(rows[: FOUND_AT_MOST + 1])
        more = more or len(keys) > FOUND_AT_MOST
        found.update(dict.fromkeys(keys))
    return list(found), more


def _ways(alias: str, word: str) -> list[Q]:
    """What a word may be the name of."""
    ways = [begins(alias, "trace_id", word)]
    if word.isascii() and word.isdecimal() and len(word) <= _LONGEST_NUMBER:
        ways.append(Q(pk=int(word)))
    if job_id := parse_id(word):
        ways.append(Q(job_id=job_id))
    digits = word.replace("-", "").lower()
    if not digits or set(digits) - _HEX:
        return ways
    if _SHORTEST_PREFIX <= len(digits) < _ID_DIGITS:
        first, last = UUID(digits.ljust(_ID_DIGITS, "0")), UUID(digits.ljust(_ID_DIGITS, "f"))
        ways.append(Q(job_id__gte=first, job_id__lte=last))
    if word.lower() == digits:
        # Hexadecimal digits have the same order under every collation.
        ways.append(
            Q(resolution__in=RESOLUTIONS, fingerprint__gte=digits, fingerprint__lt=f"{digits}g")
        )
    return ways


def begins(alias: str, field: str, prefix: str) -> Q:
    """That an indexed text begins with another; by the index on every database."""
    exactly = Q(**{f"{field}__startswith": prefix})
    if connections[alias].vendor == "postgresql":
        return exactly  # its index is of a class made for it
    # SQLite and MariaDB read no index for the LIKE that Django writes, but for a range.
    last = f"{prefix}\U0010ffff"
    return exactly & Q(**{f"{field}__gte": prefix, f"{field}__lte": last})


def _holding(
    letters: QuerySet[FailedJob], words: list[str], *, payloads: bool
) -> tuple[datetime | None, list[int]]:
    """How far back was looked, and the keys of those that show all words to a person."""
    latest = letters.order_by("-failed_at", "-pk")
    since = latest.values_list("failed_at", flat=True)[TEXT_WINDOW - 1 : TEXT_WINDOW].first()
    window = latest if since is None else latest.filter(failed_at__gte=since)
    columns = (*_READ, "body") if payloads else _READ
    for word in words:
        window = window.filter(_in_any(columns, word))
    # The database looks through whole bodies, of which less is shown: of "queue" all of them
    # may be left, and none be found. So the keys first, then the texts until there are enough.
    keys = list(window.values_list("pk", flat=True)[:TEXT_WINDOW])
    shown: list[int] = []
    for start in range(0, len(keys), READ_AT_ONCE):
        rows = latest.filter(pk__in=keys[start : start + READ_AT_ONCE])
        texts = rows.values_list("pk", *columns)
        shown += [pk for pk, *said in texts if _shows(said, words, payloads=payloads)]
        if len(shown) > FOUND_AT_MOST:
            break
    return since, shown


def _in_any(columns: tuple[str, ...], word: str) -> Q:
    wanted = Q(pk__in=[])
    for column in columns:
        looked_for = json.dumps(word)[1:-1] if column == "body" else word
        wanted |= Q(**{f"{column}__icontains": looked_for})
    return wanted


def _shows(texts: list[str], words: list[str], *, payloads: bool) -> bool:
    """Whether what a person would see of a dead letter holds all words."""
    seen = texts
    if payloads:
        seen = [*texts[:-1], *_as_shown(texts[-1])]
    folded = "\n".join(seen).casefold()
    return all(word.casefold() in folded for word in words)


def _as_shown(body: str) -> list[str]:
    try:
        fields: Any = json.loads(body)
    except (ValueError, RecursionError):
        return []
    if not isinstance(fields, dict):
        return []
    told = [redacted(fields.get(name)) for name in ("payload", "meta")]
    # Written both ways, so that a word with a quote in it is found as it is and as it is shown.
    return [*(json.dumps(value, ensure_ascii=False) for value in told), *map(str, told)]
