"""The pictures of the documentation: ``make screenshots`` takes them anew.

Not a test by name, so that an ordinary run does not overwrite them.
"""

import pytest
from django.urls import reverse

from django_jobs.models import FailedJob, ResolutionRun
from django_jobs.operations.bulk import begin
from django_jobs.operations.dead_letters import Matching, discard
from testproject.shop.jobs import doomed, flaky, send_receipt
from tests.browser import operating
from tests.browser.driving import DESKTOP, PHONE
from tests.browser.pictures import IMAGES, all_pictures
from tests.integration.operations.dying import die

pytestmark = [
    pytest.mark.needs("browser"),
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.timeout(600),
]
LIST = reverse("admin:django_jobs_failedjob_changelist")
LOOKS = (
    ("", DESKTOP, "light"),
    ("-dark", DESKTOP, "dark"),
    # At its width and no finer: a picture of it is looked at on a larger screen.
    ("-phone", {**PHONE, "deviceScaleFactor": 1}, "light"),
    ("-phone-dark", {**PHONE, "deviceScaleFactor": 1}, "dark"),
)
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
    discard(FailedJob.objects.order_by("pk")[0].pk, by="anna", reason="was refunded")
    return wanted


def paths_of_dead_letters():
    """By name of the picture."""
    wanted = stock()
    run = begin(
        "replay", Matching(queue="mail"), by="anna", reason="the mail server is back", rate=5
    )
    ResolutionRun.objects.filter(pk=run.pk).update(done=8, refused=1, stepping_until=2**62)
    older = begin("discard", Matching(queue="reports"), by="sam", reason="asked for by nobody")
    ResolutionRun.objects.filter(pk=older.pk).update(state="finished", total=41, done=41)
    two = f"ids={wanted.pk}&ids={wanted.pk + 3}"
    return {
        "dead-letters-list": LIST,
        "dead-letters-detail": reverse("admin:django_jobs_failedjob_change", args=[wanted.pk]),
        "dead-letters-edit": reverse("admin:django_jobs_failedjob_edit", args=[wanted.pk]),
        "dead-letters-confirm": f"{LIST}replay/?{two}",
        "dead-letters-discard": f"{LIST}discard/?{two}",
        "dead-letters-groups": f"{LIST}groups/",
        "dead-letters-begin": f"{LIST}replay-all/?queue=mail",
        "dead-letters-begin-discarding": f"{LIST}discard-all/?queue=mail",
        "dead-letters-run": reverse("admin:django_jobs_resolutionrun_change", args=[run.pk]),
        "runs-list": reverse("admin:django_jobs_resolutionrun_changelist"),
    }


def test_take_those_of_dead_letters(browser, log_in):
    paths = paths_of_dead_letters()
    log_in()
    take(browser, paths, of_dead_letters())


def test_take_those_of_operators(browser, log_in, settings):
    settings.DJANGO_JOBS = operating.EXPOSED
    stocked = operating.stock()
    log_in()
    names = set(all_pictures()) - set(of_dead_letters())
    take(browser, operating.pages(stocked), sorted(names), operating.freshen)


def of_dead_letters():
    return [name for name in all_pictures() if name.startswith(("dead-letters-", "runs-"))]


def take(browser, paths, names, before=lambda: None):
    for name in names:
        for ending, screen, scheme in LOOKS:
            before()
            browser.look(screen, scheme)
            browser.open(paths[name])
            browser.picture(IMAGES / f"{name}{ending}.png")
