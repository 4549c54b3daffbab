"""What an operator does with queues and sees of them, in a browser under the strict policy."""

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import F
from django.urls import reverse
from selenium.webdriver.common.by import By

from django_jobs.clock import SECOND
from django_jobs.models import Job
from django_jobs.operations.queues import limit_queue, queue_settings
from testproject.shop.jobs import doomed
from tests.browser.driving import DESKTOP, PHONE
from tests.browser.operating import EXPOSED, pages, stock

pytestmark = [
    pytest.mark.needs("browser"),
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.timeout(180),
]
OVERVIEW = reverse("admin:django_jobs_overview_changelist")
QUEUES = reverse("admin:django_jobs_queuecontrol_changelist")
PAUSE = reverse("admin:django_jobs_queuecontrol_pause")


def is_paused(queue="default"):
    return queue_settings(queue).paused


def tiles(browser):
    shown = browser.driver.find_elements(By.CSS_SELECTOR, ".dj-tiles li")
    parts = (tile.find_elements(By.TAG_NAME, "span") for tile in shown)
    return {name.text.casefold(): value.text for value, name in parts}


def test_pause_a_queue_from_the_overview_with_a_reason(browser, log_in):
    doomed.enqueue()
    log_in()
    browser.open(OVERVIEW)
    browser.press("Pause…")
    browser.until_it_says("Nothing more is claimed from a paused queue")
    assert not is_paused()
    browser.write("reason", "the mail server moves")
    browser.press("Pause: 1")
    browser.until_it_says("1 paused.")
    assert is_paused()
    assert browser.driver.current_url.endswith(OVERVIEW)
    assert "the mail server moves" in browser.text
    entry = LogEntry.objects.get()
    assert entry.user.username == "operator"
    assert "Reason: the mail server moves" in entry.change_message
    browser.press("Resume…")
    browser.until_it_says("Workers go on with what waits")
    browser.press("Resume: 1")
    browser.until_it_says("1 resumed.")
    assert not is_paused()
    assert LogEntry.objects.count() == 2


def test_pause_a_queue_from_the_list_of_queues(browser, log_in):
    limit_queue("default", {"concurrency": 3}, by="ada")
    log_in()
    browser.open(QUEUES)
    browser.driver.find_element(By.NAME, "_selected_action").click()
    browser.driver.find_element(By.CSS_SELECTOR, "option[value=pause_selected]").click()
    browser.press("Run" if browser.driver.find_elements(By.XPATH, "//button[.='Run']") else "Go")
    browser.until_it_says("Nothing more is claimed from a paused queue")
    browser.write("reason", "too many at once")
    browser.press("Pause: 1")
    browser.until_it_says("1 paused.")
    assert is_paused()
    assert "Reason: too many at once" in LogEntry.objects.get().change_message


def test_without_permission_no_queue_is_paused(browser, log_in):
    doomed.enqueue()
    log_in("view_overview", "view_queuecontrol")
    browser.open(OVERVIEW)
    browser.until_it_says("default")
    assert not browser.has("Pause…")
    browser.expected.append("403")
    browser.open(f"{PAUSE}?ids=database/default")
    browser.until_it_says("403 Forbidden")
    assert not is_paused()
    assert not LogEntry.objects.exists()


def test_the_overview_counts_on_without_being_loaded_anew(browser, log_in):
    doomed.enqueue()
    log_in()
    browser.open(OVERVIEW)
    assert tiles(browser)["ready"] == "1"
    browser.driver.execute_script("window.sameDocument = true")
    doomed.enqueue()
    doomed.enqueue()
    # Read by the script, as WebDriver's hold on an element may end when it is replaced.
    ready = "return document.querySelector('.dj-tiles .dj-value').textContent"
    browser.until(lambda: browser.driver.execute_script(ready) == "3", "a refreshed number")
    assert browser.driver.execute_script("return window.sameDocument") is True
    browser.press("Stop refreshing")
    assert "Refresh by itself" in browser.text


def test_whoever_stands_on_something_stays_there_while_the_numbers_change(browser, log_in):
    doomed.enqueue()
    log_in()
    browser.open(OVERVIEW)
    script = browser.driver.execute_script
    ready = "return document.querySelector('.dj-tiles .dj-value').textContent"
    for count, chosen in enumerate(("summary", ".dj-queues td a", ".dj-verbs a"), start=2):
        script(f"window.chosen = document.querySelector('#dj-live {chosen}'); chosen.focus()")
        named = script("return document.activeElement.textContent")
        doomed.enqueue()
        browser.until(lambda count=count: script(ready) == str(count), "a refreshed number")
        assert script("return window.chosen.isConnected") is False
        assert script("return document.activeElement.matches(arguments[0])", chosen)
        assert (
            chosen == ".dj-queues td a"
            or script("return document.activeElement.textContent") == named
        )


def test_what_is_being_copied_holds_the_page_and_it_says_so(browser, log_in):
    doomed.enqueue()
    log_in()
    browser.open(OVERVIEW)
    browser.driver.execute_script(
        "getSelection().selectAllChildren(document.querySelector('.dj-queues th[scope=row]'))"
    )
    browser.until_it_says("Held, as long as text is selected.")
    browser.driver.execute_script("getSelection().removeAllRanges()")
    browser.until(lambda: "Held" not in browser.text, "a page that goes on")


@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_of_operators_is_wider_than_its_screen(browser, log_in, screen, settings):
    settings.DJANGO_JOBS = EXPOSED
    stocked = stock()
    Job.objects.update(due=F("due") - 22 * 60 * SECOND)  # "22 minutes" is a wide number
    log_in()
    browser.look(screen)
    for path in pages(stocked).values():
        browser.open(path)
        assert browser.overflows() <= 0, path
        assert browser.cut_off() == [], path
