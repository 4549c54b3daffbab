"""What the address of an admin page may ask for: what the page offers, and nothing else."""

import uuid
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from django_jobs.models import AdminSchedule, FailedJob, JobAttempt, JobResult, Overview
from django_jobs.models import ScheduleState as Schedules
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db
SECRET = "hunter2"
PAGES = [
    page for model, page in admin.site._registry.items() if model._meta.app_label == "django_jobs"
]
LISTS = [page for page in PAGES if page.model not in {Overview, Schedules}]  # those have their own
OF_EACH = pytest.mark.parametrize("page", LISTS, ids=lambda page: page.opts.model_name)
OFFERED = {
    "failedjob": {"database", "resolution", "fingerprint", "queue", "handler", "reason",
                  "failed_at__gte", "failed_at__lt"},
    "job": {"database", "state", "queue", "handler"},
    "jobresult": {"database", "status", "queue", "handler"},
    "jobattempt": {"database", "outcome", "finished_at__gte", "finished_at__lt"},
    "operatorevent": {"database", "action", "actor", "at__gte", "at__lt"},
    "queuecontrol": {"database", "paused__exact", "paused__isnull"},
    "resolutionrun": {"database", "state__exact", "state__isnull", "verb"},
    "worker": {"database"},
    "adminschedule": set(),
}  # fmt: skip
FAR_AWAY = ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00", "9999-12-31")
HOSTILE = (*FAR_AWAY, "2026-13-45", "'", "\\", "%", "\0", "a" * 5000, "[]", "null", "-1", "1e309",
           "9" * 40, "٣", "(", "🎉", "\u202e", "1,2", "")  # fmt: skip
NO_SUCH_KEYS = (
    "9" * 40,
    "-1",
    "x",
    "\0",
    "a\0b",
    "'",
    "🎉",
    "%",
    str(uuid.UUID(int=0)),
    "1.5",
    "_",
)


def url_of(page, name, *args):
    return reverse(f"admin:django_jobs_{page.opts.model_name}_{name}", args=args)


def every_lookup(page):
    """All that Django would take for the columns of a table, and what is annotated."""
    columns = [*page.opts.concrete_fields]
    for field in columns:
        names = {field.name, field.attname, *(["pk"] if field.primary_key else [])}
        for name in names:
            yield name
            for lookup, found in field.get_lookups().items():
                yield f"{name}__{lookup}"
                if not hasattr(found, "arity"):  # a lookup, and not a transform
                    continue
                yield from (f"{name}__{lookup}__{more}" for more in ("gte", "contains", "regex"))
        yield from (f"{field.name}__{key}" for key in ("a", "a__b__startswith", "0"))
    yield from ("store_now", "store_now__gt", "nothing", "nothing__at_all", "user__password")


def narrowed(page, user, **query):
    request = RequestFactory().get(url_of(page, "changelist"), query)
    request.user = user
    return page.get_changelist_instance(request)


@OF_EACH
def test_a_list_is_narrowed_by_its_filters_and_by_nothing_else(page, admin_user):
    tried = set(every_lookup(page)) - OFFERED[page.opts.model_name]
    assert len(tried) > 100
    refused = set()
    for lookup in tried:
        try:
            narrowed(page, admin_user, **{lookup: "1"})
        except DisallowedModelAdminLookup:
            refused.add(lookup)
    assert not tried - refused
    for lookup in OFFERED[page.opts.model_name]:
        assert page.lookup_allowed(lookup, "1", RequestFactory().get("/"))


def test_no_page_of_ours_is_left_out():
    assert {page.opts.model_name for page in LISTS} == set(OFFERED)


@OF_EACH
def test_what_a_list_does_not_offer_is_answered_as_a_bad_request(page, admin_client):
    url = url_of(page, "changelist")
    name = page.opts.concrete_fields[1].name
    assert admin_client.get(url).status_code == 200
    assert admin_client.get(url, {f"{name}__startswith": "a"}).status_code == 400
    chosen = {"action": "x", "_selected_action": "1", "select_across": "1"}
    assert admin_client.post(f"{url}?{name}__startswith=a", chosen).status_code == 400


