"""Lists that can be filtered and sorted only by what they offer.

In Django, a URL can filter a list by every column of its table, also by parts of texts and by
patterns. A user with access to a list could so find out, one letter at a time, what the page
hides: payloads, results, signatures.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import build_q_object_from_lookup_parameters, get_fields_from_path
from django.contrib.admin.views.main import ERROR_FLAG, ChangeList
from django.db import DataError
from django.utils import timezone
from django.utils.dateparse import parse_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from django.db.models import QuerySet
    from django.http import HttpRequest

    AnyAdmin = admin.ModelAdmin[Any]
else:
    AnyAdmin = admin.ModelAdmin  # generic in its type stubs only


class OfferedList(ChangeList):
    """A list that answers every URL: filters that the database cannot handle are refused."""

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(request, *args, **kwargs)
        except (OverflowError, ValueError, DataError) as problem:
            # Such as a NUL for PostgreSQL. The error comes from the query itself, where Django
            # does not catch it.
            if not set(request.GET) - {ERROR_FLAG}:
                raise
            raise IncorrectLookupParameters(problem) from problem

    def get_ordering_field(self, field_name: Any) -> Any:
        """The column to sort by; None if the list does not offer it for sorting."""
        offered = field_name in (self.sortable_by or ())
        return super().get_ordering_field(field_name) if offered else None


class OfferingAdmin(AnyAdmin):
    """A page whose list can be filtered only by its filters and its search."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return OfferedList

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """A row by its key, also with an empty ``_to_field`` in the URL."""
        return super().get_object(request, object_id, from_field or None)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Whether a filter of the list takes this parameter of the URL."""
        return request is not None and lookup in set(_parameters(self, request))


def _parameters(page: AnyAdmin, request: HttpRequest) -> Iterator[str]:
    for offered in page.get_list_filter(request):
        if isinstance(offered, type) and issubclass(offered, admin.SimpleListFilter):
            yield str(offered.parameter_name)  # an instance would query its choices
        else:
            yield from _made(offered, page, request).expected_parameters()
    if page.date_hierarchy:
        yield from (f"{page.date_hierarchy}__{part}" for part in ("year", "month", "day"))


def _made(offered: Any, page: AnyAdmin, request: HttpRequest) -> Any:
    """A filter, instantiated as Django does for a list."""
    if isinstance(offered, type):
        return offered(request, {}, page.model, page)
    name, make = (
        offered if isinstance(offered, tuple | list) else (offered, admin.FieldListFilter.create)
    )
    field = get_fields_from_path(page.model, name)[-1]
    return make(field, request, {}, page.model, page, field_path=name)


class MomentFilter(admin.DateFieldListFilter):
    """Django's date filter, refusing moments that no database can store."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        try:
            moments: dict[str, Any] = {
                name: [moment_of(text) for text in texts]
                for name, texts in dict[str, Any](self.used_parameters).items()
            }
        except ValueError as problem:
            raise IncorrectLookupParameters(problem) from problem
        return queryset.filter(build_q_object_from_lookup_parameters(moments))


def moment_of(text: str) -> datetime:
    """A moment in a URL; raises ValueError for an invalid or extreme one."""
    moment = parse_datetime(text)
    if moment is None:
        raise ValueError(f"{text!r} is no moment")
    if settings.USE_TZ and timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is too far away") from None
    if not MINYEAR < moment.year < MAXYEAR:  # in another time zone it may overflow
        raise ValueError(f"{text!r} is too far away")
    return moment if settings.USE_TZ else timezone.make_naive(moment)
