"""Hostile strings in what the admin shows of schedules: declared, stored, and their history."""

from datetime import UTC, datetime

import pytest
from django.urls import reverse

from django_jobs.cron.schedule import Schedule
from django_jobs.definition import JobDefinition, Options
from django_jobs.models import AdminSchedule, ScheduleState, ScheduleTick, schedule_key
from tests.integration.hostile_pages import HOSTILE, prove, prove_rows, prove_texts, whole

pytestmark = [pytest.mark.django_db, pytest.mark.only_on("sqlite")]
LATER = datetime(2031, 5, 4, tzinfo=UTC)


def page(client, name, *args, **query):
    url = reverse(f"admin:django_jobs_{name}", args=args)
    return lambda: client.get(url, query).text


def schedule_of(name="bell", handler="a.b", **fields):
    job = JobDefinition(handler, {"args": [], "kwargs": {}}, Options().using(queue="clockwork"))
    return Schedule(name=name, expression="* * * * *", job=job, **fields)


@pytest.fixture
def rows(exposed):
    """Schedules of the admin that cannot be read, as their handler is not exposed."""

    def put(values):
        AdminSchedule.objects.all().delete()
        for number, told in enumerate(values):
            given = {"name": f"n{number}", "expression": "* * * * *", "handler": "a.b", **told}
            AdminSchedule.objects.create(changed_at=LATER, **given)

    return put


@pytest.fixture
def exposed(settings):
    settings.DJANGO_JOBS = {"SCHEDULE_HANDLERS": ["testproject.shop.jobs.send_receipt"]}


class TestDeclared:
    def test_in_the_list(self, admin_client, schedules):
        def put(values):
            schedules[:] = [schedule_of(**told) for told in values]

        fields = dict.fromkeys(("name", "handler"), whole)
        prove_rows(page(admin_client, "schedulestate_changelist"), put, fields, at_once=50)

    @pytest.mark.parametrize("at", ["change", "pause", "run"])
    def test_on_the_page_of_one_and_where_it_is_asked(self, admin_client, schedules, at):
        told = {}

        def put(values):
            told.update(values)
            schedules[:] = [schedule_of(**values)]

        def look():
            key = schedule_key(told["name"])
            return page(admin_client, f"schedulestate_{at}", key)()

        more = ("description",) if at == "change" else ()
        prove_texts(look, put, ("name", "handler", *more))

    def test_in_why_it_is_paused(self, admin_client, schedules):
        schedules[:] = [schedule_of()]
        key = schedule_key("bell")
        ScheduleState.objects.create(
            key=key, name="bell", version="", decided_until=0, paused=True, paused_at=LATER
        )

        def put(values):
            ScheduleState.objects.filter(key=key).update(**values)

        look = page(admin_client, "schedulestate_change", key)
        prove_texts(look, put, ("paused_by", "reason"))

    def test_in_its_history(self, admin_client, schedules):
        schedules[:] = [schedule_of()]
        key = schedule_key("bell")
        ticks = [
            ScheduleTick.objects.create(
                key=key, name="bell", tick=number, decided_at=LATER, decision="skipped",
                job_id="0190d5b1-0000-7000-8000-000000000000",
            )
            for number in range(1, 51)
        ]  # fmt: skip

        def put(values):
            for row, told in zip(ticks, values, strict=True):
                ScheduleTick.objects.filter(pk=row.pk).update(**told)

        fields = dict.fromkeys(("decision", "outcome", "reason", "decided_by"), whole)
        look = page(admin_client, "schedulestate_change", key)
        prove_rows(look, put, fields, at_once=50)

    def test_in_the_word_for_what_became_of_the_last_tick(self, admin_client, schedules):
        def put(values):
            ScheduleTick.objects.all().delete()
            schedules[:] = [schedule_of(f"bell-{number}") for number, _ in enumerate(values)]
            for number, told in enumerate(values):
                name = f"bell-{number}"
                ScheduleTick.objects.create(
                    key=schedule_key(name), name=name, tick=1, decided_at=LATER, **told
                )

        look = page(admin_client, "schedulestate_changelist")
        prove_rows(look, put, {"outcome": whole}, at_once=50)

    def test_in_the_search(self, admin_client, schedules):
        given = {}
        url = reverse("admin:django_jobs_schedulestate_changelist")
        look = lambda: admin_client.get(url, given).text  # noqa: E731 - beside its data
        prove_texts(look, given.update, ("q",))


class TestOfTheAdmin:
    NAMES = ("name", "expression", "timezone", "handler", "queue")

    def test_in_the_list(self, admin_client, rows):
        look = page(admin_client, "adminschedule_changelist")
        prove_rows(look, rows, dict.fromkeys(self.NAMES, whole), at_once=50)

    @pytest.mark.parametrize("wrong", ["name", "handler"])
    def test_in_those_that_are_left_out(self, admin_client, rows, wrong):
        look = page(admin_client, "schedulestate_changelist")
        prove_rows(look, rows, {wrong: whole}, at_once=50)

    @pytest.mark.parametrize("wrong", ["expression", "timezone"])
    def test_in_why_they_are_left_out(self, admin_client, rows, wrong):
        def put(values):
            rows([{**told, "handler": "testproject.shop.jobs.send_receipt"} for told in values])

        look = page(admin_client, "schedulestate_changelist")
        prove_rows(look, put, {wrong: whole}, at_once=50)

    def test_in_its_form(self, admin_client, rows):
        rows([{}])
        row = AdminSchedule.objects.get()
        columns = ("name", "expression", "timezone", "queue", "description")

        def put(values):
            payload = {"args": values["payload"], "kwargs": {}}
            texts = {name: " ".join(values[name]) for name in columns}
            AdminSchedule.objects.filter(pk=row.pk).update(**texts, payload=payload)

        prove(
            page(admin_client, "adminschedule_change", row.pk),
            put,
            {name: lambda text: text.partition("\r")[0] for name in (*columns, "payload")},
        )

    def test_in_what_was_sent_and_refused(self, admin_client, exposed):
        url = reverse("admin:django_jobs_adminschedule_add")
        given = {}
        look = lambda: admin_client.post(url, given).text  # noqa: E731 - as above
        columns = ("name", "expression", "timezone", "queue", "description", "payload", "handler")
        prove_texts(look, given.update, columns)

    def test_where_it_is_deleted(self, admin_client, rows):
        rows([{}])
        row = AdminSchedule.objects.get()

        def put(values):
            AdminSchedule.objects.filter(pk=row.pk).update(**values)

        prove_texts(page(admin_client, "adminschedule_delete", row.pk), put, ("name",))

    def test_in_the_preview_it_is_data_and_no_page(self, admin_client, exposed):
        for hostile in HOSTILE:
            answer = admin_client.get(
                reverse("admin:django_jobs_adminschedule_preview"),
                {"expression": hostile, "timezone": hostile, "name": hostile},
            )
            assert answer["Content-Type"] == "application/json"
            assert answer["X-Content-Type-Options"] == "nosniff"
            problem = answer.json()["problem"]
            assert repr(hostile.strip()) in problem, hostile