def test_a_viewer_cannot_find_out_a_hidden_value_by_asking_for_its_beginnings(someone):
    failed = die()
    FailedJob.objects.filter(pk=failed.pk).update(body=SECRET, signature=SECRET)
    about = {"job_id": uuid.uuid4(), "backend": "database", "queue": "q", "handler": "h"}
    JobResult.objects.create(**about, status="succeeded", value=SECRET, body=SECRET, expires=0)
    client = someone("view_failedjob", "view_jobresult")
    for table, column in (
        ("failedjob", "body"),
        ("failedjob", "signature"),
        ("jobresult", "value"),
    ):
        url = reverse(f"admin:django_jobs_{table}_changelist")
        answers = [
            client.get(url, {f"{column}__{lookup}": text}).status_code
            for lookup in ("startswith", "contains", "regex", "gte")
            for text in (SECRET, "no such text")
        ]
        assert answers == [400] * 8


@OF_EACH
def test_a_list_is_sorted_by_what_it_offers_and_by_nothing_else(page, admin_user):
    usual = {name.lstrip("-") for name in narrowed(page, admin_user).queryset.query.order_by}
    sortable = page.sortable_by if page.sortable_by is not None else page.list_display
    for place in range(len(page.list_display) + 2):
        for order in (str(place), f"-{place}"):
            sorted_by = narrowed(page, admin_user, o=order).queryset.query.order_by
            names = {str(name).lstrip("-") for name in sorted_by}
            assert names <= {*usual, *sortable, "pk"}, (order, sorted_by)


@OF_EACH
def test_whatever_is_asked_of_a_filter_there_is_an_answer(page, admin_client):
    url = url_of(page, "changelist")
    for name in (*OFFERED[page.opts.model_name], "q", "o", "p", "all", "e", "_popup", "_facets"):
        for value in HOSTILE:
            for also in ({}, {"q": "x"}):
                query = {name: value, **({} if name == "q" else also)}
                answer = admin_client.get(url, query)
                assert answer.status_code in {200, 302}, (query, answer.status_code)
                if answer.status_code == 302:
                    assert answer["Location"] == f"{url}?e=1"
    assert admin_client.get(url, {"_to_field": "body"}).status_code == 400


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_a_run_is_begun_by_no_address_that_nothing_can_be_narrowed_by(admin_client, verb):
    die()
    url = reverse(f"admin:django_jobs_failedjob_{verb}_all")
    for name in (
        "q",
        "queue",
        "handler",
        "reason",
        "fingerprint",
        "failed_at__gte",
        "failed_at__lt",
    ):
        for value in HOSTILE:
            answer = admin_client.get(url, {name: value})
            assert answer.status_code in {200, 302}, (name, value)
    for value in FAR_AWAY[:2]:
        answer = admin_client.get(url, {"failed_at__gte": value}, follow=True)
        assert "is too far away; choose other filters" in answer.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.opts.model_name)
@pytest.mark.parametrize("name", ["change", "history", "delete"])
def test_no_key_that_nothing_has_is_an_error(page, name, admin_client):
    if page.model is Overview:
        return  # there are no rows to look at one by one
    for key in NO_SUCH_KEYS:
        url = url_of(page, name, "KEY").replace("KEY", quote(key))
        for query in ({}, {"_to_field": ""}):
            assert admin_client.get(url, query).status_code in {302, 403, 404}, (key, query)


def test_an_error_that_no_address_asked_for_is_not_hidden(admin_client, monkeypatch):
    page = admin.site._registry[JobAttempt]

    def broken(request):
        raise ValueError("ours")

    monkeypatch.setattr(page, "get_queryset", broken)
    with pytest.raises(ValueError, match="ours"):
        admin_client.get(url_of(page, "changelist"), {"e": "1"})


def test_schedules_are_sorted_by_the_columns_of_their_list(admin_client):
    for name, hour in (("a", "5"), ("b", "4")):
        AdminSchedule.objects.create(
            name=name, expression=f"0 {hour} * * *", handler="h", changed_at=timezone.now()
        )
    page = admin_client.get(reverse("admin:django_jobs_adminschedule_changelist"), {"o": "2"}).text
    assert page.index(">b</a>") < page.index(">a</a>")
