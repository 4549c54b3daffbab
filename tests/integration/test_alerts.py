"""The recipe that mails and posts when a job dies, as the documentation prints it."""

import json
import re
from pathlib import Path
from textwrap import dedent

import django
import pytest
from django.core import mail
from django.core.cache import cache

from django_jobs.models import FailedJob, Job
from django_jobs.signals import job_dead
from django_jobs.worker.build import process_once
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db

PAGE = Path(__file__).resolve().parents[2] / "docs/howto/signals-for-dead-jobs.md"


@pytest.fixture
def _recipe(settings):
    text = PAGE.read_text("utf-8")
    (code,) = re.findall(r"```python\n(# shop/alerts.py\n.*?)```", text, re.DOTALL)
    (allowed,) = re.findall(r"^    DJANGO_JOBS = \{\n(?:    .*\n)*", text, re.MULTILINE)
    told = {}
    exec(dedent(allowed), told)  # noqa: S102 - the page's own words
    settings.DJANGO_JOBS = told["DJANGO_JOBS"]
    ann = "ann@example.com"
    settings.ADMINS = [ann if django.VERSION >= (6,) else ("Ann", ann)]
    cache.clear()
    names = {"__name__": "shop.alerts"}
    exec(code, names)  # noqa: S102 - as above
    yield
    job_dead.disconnect(dispatch_uid="alerts.mail_or_post")


def die():
    doomed.enqueue()
    assert process_once("default").status == "dead-lettered"
    return FailedJob.objects.latest("pk")


@pytest.mark.usefixtures("_recipe")
def test_the_first_of_a_kind_is_mailed_and_posted_and_the_next_are_not():
    failed = die()
    die()
    (sent,) = mail.outbox
    assert failed.handler in sent.subject
    assert failed.traceback in sent.body
    assert str(failed.job_id) in sent.body
    posted = Job.objects.get(queue="alerts")
    assert posted.handler == "url"
    payload = json.loads(posted.body)["payload"]
    assert payload["url"] == "https://chat.example.com/hooks/jobs"
    assert failed.handler in payload["body"]["text"]
    cache.clear()
    die()
    assert len(mail.outbox) == 2


@pytest.mark.usefixtures("_recipe")
def test_a_post_that_dies_posts_nothing():
    die()
    Job.objects.update(body="{}")
    assert process_once("alerts").status == "rejected"
    assert len(mail.outbox) == 1
    assert not Job.objects.exists()
