"""Base classes of the admin's pages, and the cells of their tables.

The pages are read-only, show every character of a text, and stay quick on large tables.
"""

from __future__ import annotations

import json
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import CharField, JSONField, TextField, UUIDField
from django.http import HttpResponse, HttpResponseNotAllowed, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.timesince import timesince, timeuntil

from django_jobs.admin.lists import OfferingAdmin
from django_jobs.admin.payloads import shortened, shown
from django_jobs.backends.home import jobs_database
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.db.clock import for_people
from django_jobs.ids import parse_id
from django_jobs.routers import database_of, job_databases
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from django.contrib.admin.models import LogEntry
    from django.contrib.admin.views.main import ChangeList
    from django.contrib.auth.models import AnonymousUser, User
    from django.db.models import Field, Model, QuerySet
    from django.http import HttpRequest

    AnyPaginator = Paginator[Any]
else:
    AnyPaginator = Paginator  # generic in its type stubs only


# The database that a page reads, for jobs in several databases.

PARAMETER = "database"


def all_databases() -> tuple[str, ...]:
    """The aliases of the databases with jobs; the first is the default of a page."""
    return job_databases(get_settings())


def chosen_database(request: HttpRequest) -> str:
    """The database that a list is narrowed to, also on the pages linked from it."""
    alias = request.GET.get(PARAMETER)
    if alias is None:
        alias = QueryDict(request.GET.get("_changelist_filters", "")).get(PARAMETER)
    aliases = all_databases()
    return alias if alias in aliases else aliases[0]


def narrowed_to(backend: str) -> dict[str, str]:
    """The parameters of a link to a list that shows the rows of a backend."""
    config = get_settings().backends.get(backend)
    alias = None if config is None else database_of(config)
    return {} if alias is None else place(alias)


def place(alias: str) -> dict[str, str]:
    """The parameters that name a database in a URL; none for the default one."""
    return {} if alias == all_databases()[0] else {PARAMETER: alias}


def within(url: str, alias: str) -> str:
    """A URL with its database: numbers of rows repeat from database to database."""
    query = urlencode(place(alias))
    return f"{url}{'&' if '?' in url else '?'}{query}" if query else url


def home_of(row: Model) -> str:
    """The database that a row was read from."""
    return row._state.db or all_databases()[0]  # noqa: SLF001 - there is no public name for it


def database_note(alias: str) -> str:
    """The database as a sentence for the admin's log, which stores only a row's number."""
    return f" In the database {alias}." if place(alias) else ""


def jobs_url(backend: str, queue: str, state: str = "") -> str:
    """The URL of the list of a queue's live jobs; empty where they cannot be listed."""
    config = get_settings().backends.get(backend)
    query = {"state": state} if state else {}
    if config is None or database_of(config) is not None:
        query |= {"queue": queue, **narrowed_to(backend)}
        return f"{reverse('admin:django_jobs_job_changelist')}?{urlencode(query)}"
    if not backends[backend].capabilities.peek:
        return ""
    query = {"backend": backend, "queue": queue, **query}
    return f"{reverse('admin:django_jobs_job_broker')}?{urlencode(query)}"


class DatabaseFilter(admin.SimpleListFilter):
    """Offers the databases with jobs if there are several; a list is one query, so it shows one."""

    title = "database"
    parameter_name = PARAMETER

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        aliases = all_databases()
        return [(alias, alias) for alias in aliases] if len(aliases) > 1 else []

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        chosen = self.value() or all_databases()[0]
        for alias, label in self.lookup_choices:
            yield {
                "selected": alias == chosen,
                "query_string": changelist.get_query_string({PARAMETER: alias}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset  # the page's get_queryset has chosen the database


# Read-only pages.

COUNTED_AT_MOST = 10_000
RECENT_ROWS = 2_000


class CappedPaginator(AnyPaginator):
    """Counts only the pages that are worth turning; a COUNT of millions takes seconds."""

    limit = COUNTED_AT_MOST

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: self.limit].count())


