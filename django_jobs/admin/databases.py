"""In which database a page looks, where jobs are in several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import QueryDict
from django.urls import reverse
from django.utils.http import urlencode

from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.admin.views.main import ChangeList
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest

PARAMETER = "database"


def all_databases() -> tuple[str, ...]:
    """Those that hold jobs; the first is the one to look into unless told otherwise."""
    return job_databases(get_settings())


def asked_for(request: HttpRequest) -> str:
    """The database that a list was narrowed to, also on the pages that it leads to."""
    given = request.GET.get(PARAMETER)
    if given is None:
        given = QueryDict(request.GET.get("_changelist_filters", "")).get(PARAMETER)
    known = all_databases()
    return given if given in known else known[0]


def narrowed_to(backend: str) -> dict[str, str]:
    """What a link to a list says, so that the rows of a backend are in it."""
    config = get_settings().backends.get(backend)
    alias = None if config is None else database_of(config)
    return {} if alias is None else place(alias)


def place(alias: str) -> dict[str, str]:
    """What the address of a page says of the database it is about."""
    return {} if alias == all_databases()[0] else {PARAMETER: alias}


def within(url: str, alias: str) -> str:
    """An address with its database: what is numbered has the same numbers in each."""
    told = urlencode(place(alias))
    return f"{url}{'&' if '?' in url else '?'}{told}" if told else url


def home_of(row: Model) -> str:
    """The database that a row was read from."""
    return row._state.db or all_databases()[0]  # noqa: SLF001 - it has no other name


def told_in(alias: str) -> str:
    """What an entry of the admin's log says of the database: the log has but the number."""
    return f" In the database {alias}." if place(alias) else ""


def jobs_url(backend: str, queue: str, state: str = "") -> str:
    """Where the live jobs of a queue are listed; nothing where nobody can list them."""
    config = get_settings().backends.get(backend)
    told = {"state": state} if state else {}
    if config is None or database_of(config) is not None:
        told |= {"queue": queue, **narrowed_to(backend)}
        return f"{reverse('admin:django_jobs_job_changelist')}?{urlencode(told)}"
    if not backends[backend].capabilities.peek:
        return ""
    told = {"backend": backend, "queue": queue, **told}
    return f"{reverse('admin:django_jobs_job_broker')}?{urlencode(told)}"


class DatabaseFilter(admin.SimpleListFilter):
    """Offered where there is a choice; never all at once, for a list is one query."""

    title = "database"
    parameter_name = PARAMETER

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        known = all_databases()
        return [(alias, alias) for alias in known] if len(known) > 1 else []

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        chosen = self.value() or all_databases()[0]
        for alias, label in self.lookup_choices:
            yield {
                "selected": alias == chosen,
                "query_string": changelist.get_query_string({PARAMETER: alias}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset  # the page has chosen it before
