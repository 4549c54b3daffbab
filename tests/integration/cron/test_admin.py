"""The schedules pages: what is shown, who may do what, and that it happens once."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from django.urls import reverse

from django_jobs.clock import ManualClock, to_datetime
from django_jobs.cron.occurrences import next_after
from django_jobs.cron.registry import all_schedules
from django_jobs.cron.schedule import Schedule
from django_jobs.cron.tick import Ticker
from django_jobs.ids import new_id
from django_jobs.models import AdminSchedule, Job, OperatorEvent, ScheduleState, schedule_key
from django_jobs.redaction import HIDDEN
from tests.integration.cron.conftest import JOBS

pytestmark = pytest.mark.django_db
Declare = Callable[..., Schedule]
KEY = schedule_key("bell")
GIVEN = {
    "name": "mine",
    "expression": "30 2 * * *",
    "timezone": "Europe/Paris",
    "handler": f"{JOBS}.chime",
    "queue": "clockwork",
    "priority": "0",
    "missed": "latest",
    "overlap": "allow",
    "enabled": "on",
    "payload": "null",
}


@pytest.fixture
def exposed(settings: Any) -> None:
    """Before any clock: with other settings there are other backends."""
    settings.DJANGO_JOBS = {"SCHEDULE_HANDLERS": [f"{JOBS}.chime"]}


def user(*permissions: str) -> Client:
    someone = User.objects.create_user("sam", password="x", is_staff=True)
    someone.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(someone)
    return client


def url(page: str, *args: str) -> str:
    return reverse(f"admin:django_jobs_{page}", args=args)


def test_the_list_and_the_history_tell_what_became_of_ticks(
    clock: ManualClock, declare: Declare, admin_client: Client
) -> None:
    declare(description="Rings <twice>")
    declare("broken", handler="nobody")
    Ticker().tick()
    listed = admin_client.get(url("schedulestate_changelist")).content.decode()
    assert "bell" in listed
    assert "dj-tick-failed" in listed
    detail = admin_client.get(url("schedulestate_change", schedule_key("broken")))
    assert "UnknownHandler" in detail.content.decode()
    shown = admin_client.get(url("schedulestate_change", KEY)).content.decode()
    assert "Rings &lt;twice&gt;" in shown
    assert str(Job.objects.get().pk) in shown
    assert admin_client.get(url("schedulestate_change", "0" * 64)).status_code == 404
    assert admin_client.get(url("schedulestate_pause", "0" * 64)).status_code == 404
    assert admin_client.post(url("schedulestate_change", KEY)).status_code == 405


def test_pause_and_resume_ask_and_leave_traces(
    clock: ManualClock, declare: Declare, admin_client: Client
) -> None:
    declare()
    asked = admin_client.get(url("schedulestate_pause", KEY))
    assert b"Its ticks are skipped" in asked.content
    assert not ScheduleState.objects.filter(paused=True).exists()
    given = {"press": new_id(), "reason": "too loud"}
    assert admin_client.post(url("schedulestate_pause", KEY), given).status_code == 302
    (decided,) = Ticker().tick()
    assert (decided.decision, decided.reason) == ("skipped", "paused by admin: too loud")
    admin_client.post(url("schedulestate_resume", KEY), {"press": new_id()})
    assert list(OperatorEvent.objects.order_by("id").values_list("action", "actor", "subject")) == [
        ("pause-schedule", "admin", "bell"),
        ("resume-schedule", "admin", "bell"),
    ]
    assert LogEntry.objects.count() == 2


def test_only_a_post_with_what_the_form_holds_pauses(
    clock: ManualClock, declare: Declare, admin_client: Client
) -> None:
    declare()
    page = url("schedulestate_pause", KEY)
    for answer in (admin_client.get(page), admin_client.post(page)):
        assert answer.status_code == 200
        assert b"Its ticks are skipped" in answer.content
        assert not ScheduleState.objects.filter(paused=True).exists()
    assert admin_client.post(page, {"press": new_id()}).status_code == 302
    assert ScheduleState.objects.filter(paused=True).exists()


def test_run_now_happens_once_however_often_the_form_is_sent(
    clock: ManualClock, declare: Declare, admin_client: Client
) -> None:
    declare(enabled=False)
    given = {"press": new_id(), "reason": "a test"}
    for _ in range(2):
        admin_client.post(url("schedulestate_run", KEY), given)
    assert Job.objects.filter(schedule="bell").count() == 1
    assert OperatorEvent.objects.get().action == "run-schedule"
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize("verb", ["pause", "resume", "run"])
def test_who_may_only_look_can_do_nothing(clock: ManualClock, declare: Declare, verb: str) -> None:
    declare()
    client = user("view_schedulestate")
    assert client.get(url("schedulestate_change", KEY)).status_code == 200
    page = url(f"schedulestate_{verb}", KEY)
    answers = [client.get(page), client.post(page), client.post(page, {"press": new_id()})]
    assert [answer.status_code for answer in answers] == [403] * 3
    assert not Job.objects.exists()
    assert not ScheduleState.objects.filter(paused=True).exists()


def test_who_may_run_may_not_pause(clock: ManualClock, declare: Declare) -> None:
    declare()
    client = user("view_schedulestate", "run_schedule")
    assert client.get(url("schedulestate_run", KEY)).status_code == 200
    assert client.get(url("schedulestate_pause", KEY)).status_code == 403


def test_a_schedule_of_the_admin_runs(
    exposed: None, clock: ManualClock, schedules: list[Schedule], admin_client: Client
) -> None:
    answer = admin_client.post(url("adminschedule_add"), GIVEN)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    assert [schedule.name for schedule in all_schedules()] == ["mine"]
    assert AdminSchedule.objects.get().changed_by == "admin"
    ticker = Ticker()
    ticker.tick()
    clock.advance(3 * 3600)  # it is 03:00 in Paris
    assert [(one.name, one.decision) for one in ticker.tick()] == [("mine", "caught-up")]
    admin_client.post(
        url("adminschedule_delete", str(AdminSchedule.objects.get().pk)), {"post": "yes"}
    )
    assert all_schedules() == []


def test_a_change_is_seen_though_another_row_seems_to_be_newer(
    exposed: None, clock: ManualClock, schedules: list[Schedule], admin_client: Client
) -> None:
    for name in ("mine", "other"):
        admin_client.post(url("adminschedule_add"), {**GIVEN, "name": name})
    of_a_fast_clock = datetime(2040, 1, 1, tzinfo=UTC)
    AdminSchedule.objects.filter(name="other").update(changed_at=of_a_fast_clock)
    assert {schedule.expression for schedule in all_schedules()} == {GIVEN["expression"]}
    mine = AdminSchedule.objects.get(name="mine")
    for expression in ("0 1 * * *", "0 2 * * *"):
        page = url("adminschedule_change", str(mine.pk))
        assert admin_client.post(page, {**GIVEN, "expression": expression}).status_code == 302
        assert expression in {schedule.expression for schedule in all_schedules()}
    mine.refresh_from_db()
    assert mine.changed_at == of_a_fast_clock + timedelta(microseconds=2)


def test_when_something_was_changed_the_store_says(
    exposed: None, clock: ManualClock, schedules: list[Schedule], admin_client: Client
) -> None:
    admin_client.post(url("adminschedule_add"), GIVEN)
    assert AdminSchedule.objects.get().changed_at == to_datetime(clock.now())


def test_a_row_that_became_unreadable_is_told(
    exposed: None,
    clock: ManualClock,
    schedules: list[Schedule],
    admin_client: Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin_client.post(url("adminschedule_add"), GIVEN)
    AdminSchedule.objects.update(timezone="Europe/Atlantis", changed_at=datetime.now(UTC))
    assert all_schedules() == all_schedules() == []
    (told,) = [one for one in caplog.records if one.key == "cron.schedule_unreadable"]  # type: ignore[attr-defined] # ours
    assert "mine" in told.getMessage()
    for page in ("schedulestate_changelist", "adminschedule_changelist"):
        assert "Europe/Atlantis" in admin_client.get(url(page)).content.decode()
    with pytest.raises(CommandError, match="Europe/Atlantis") as refused:
        call_command("jobs_cron", only=["mine"])
    assert refused.value.returncode == 2


def test_who_made_changed_and_deleted_a_schedule_is_recorded(
    exposed: None, clock: ManualClock, schedules: list[Schedule], admin_client: Client
) -> None:
    for name in ("mine", "other", "third"):
        admin_client.post(url("adminschedule_add"), {**GIVEN, "name": name})
    mine, *others = map(str, AdminSchedule.objects.order_by("name").values_list("pk", flat=True))
    change = {**GIVEN, "expression": "0 1 * * *", "payload": '{"args": [], "kwargs": {}}'}
    admin_client.post(url("adminschedule_change", mine), change)
    admin_client.post(url("adminschedule_delete", mine), {"post": "yes"})
    chosen = {"action": "delete_selected", "_selected_action": others, "post": "yes"}
    admin_client.post(url("adminschedule_changelist"), chosen)
    events = OperatorEvent.objects.order_by("id")
    assert list(events.values_list("action", "subject", "actor")) == [
        *(("add-schedule", name, "admin") for name in ("mine", "other", "third")),
        ("change-schedule", "mine", "admin"),
        *(("delete-schedule", name, "admin") for name in ("mine", "other", "third")),
    ]
    assert events.get(action="change-schedule").detail == {"changed": ["expression"]}
    assert not AdminSchedule.objects.exists()


@pytest.mark.usefixtures("exposed")
def test_lines_of_a_description_are_kept_as_they_were_sent(admin_client: Client) -> None:
    given = {**GIVEN, "description": "above\r\nbelow"}
    assert admin_client.post(url("adminschedule_add"), given).status_code == 302
    page = url("adminschedule_change", str(AdminSchedule.objects.get().pk))
    form = admin_client.get(page).context["adminform"].form
    assert form["description"].value() == "above\r\nbelow"
    admin_client.post(page, {**given, "queue": "default", "payload": form["payload"].value()})
    assert AdminSchedule.objects.get().description == "above\r\nbelow"
    assert OperatorEvent.objects.get(action="change-schedule").detail == {"changed": ["queue"]}


def test_the_preview_hashes_the_name_that_the_schedule_will_have(
    exposed: None, clock: ManualClock, schedules: list[Schedule], admin_client: Client
) -> None:
    given = {**GIVEN, "expression": "H H * * *", "timezone": "UTC", "name": "nightly"}
    answer = admin_client.get(url("adminschedule_preview"), given)
    admin_client.post(url("adminschedule_add"), given)
    (schedule,) = all_schedules()
    first = next_after(schedule, to_datetime(clock.now()))
    assert json.loads(answer.content)["runs"][0] == f"{first:%a %d %b %Y, %H:%M:%S UTC}"


@pytest.mark.usefixtures("exposed")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"expression": "61 * * * *"}, "61 * * * *"),
        ({"timezone": "Europe/Atlantis"}, "Europe/Atlantis"),
        ({"handler": f"{JOBS}.inline_chime"}, "Select a valid choice"),
        ({"payload": '{"args": [1], "kwargs": {}}'}, "chime"),
    ],
)
def test_what_could_never_run_is_not_saved(
    schedules: list[Schedule], admin_client: Client, wrong: dict[str, str], told: str
) -> None:
    answer = admin_client.post(url("adminschedule_add"), {**GIVEN, **wrong})
    assert answer.status_code == 200
    assert told in str(answer.context["adminform"].form.errors)
    assert not AdminSchedule.objects.exists()


def test_a_handler_that_is_exposed_no_more_is_not_run(
    exposed: None, clock: ManualClock, schedules: list[Schedule], admin_client: Client
) -> None:
    admin_client.post(url("adminschedule_add"), GIVEN)
    assert len(all_schedules()) == 1
    with override_settings(DJANGO_JOBS={"SCHEDULE_HANDLERS": [f"{JOBS}.inline_chime"]}):
        assert all_schedules() == []
    with override_settings(DJANGO_JOBS={}):
        assert all_schedules() == []
        assert admin_client.get(url("adminschedule_add")).status_code == 403


def test_the_preview_tells_ten_runs_or_what_is_wrong(
    exposed: None, clock: ManualClock, admin_client: Client
) -> None:
    page = url("adminschedule_preview")
    told = json.loads(
        admin_client.get(page, {"expression": "30 2 * * *", "timezone": "Europe/Paris"}).content
    )
    assert len(told["runs"]) == 10
    assert told["runs"][0] == "Mon 05 May 2031, 02:30:00 CEST"
    wrong = json.loads(admin_client.get(page, {"expression": "99 * * * *"}).content)
    assert wrong["runs"] == []
    assert "99 * * * *" in wrong["problem"]
    assert user("view_adminschedule").get(page).status_code == 403


SECRET = {"args": [], "kwargs": {"order_id": {"token": "hush", "parcel": 1}}}
MASKED = json.dumps(SECRET).replace("hush", HIDDEN)
RECEIPT = "testproject.shop.jobs.send_receipt"
SIGHTS = ("view_adminschedule", "view_payload")
CHANGES = ("view_adminschedule", "change_adminschedule")


@pytest.fixture
def secretive(settings: Any) -> AdminSchedule:
    """A schedule of the admin whose arguments hold a secret."""
    settings.DJANGO_JOBS = {"SCHEDULE_HANDLERS": [RECEIPT, f"{JOBS}.chime"]}
    given = {name: GIVEN[name] for name in ("name", "expression", "timezone", "queue")}
    return AdminSchedule.objects.create(
        **given, handler=RECEIPT, payload=SECRET, changed_at=datetime.now(UTC)
    )


def pages_of(row: AdminSchedule) -> list[str]:
    names = ("change", "history", "delete")
    return [url(f"adminschedule_{name}", str(row.pk)) for name in names]


@pytest.mark.parametrize(
    ("permissions", "sees"),
    [
        (("view_adminschedule",), False),
        (SIGHTS, True),
        (CHANGES, False),
        ((*CHANGES, "view_payload", "delete_adminschedule"), True),
    ],
)
def test_the_arguments_of_a_schedule_are_masked_and_need_their_permission(
    secretive: AdminSchedule, permissions: tuple[str, ...], sees: bool
) -> None:
    client = user(*permissions)
    shown = client.get(pages_of(secretive)[0]).text
    assert ("parcel" in shown, HIDDEN in shown.replace(f"values ({HIDDEN})", "")) == (sees, sees)
    for page in (*pages_of(secretive), url("adminschedule_changelist")):
        assert "hush" not in client.get(page).text


def test_hidden_arguments_of_a_schedule_are_kept_without_being_seen(
    secretive: AdminSchedule, schedules: list[Schedule]
) -> None:
    client = user(*CHANGES, "view_payload")
    given = {**GIVEN, "handler": RECEIPT, "payload": MASKED.replace("1", "2")}
    answer = client.post(pages_of(secretive)[0], given)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    secretive.refresh_from_db()
    assert secretive.payload == json.loads(json.dumps(SECRET).replace("1", "2"))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"handler": f"{JOBS}.chime"}, "stay with the handler they were meant for"),
        ({"payload": MASKED.replace("token", "text")}, "no hidden value in that place"),
    ],
)
def test_hidden_arguments_of_a_schedule_go_to_no_other_handler_or_place(
    secretive: AdminSchedule, schedules: list[Schedule], changed: dict[str, str], told: str
) -> None:
    client = user(*CHANGES, "view_payload")
    answer = client.post(
        pages_of(secretive)[0], {**GIVEN, "handler": RECEIPT, "payload": MASKED, **changed}
    )
    assert told in str(answer.context["adminform"].form.errors["payload"])
    secretive.refresh_from_db()
    assert (secretive.payload, secretive.handler) == (SECRET, RECEIPT)
    anew = {**GIVEN, "payload": '{"args": [], "kwargs": {}}', "handler": f"{JOBS}.chime"}
    assert client.post(pages_of(secretive)[0], anew).status_code == 302


def test_who_may_not_see_the_arguments_changes_neither_them_nor_the_handler(
    secretive: AdminSchedule, schedules: list[Schedule]
) -> None:
    given = {**GIVEN, "expression": "0 5 * * *", "handler": f"{JOBS}.chime"}
    answer = user(*CHANGES).post(pages_of(secretive)[0], {**given, "payload": "{}"})
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    secretive.refresh_from_db()
    assert secretive.expression == "0 5 * * *"
    assert (secretive.payload, secretive.handler) == (SECRET, RECEIPT)


def test_a_form_that_comes_back_shows_what_was_written_and_nothing_that_was_not(
    secretive: AdminSchedule, schedules: list[Schedule]
) -> None:
    client = user(*CHANGES, "view_payload")
    for payload in (MASKED, MASKED.replace(HIDDEN, "written anew"), "{"):
        given = {**GIVEN, "handler": RECEIPT, "payload": payload, "expression": "61 * * * *"}
        page = client.post(pages_of(secretive)[0], given).text
        assert "hush" not in page
        assert ("written anew" in page) == ("written anew" in payload)
