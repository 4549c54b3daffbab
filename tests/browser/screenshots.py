"""The pictures of the documentation: ``make screenshots`` takes them anew.

Not a test by name, so that an ordinary run does not overwrite them.
"""

from pathlib import Path

import pytest
from django.urls import reverse

from django_jobs import operations
from django_jobs.models import FailedJob, ResolutionRun
from django_jobs.operations import Matching, begin
from testproject.shop.jobs import doomed, flaky, send_receipt
from tests.browser import operating
from tests.browser.driving import DESKTOP, PHONE
from tests.integration.operations.dying import die

pytestmark = [
    pytest.mark.needs("browser"),
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.timeout(300),
]
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
LIST = reverse("admin:django_jobs_failedjob_changelist")
LOOKS = (("", DESKTOP, "light"), ("-dark", DESKTOP, "dark"), ("-phone", PHONE, "light"))
OF_OPERATORS = (
    "why-not-running", "queue-limit", "queues-list", "workers-list", "jobs-list", "job-running",
    "result-detail", "results-list", "schedules-list", "schedule-detail", "schedule-edit",
)  # fmt: skip
# Those whose rows and tables are laid out anew on a phone.
ON_A_PHONE = {"queues-list", "jobs-list", "job-running"}
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 41, in send_receipt
    send_mail("Your receipt", text, None, [order.email])
  File "/srv/shop/mail.py", line 12, in send_mail
    connection.login(user, password)
smtplib.SMTPServerDisconnected: Connection unexpectedly closed
"""


def stock():
    """A night in which the mail server went away."""
    gone = {
        "error_type": "smtplib.SMTPServerDisconnected",
        "error_message": "Connection unexpectedly closed",
        "traceback": TRACEBACK,
        "output": "connecting to mail.example.com:587\n",
        "fingerprint": "a1" * 16,
    }
    wanted = None
    for number in range(14):
        job = send_receipt.using(trace_id=f"checkout-{number + 100}", max_retries=3)
        wanted = die(job.prepare(order_id=4700 + number), **gone)
    die(doomed.prepare(), reason="crashed", error_type="", error_message="killed by signal 9",
        traceback="", output="", fingerprint="")  # fmt: skip
    die(flaky.prepare(), reason="timed-out", error_type="django_jobs.exceptions.JobTimeout",
        error_message="it had not ended after 30 seconds", fingerprint="b2" * 16)  # fmt: skip
    die(doomed.prepare(), reason="rejected-signature", error_type="", traceback="",
        error_message="the signature does not fit the body", fingerprint="")  # fmt: skip
    FailedJob.objects.filter(reason="rejected-signature").update(signature="0" * 64)
    FailedJob.objects.filter(reason="exhausted").update(attempts=4)
    FailedJob.objects.filter(reason="timed-out").update(attempts=1)
    FailedJob.objects.filter(reason="crashed").update(crashes=3)
    operations.discard(FailedJob.objects.order_by("pk")[0].pk, by="anna", reason="was refunded")
    return wanted


def test_take(browser, log_in):
    wanted = stock()
    run = begin(
        "replay", Matching(queue="mail"), by="anna", reason="the mail server is back", rate=5
    )
    ResolutionRun.objects.filter(pk=run.pk).update(done=8, refused=1, stepping_until=2**62)
    log_in()
    edit = reverse("admin:django_jobs_failedjob_edit", args=[wanted.pk])
    detail = reverse("admin:django_jobs_failedjob_change", args=[wanted.pk])
    for name, path in {
        "dead-letters-list": LIST,
        "dead-letters-detail": detail,
        "dead-letters-edit": edit,
        "dead-letters-confirm": f"{LIST}replay/?ids={wanted.pk}&ids={wanted.pk + 3}",
        "dead-letters-groups": f"{LIST}groups/",
        "dead-letters-begin": f"{LIST}replay-all/?queue=mail",
        "dead-letters-run": reverse("admin:django_jobs_resolutionrun_change", args=[run.pk]),
    }.items():
        take(browser, name, path)


def test_take_those_of_operators(browser, log_in, settings):
    settings.DJANGO_JOBS = operating.EXPOSED
    stocked = operating.stock()
    log_in()
    paths = operating.pages(stocked)
    take(browser, "overview", paths["overview"])
    for name in OF_OPERATORS:
        take(browser, name, paths[name], LOOKS[:1])
        if name in ON_A_PHONE:
            take(browser, name, paths[name], LOOKS[2:])


def take(browser, name, path, looks=LOOKS):
    for ending, screen, scheme in looks:
        browser.look(screen, scheme)
        browser.open(path)
        browser.picture(IMAGES / f"{name}{ending}.png")
