"""A headless Chromium at a live site, and a real worker beside it."""

import contextlib
import signal
import subprocess
import sys

import pytest
from django.contrib.auth.models import Permission, User

from tests import services
from tests.browser.driving import Browser, chromium
from tests.conftest import ROOT

PASSWORD = "a-password-for-tests"
STOPPING_SECONDS = 30
HOME = "/admin/"


@pytest.fixture(scope="session")
def driver():
    if reason := services.why_not("browser"):
        pytest.skip(reason)
    driver = chromium()
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver, live_server, transactional_db):
    """Nobody is logged in yet. Whatever the console complains of fails the test."""
    browser = Browser(driver, live_server.url)
    yield browser
    browser.assert_calm()
    driver.delete_all_cookies()


@pytest.fixture
def log_in(browser):
    """Log in as a superuser or, with permissions named, as somebody who has just these."""

    def through_the_form(*codenames):
        user = User.objects.create_user("operator", password=PASSWORD, is_staff=True)
        if codenames:
            user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        else:
            user.is_superuser = True
            user.save()
        browser.open(f"/admin/login/?next={HOME}")
        browser.write("username", "operator")
        browser.write("password", PASSWORD)
        browser.press("Log in")
        # Not by its words: those of the page before may be gone while they are looked for.
        browser.until(lambda: browser.path == HOME, "the login")
        return user

    return through_the_form


@pytest.fixture
def worker(site_environment):
    """A worker process that ends with the test."""
    with contextlib.ExitStack() as running:

        def start(*options):
            process = subprocess.Popen(
                [
                    sys.executable,
                    "testproject/manage.py",
                    "jobs_work",
                    "--processes",
                    "1",
                    *options,
                ],
                cwd=ROOT,
                env=site_environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            running.callback(stop, process)
            return process

        yield start


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOPPING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