class LegibleAdmin(OfferingAdmin):
    """Pages that make every character of a text from a table visible."""

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return self._legible(super().get_list_display(request))

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        sets = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return list(sets)
        return [(title, {**of, "fields": self._legible(of["fields"])}) for title, of in sets]

    def _legible(self, columns: Any) -> list[Any]:
        fields = {field.name: field for field in self.opts.concrete_fields}
        return [
            _text_of(field) if isinstance(field, CharField | TextField | JSONField) else name
            for name in columns
            for field in [fields.get(name)]
        ]

    def page_of(
        self, request: HttpRequest, template: str, context: dict[str, Any], **as_it_is: Any
    ) -> TemplateResponse:
        """A page of our own in the site's frame. ``as_it_is``: what a form sends back."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "has_view_permission": True,
            **shown(context),
            **as_it_is,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"admin/django_jobs/{template}", context)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> LogEntry:
        return super().log_change(request, obj, shown(message))

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> LogEntry:
        return super().log_addition(request, obj, shown(message))


@cache
def _text_of(field: Field[Any, Any]) -> Callable[[Model], str]:
    """A callable column for the admin that shows a text or JSON field."""

    @admin.display(description=field.verbose_name, ordering=field.name)
    def text(row: Model) -> str:
        value = getattr(row, field.attname)
        if isinstance(field, JSONField):
            return "-" if value is None else printable(json.dumps(value, ensure_ascii=False))
        return printable(dict(field.flatchoices).get(value, value) or "") or "-"

    text.__name__ = field.name
    return text


class ReadOnlyAdmin(LegibleAdmin):
    """A read-only table from the database that carries the jobs."""

    actions_on_top = True
    list_per_page = 50
    paginator = CappedPaginator
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by: ClassVar[tuple[str, ...]] = ()
    hidden: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()
    in_each_database: ClassVar[bool] = False
    as_cards: ClassVar[bool] = False

    class Media:
        css = {"all": ("django_jobs/admin.css",)}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        alias = chosen_database(request) if self.in_each_database else jobs_database()
        return super().get_queryset(request).using(alias)

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        offered: list[Any] = list(super().get_list_filter(request))
        return [DatabaseFilter, *offered] if self.in_each_database else offered

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """A row of the chosen database; with a UUID as its key, of any database."""
        if "\0" in object_id:
            return None  # no key contains NUL, and PostgreSQL rejects it
        row = super().get_object(request, object_id, from_field)
        unique = isinstance(self.opts.pk, UUIDField)
        if row is not None or not (self.in_each_database and unique):
            return row
        key = parse_id(object_id)
        rows = super().get_queryset(request).filter(pk=key)
        candidates = (rows.using(alias).first() for alias in (all_databases() if key else ()))
        return next((row for row in candidates if row is not None), None)

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        columns = [field.name for field in self.opts.concrete_fields]
        return (*(name for name in columns if name not in self.hidden), *self.derived)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> tuple[str, ...]:
        return self.get_fields(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def looked_at(self, request: HttpRequest, object_id: str) -> Any:
        """The row of a page, or the response if there is nothing to show."""
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        row = self.row_of(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        return row or self.not_there(request, object_id)

    def row_of(self, request: HttpRequest, key: str) -> Any:
        """The row of a page, if it exists."""
        return self.get_object(request, key)

    def not_there(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Report a missing row, and redirect to the index of the admin."""
        return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return] # not in the stubs


class DetailAdmin(ReadOnlyAdmin):
    """A table whose rows have pages of our own."""

    detail_page: ClassVar[str]

    def detail(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The context of a row's page."""
        raise NotImplementedError  # a ModelAdmin cannot be an ABC as well

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.looked_at(request, object_id)
        if isinstance(row, HttpResponse):
            return row
        context = {**self.detail(request, row), **(extra_context or {})}
        return self.page_of(request, self.detail_page, context)


def recent_values(name: str) -> type[admin.SimpleListFilter]:
    """A filter that offers the values of a column in the latest rows only."""

    class RecentValuesFilter(admin.SimpleListFilter):
        title = name
        parameter_name = name

        def lookups(
            self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
        ) -> list[tuple[str, str]]:
            latest = model_admin.get_queryset(request).order_by(*model_admin.ordering or ("-pk",))
            values = set(latest.values_list(name, flat=True)[:RECENT_ROWS])
            if self.value():
                values.add(self.value())
            texts = sorted(value for value in values if isinstance(value, str))
            return [(value, printable(value)) for value in texts]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            value = self.value()
            return queryset if value is None else queryset.filter(**{name: value})

    return RecentValuesFilter


def may_view_payload(user: User | AnonymousUser) -> bool:
    """Whether a user may see the payloads and results of jobs."""
    return user.has_perm("django_jobs.view_payload")


# Cells of tables. Every text that comes from a job is escaped.

NOTHING = "–"
A_MOMENT = 60


def two_lines(above: str, below: str, title: str = "") -> str:
    """A cell of two lines. ``title``: the full text, where the first line shortens it."""
    return format_html(
        '<span class="dj-main" title="{}">{}</span> <span class="dj-where">{}</span>',
        printable(title or above),
        printable(above),
        printable(below),
    )


def handler_cell(handler: str) -> str:
    """A cell with the function of a handler, and its module below."""
    module, _, function = handler.rpartition(".")
    return two_lines(function, module, handler)


def moment_cell(moment: datetime | None) -> str:
    """A cell with a moment, and its distance from now below."""
    if moment is None:
        return NOTHING
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return two_lines(date_format(local, "j M, H:i"), away(moment), moment.isoformat(" ", "seconds"))


def away(moment: datetime) -> str:
    """The distance of a moment from now, in its largest unit."""
    now = timezone.now()
    if abs((moment - now).total_seconds()) < A_MOMENT:
        return "just now"
    if moment > now:
        return f"in {timeuntil(moment, now, depth=1)}"
    return f"{timesince(moment, now, depth=1)} ago"


def error_text(error_type: str, message: str) -> str:
    """An error in one short line."""
    kind = shortened(error_type.rpartition(".")[2])
    return ": ".join(filter(None, (kind, shortened(message)))) or NOTHING


def badge(word: str) -> str:
    """A word in a coloured frame."""
    return format_html('<span class="dj-badge dj-{}">{}</span>', printable(word), printable(word))


def moment_of(microseconds: int | None) -> datetime | None:
    """A moment on the store's clock as a datetime in the site's time zone."""
    return None if microseconds is None else for_people(microseconds)


def in_full(moment: datetime | None) -> str:
    """A moment in the site's format, with its time zone."""
    if moment is None:
        return NOTHING
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    # Other times on the same page may be in UTC, and name it.
    return f"{date_format(local, 'DATETIME_FORMAT')} {date_format(local, 'T')}"
