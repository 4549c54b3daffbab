"""What an operator does with dead letters, done in a browser, with a worker that runs."""

import json

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_jobs.models import FailedJob, Job, JobResult, ResolutionRun
from django_jobs.operations.bulk import begin
from django_jobs.operations.dead_letters import Matching
from testproject.shop.jobs import send_receipt
from testproject.shop.models import Order
from tests.browser.driving import DESKTOP, PHONE
from tests.integration.operations.dying import die

pytestmark = [
    pytest.mark.needs("browser"),
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.timeout(180),
]
LIST = reverse("admin:django_jobs_failedjob_changelist")


def page_of(failed):
    return reverse("admin:django_jobs_failedjob_change", args=[failed.pk])


def test_find_read_edit_and_replay_one_and_see_its_effect(  # noqa: PLR0915 - one story
    browser, log_in, worker
):
    order = Order.objects.create(email="ann@example.com", total="19.90")
    failed = die(send_receipt.using(trace_id="checkout-17").prepare(order_id=4711))
    die()
    log_in()
    browser.open(LIST)
    browser.write("q", "checkout-1")
    browser.press("Search")
    browser.until_it_says("Found by name")
    assert "doomed" not in browser.driver.find_element("id", "result_list").text
    browser.press("send_receipt testproject.shop.jobs")
    browser.until_it_says("Every run it was allowed has failed")
    for wanted in ("RuntimeError", "this handler never succeeds", "4711", "Fits, made with"):
        assert wanted in browser.text
    browser.press("Edit and replay…")
    assert "send_receipt(order_id)" in browser.text
    browser.write("payload", browser.value_of("payload").replace("4711", '"no number'))
    browser.press("Replay with these arguments")
    browser.until_it_says("not JSON")
    browser.write("payload", json.dumps({"args": [], "kwargs": {"order_id": order.pk}}))
    browser.write("reason", "the number was mistyped")
    browser.press("Replay with these arguments")
    browser.until_it_says("1 dead letter replayed as a new job.")
    worker()
    failed.refresh_from_db()
    ended = JobResult.objects.filter(pk=failed.replayed_as, status="succeeded")
    browser.until(ended.exists, "the new job's success")
    order.refresh_from_db()
    assert order.state == Order.State.RECEIPT_SENT
    browser.open(page_of(failed))
    browser.until_it_says("(succeeded)")
    entry = LogEntry.objects.get()
    assert "with edited arguments" in entry.change_message
    assert "Reason: the number was mistyped" in entry.change_message
    browser.press("History")
    browser.until_it_says("the number was mistyped")


def test_discard_several_from_the_list(browser, log_in):
    letters = [die() for _ in range(3)]
    log_in()
    browser.open(LIST)
    boxes = browser.driver.find_elements("name", "_selected_action")
    for box in boxes[:2]:
        box.click()
    browser.driver.find_element("css selector", "option[value=discard_selected]").click()
    browser.press("Run" if browser.driver.find_elements("xpath", "//button[.='Run']") else "Go")
    browser.until_it_says("Discard 2 dead letters?")
    browser.write("reason", "of no use")
    browser.press("Discard 2 dead letters")
    browser.until_it_says("2 dead letters discarded.")
    gone = FailedJob.objects.filter(resolution="discarded", resolution_note="of no use")
    assert {row.pk for row in gone} == {letter.pk for letter in letters[1:]}
    assert LogEntry.objects.filter(change_message__contains="Reason: of no use").count() == 2


