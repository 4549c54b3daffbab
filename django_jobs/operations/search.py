"""Search dead letters by words: by what identifies them, and by the text in them.

An identifier (the id of a job, a trace id, a fingerprint, or the beginning of one) is looked up
in an index, whatever the size of the table. Text has no index, so only the latest dead letters
are searched for it. Many words can be either ("404", "dead"), so both are tried, unless a word
is a complete identifier. Text that is redacted when shown is not searched either.
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
"""How many of the latest dead letters are searched for a text."""
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
class SearchResult:
    """The ``keys`` of dead letters, or the ``fingerprint`` that all of them share.

    ``named``: how many were found by an identifier. ``by_text``: text was searched as well,
    back to ``since`` if not to the first dead letter. ``more``: there are further matches.
    """

    keys: list[int]
    fingerprint: str = ""
    named: int = 0
    by_text: bool = False
    since: datetime | None = None
    more: bool = False

    @property
    def wanted(self) -> Q:
        """The condition that selects the dead letters found."""
        return Q(fingerprint=self.fingerprint) if self.fingerprint else Q(pk__in=self.keys)


def search(letters: QuerySet[FailedJob], text: str, *, payloads: bool) -> SearchResult:
    """The dead letters that a text identifies, and those that contain it.

    ``payloads``: whether to search payloads too, as they are shown.
    """
    words = text.replace("\x00", " ").split()[:MOST_WORDS]
    if not words:
        return SearchResult([])
    whole = words[0].lower()
    if len(words) == 1 and _is_fingerprint(letters.db, whole):
        return SearchResult([], fingerprint=whole)
    named, more = _named(letters, words)
    if named and any(parse_id(word) for word in words):
        return _result(named, len(named), more=more)
    since, holding = _holding(letters, words, payloads=payloads)
    keys = list(dict.fromkeys([*named, *holding]))
    return replace(_result(keys, len(named), more=more), by_text=True, since=since)


def _result(keys: list[int], named: int, *, more: bool) -> SearchResult:
    more = more or len(keys) > FOUND_AT_MOST
    return SearchResult(keys[:FOUND_AT_MOST], named=min(named, FOUND_AT_MOST), more=more)


def _is_fingerprint(alias: str, word: str) -> bool:
    if len(word) != FINGERPRINT_DIGITS or set(word) - _HEX:
        return False
    letters = FailedJob.objects.using(alias).filter(resolution__in=RESOLUTIONS, fingerprint=word)
    return letters.exists()


def _named(letters: QuerySet[FailedJob], words: list[str]) -> tuple[list[int], bool]:
    """The keys of the dead letters that all words identify, and whether there may be more."""
    unordered = letters.order_by()
    keys: list[int] = []
    more = False
    # Matches of all words are among the matches of each: begin with a word that has few.
    for first in words:
        keys, more = _named_by(unordered, first)
        if not more:
            break
    for word in words:
        if keys and word != first:
            identified = Q(pk__in=[])
            for condition in _ways(letters.db, word):
                identified |= condition
            both = unordered.filter(identified, pk__in=keys)
            keys = list(both.values_list("pk", flat=True))
    return keys, more


def _named_by(unordered: QuerySet[FailedJob], word: str) -> tuple[list[int], bool]:
    """The keys of the first dead letters that a word identifies, and whether there are more."""
    matches: dict[int, None] = {}
    more = False
    # One index at a time: a planner may turn an OR over several into a scan of the table.
    for condition in _ways(unordered.db, word):
        rows = unordered.filter(condition).values_list("pk", flat=True)
        keys = list(rows[: FOUND_AT_MOST + 1])
        more = more or len(keys) > FOUND_AT_MOST
        matches.update(dict.fromkeys(keys))
    return list(matches), more


def _ways(alias: str, word: str) -> list[Q]:
    """The conditions for everything that a word may identify."""
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
    """The condition that a text column begins with a prefix, using its index on every database."""
    exactly = Q(**{f"{field}__startswith": prefix})
    if connections[alias].vendor == "postgresql":
        return exactly  # its index has an operator class for this
    # SQLite and MariaDB use the index for a range, but not for the LIKE that Django writes.
    last = f"{prefix}\U0010ffff"
    return exactly & Q(**{f"{field}__gte": prefix, f"{field}__lte": last})


def _holding(
    letters: QuerySet[FailedJob], words: list[str], *, payloads: bool
) -> tuple[datetime | None, list[int]]:
    """How far back was searched, and the keys of those that show all words to a person."""
    latest = letters.order_by("-failed_at", "-pk")
    since = latest.values_list("failed_at", flat=True)[TEXT_WINDOW - 1 : TEXT_WINDOW].first()
    window = latest if since is None else latest.filter(failed_at__gte=since)
    columns = (*_READ, "body") if payloads else _READ
    for word in words:
        window = window.filter(_in_any(columns, word))
    # The database searches whole bodies, of which only a part is shown: a word such as "queue"
    # may match all of them, and be shown by none. So read the keys first, then the texts until
    # there are enough.
    keys = list(window.values_list("pk", flat=True)[:TEXT_WINDOW])
    shown: list[int] = []
    for start in range(0, len(keys), READ_AT_ONCE):
        rows = latest.filter(pk__in=keys[start : start + READ_AT_ONCE])
        texts = rows.values_list("pk", *columns)
        shown += [pk for pk, *values in texts if _shows(values, words, payloads=payloads)]
        if len(shown) > FOUND_AT_MOST:
            break
    return since, shown


def _in_any(columns: tuple[str, ...], word: str) -> Q:
    wanted = Q(pk__in=[])
    for column in columns:
        pattern = json.dumps(word)[1:-1] if column == "body" else word
        wanted |= Q(**{f"{column}__icontains": pattern})
    return wanted


def _shows(texts: list[str], words: list[str], *, payloads: bool) -> bool:
    """Whether the parts of a dead letter that a person would see contain all words."""
    visible = [*texts[:-1], *_as_shown(texts[-1])] if payloads else texts
    folded = "\n".join(visible).casefold()
    return all(word.casefold() in folded for word in words)


def _as_shown(body: str) -> list[str]:
    try:
        fields: Any = json.loads(body)
    except (ValueError, RecursionError):
        return []
    if not isinstance(fields, dict):
        return []
    values = [redacted(fields.get(name)) for name in ("payload", "meta")]
    # Both spellings, so that a word with a quote in it is found as typed and as shown.
    return [*(json.dumps(value, ensure_ascii=False) for value in values), *map(str, values)]
