"""The filters of the list of dead letters, and their translation for a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.views.main import ALL_VAR, ERROR_FLAG, ORDER_VAR, PAGE_VAR

from django_jobs.admin.base import PARAMETER, RECENT_ROWS, error_text, may_view_payload
from django_jobs.admin.lists import OfferedList, moment_of
from django_jobs.operations.dead_letters import Matching, groups
from django_jobs.operations.search import search
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from django.contrib.admin.views.main import ChangeList
    from django.db.models import QuerySet
    from django.http import HttpRequest, QueryDict

    from django_jobs.models import FailedJob

RESOLUTIONS = {"": "open", "replayed": "replayed", "discarded": "discarded"}
GROUPS_OFFERED = 12
OFFERED = ("queue", "handler", "reason")
LONGEST_TEXT = 200
_RUN_BY = {*OFFERED, "fingerprint", "failed_at__gte", "failed_at__lt", "q", "resolution"}
_NO_MATTER = {PAGE_VAR, ORDER_VAR, ALL_VAR, ERROR_FLAG, PARAMETER}


class LetterList(OfferedList):
    """Finds the keys of a page first, then reads the dead letters with these keys.

    Indexes cover all columns that a list is filtered and ordered by, so finding the keys does
    not read the table. For whole rows PostgreSQL prefers the index in whose order the rows lie
    in the table, and reads very many rows that do not match.
    """

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows: Any = self.result_list
        page = self.root_queryset.filter(pk__in=list(rows.values_list("pk", flat=True)))
        self.result_list = page.order_by(*self.get_ordering(request, page))


class ResolutionFilter(admin.SimpleListFilter):
    """Shows open dead letters by default; a search covers all of them."""

    title = "resolution"
    parameter_name = "resolution"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        self.default = "all" if request.GET.get("q") else "open"
        return [(word, word.capitalize()) for word in (*RESOLUTIONS.values(), "all")]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        chosen = self.value() or self.default
        for word, label in self.lookup_choices:
            yield {
                "selected": word == chosen,
                "query_string": changelist.get_query_string({self.parameter_name: word}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[FailedJob]) -> QuerySet[FailedJob]:
        chosen = self.value() or self.default
        if chosen == "all":
            return queryset
        return queryset.filter(resolution="" if chosen == "open" else chosen)


class OfferedFilter(admin.SimpleListFilter):
    """Offers the values in the latest rows; one query serves all filters of this kind."""

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        place = OFFERED.index(str(self.parameter_name))
        values = {row[place] for row in _latest(request, model_admin)}
        if chosen := self.value():
            values.add(chosen)
        return [(value, printable(value)) for value in sorted(values)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else queryset.filter(**{str(self.parameter_name): value})


def offered(name: str) -> type[OfferedFilter]:
    """A filter for one of the columns in OFFERED."""
    return type("Offered", (OfferedFilter,), {"title": name, "parameter_name": name})


def _latest(request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] | None = getattr(request, "_dj_latest", None)
    if rows is None:
        latest = model_admin.get_queryset(request).order_by("-failed_at", "-pk")
        rows = list(set(latest.values_list(*OFFERED)[:RECENT_ROWS]))
        request._dj_latest = rows  # type: ignore[attr-defined]  # noqa: SLF001 - ours, for this request
    return rows


class GroupFilter(admin.SimpleListFilter):
    """Offers the errors with the most open dead letters."""

    title = "error group"
    parameter_name = "fingerprint"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        largest = groups(limit=GROUPS_OFFERED, using=model_admin.get_queryset(request).db)
        labels = {group.fingerprint: _label(group) for group in largest}
        if chosen := self.value():
            labels.setdefault(chosen, printable(chosen))
        return list(labels.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else queryset.filter(fingerprint=value)


def _label(group: Any) -> str:
    function = group.handler.rpartition(".")[2]
    what = error_text(group.error_type, "") if group.error_type else group.reason
    return printable(f"{what} in {function} ({group.open:,})")


def matching_of(query: QueryDict, alias: str, request: HttpRequest) -> Matching:
    """The dead letters of a list with these filters, for a run.

    Raises ValueError for a filter that a run does not have: the run must not cover more than
    the list showed.
    """
    if unknown := set(query) - _RUN_BY - _NO_MATTER:
        raise ValueError(f"a run cannot be narrowed by {', '.join(sorted(unknown))}")
    if impossible := [name for name in sorted(query) if "\0" in query[name]]:
        raise ValueError(f"{impossible[0]} is {query[impossible[0]]!r}, which no column holds")
    columns: dict[str, Any] = {name: query.get(name) or None for name in (*OFFERED, "fingerprint")}
    since, until = _moment(query.get("failed_at__gte")), _moment(query.get("failed_at__lt"))
    matching = Matching(**columns, since=since, until=until)
    if query.get("resolution", "open") in {"replayed", "discarded"}:
        return replace(matching, keys=())  # a run takes open dead letters only
    text = query.get("q", "").strip()[:LONGEST_TEXT]
    if not text:
        return matching
    result = search(matching.letters(alias), text, payloads=may_view_payload(request.user))
    if not result.fingerprint:
        return replace(matching, keys=tuple(result.keys))
    if matching.fingerprint not in {None, result.fingerprint}:
        return replace(matching, keys=())
    return replace(matching, fingerprint=result.fingerprint)


def _moment(text: str | None) -> datetime | None:
    return moment_of(text) if text else None