def test_a_run_goes_on_when_the_page_is_left(browser, log_in, worker):
    for _ in range(30):
        die()
    log_in()
    browser.open(f"{LIST}?queue=default")
    browser.press("Replay all of these…")
    browser.until_it_says("Replay all 30 dead letters?")
    browser.press("Try it out first")
    browser.until_it_says("30 would be replayed, 0 would be refused")
    browser.write("rate", "10")
    browser.write("reason", "the server is back")
    browser.press("Replay 30 dead letters")
    browser.until_it_says("No worker listens on the queue default")
    run = ResolutionRun.objects.get()
    browser.driver.get("about:blank")
    left_at = ResolutionRun.objects.get().dealt_with
    assert left_at < 30
    worker()
    ended = ResolutionRun.objects.filter(state="finished", done=30)
    browser.until(ended.exists, "the end of the run")
    browser.open(reverse("admin:django_jobs_resolutionrun_change", args=[run.pk]))
    browser.until_it_says("30 of 30 dealt with")
    bar = browser.driver.find_element("id", "dj-run-bar")
    assert bar.get_attribute("value") == bar.get_attribute("max") == "30"
    assert Job.objects.filter(replay_of=None).count() == 0
    assert "Reason: the server is back" in LogEntry.objects.get().change_message


def test_a_run_moves_on_its_page_and_can_be_stopped(browser, log_in):
    for _ in range(200):
        die()
    log_in()
    run = begin("replay", Matching(), by="operator", rate=20.0)
    browser.open(reverse("admin:django_jobs_resolutionrun_change", args=[run.pk]))
    dealt_with = "[data-progress=dealt_with]"
    browser.until(
        lambda: int(browser.driver.find_element("css selector", dealt_with).text) >= 5, "a step"
    )
    browser.write("reason", "too early")
    browser.press("Stop")
    browser.until_it_says("What it did stays done")
    run.refresh_from_db()
    assert run.state == "stopped"
    assert 5 <= run.done < 200
    assert "Reason: too early" in LogEntry.objects.get().change_message


def test_without_permission_there_is_nothing_to_press(browser, log_in):
    failed = die(send_receipt.prepare(order_id=170417))
    log_in("view_failedjob")
    browser.open(page_of(failed))
    assert not any(map(browser.has, ("Replay…", "Edit and replay…", "Discard…")))
    assert "170417" not in browser.text
    browser.open(LIST)
    assert not any(map(browser.has, ("Replay all of these…", "Discard all of these…")))
    browser.expected.append("403")
    for path in (
        f"{LIST}replay/?ids={failed.pk}",
        f"{LIST}discard-all/",
        reverse("admin:django_jobs_failedjob_edit", args=[failed.pk]),
    ):
        browser.open(path)
        browser.until_it_says("403 Forbidden")
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_is_wider_than_its_screen(browser, log_in, screen):
    failed = die(send_receipt.prepare(order_id="x" * 300), error_message="y" * 2000)
    run = begin("discard", Matching(queue="nobody"), by="me")
    log_in()
    browser.look(screen)
    for path in (
        LIST,
        page_of(failed),
        f"{LIST}groups/",
        f"{LIST}replay/?ids={failed.pk}",
        f"{LIST}replay-all/",
        reverse("admin:django_jobs_failedjob_edit", args=[failed.pk]),
        reverse("admin:django_jobs_resolutionrun_change", args=[run.pk]),
        reverse("admin:django_jobs_resolutionrun_changelist"),
    ):
        browser.open(path)
        assert browser.overflows() <= 0, path
        assert browser.cut_off() == [], path


def test_markup_in_a_job_stays_text(browser, log_in):
    evil = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
    failed = die(send_receipt.prepare(order_id=evil), error_message=evil, traceback=evil)
    log_in()
    for path in (
        LIST,
        page_of(failed),
        f"{LIST}groups/",
        f"{LIST}?q={evil}",
        reverse("admin:django_jobs_failedjob_edit", args=[failed.pk]),
    ):
        browser.open(path)
        assert browser.driver.execute_script("return window.hurt") is None
        shown = browser.text + (browser.value_of("payload") if path.endswith("edit/") else "")
        assert "<img src=x" in shown


def test_a_breach_of_the_policy_would_be_noticed(browser, log_in):
    log_in()
    browser.driver.execute_script(
        "document.body.insertAdjacentHTML('beforeend', '<i style=top:0>')"
    )
    browser.until(lambda: any("style" in line for line in browser.complaints()), "a complaint")
