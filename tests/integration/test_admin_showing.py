"""The admin: what a dead letter looks like, and what is never shown."""

import json
import re
import uuid
from pathlib import Path

import pytest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

import django_jobs
from django_jobs.admin.payloads import laid_out, why_it_died
from django_jobs.models import (
    FailedJob,
    Job,
    JobAttempt,
    JobResult,
    OperatorEvent,
    QueueControl,
)
from django_jobs.redaction import HIDDEN as REDACTED
from django_jobs.redaction import redacted
from django_jobs.texts import printable
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db

LIST = "/admin/django_jobs/failedjob/"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"


def page_of(failed):
    return reverse("admin:django_jobs_failedjob_change", args=[failed.pk])


def url_of(verb):
    return reverse(f"admin:django_jobs_failedjob_{verb}")


def confirm(client, verb, *letters, reason="", follow=True):
    data = {"ids": [letter.pk for letter in letters], "confirmed": "1", "reason": reason}
    return client.post(url_of(verb), data, follow=follow)


def said(answer):
    return [str(message) for message in answer.context["messages"]]


def die_again(job):
    from django_jobs.backends.base import Failure  # noqa: PLC0415 - for this one
    from django_jobs.backends.registry import backends  # noqa: PLC0415 - for this one

    (lease,) = backends["database"].fetch([job.queue], 1, 30)
    backends["database"].abandon(lease, Failure(reason="exhausted"))
    return FailedJob.objects.get(job_id=job.pk)


class TestDetail:
    def test_tells_the_whole_story(self, admin_client):
        failed = die(doomed.using(trace_id="t-1", meta={"a": "b"}).prepare())
        shown = admin_client.get(page_of(failed)).text
        for wanted in (
            why_it_died("exhausted"),
            str(failed.job_id),
            "RuntimeError: never",
            "what it printed",
            "Traceback of the first attempt",
            "a-host:17",
            "&quot;kwargs&quot;: {}",
            f"Fits, made with the key {failed.key_id}.",
            "t-1",
            f"?fingerprint={failed.fingerprint}",
            "Replay…",
            "Discard…",
        ):
            assert wanted in shown, wanted

    def test_of_a_forged_one_offers_to_discard_only(self, admin_client):
        failed = die()
        FailedJob.objects.update(body=failed.body.replace('"args":[]', '"args":[1]'))
        shown = admin_client.get(page_of(failed)).text
        assert "Cannot be verified: the signature does not fit the body." in shown
        assert "Replay…" not in shown
        assert "Discard…" in shown

    def test_says_what_is_in_the_way_of_a_replay(self, admin_client, settings):
        failed = die()
        settings.DJANGO_JOBS = {"QUEUES": {"default": {"HANDLERS": []}}}
        shown = admin_client.get(page_of(failed)).text
        assert "does not allow the handler" in shown
        assert "Replay…" not in shown

    def test_links_both_ends_of_a_replay(self, admin_client):
        failed = die()
        confirm(admin_client, "replay", failed)
        job = Job.objects.get()
        shown = admin_client.get(page_of(failed)).text
        assert reverse("admin:django_jobs_job_change", args=[job.pk]) in shown
        assert "(ready)" in shown
        again = die_again(job)
        assert page_of(failed) in admin_client.get(page_of(again)).text
        assert page_of(again) in admin_client.get(page_of(failed)).text
        FailedJob.objects.filter(pk=again.pk).delete()
        assert "nothing of it was kept" in admin_client.get(page_of(failed)).text

    @pytest.mark.parametrize("body", ["", "no json", "[]", "{}", '{"payload"', "[" * 5000])
    def test_survives_any_body(self, admin_client, body):
        failed = die()
        FailedJob.objects.update(body=body)
        assert "cannot be read as a job" in admin_client.get(page_of(failed)).text

    def test_of_nothing_goes_back_to_the_index(self, admin_client):
        answer = admin_client.get("/admin/django_jobs/failedjob/4711/change/", follow=True)
        assert answer.status_code == 200
        assert "Perhaps it was deleted" in said(answer)[0]

    def test_cannot_be_posted_to(self, admin_client):
        assert admin_client.post(page_of(die()), {"queue": "x"}).status_code == 405


class TestPayload:
    def test_is_shown_to_those_who_may_see_it(self, someone):
        failed = die(send_receipt.prepare(order_id=170417))
        client = someone("view_failedjob", "view_payload")
        assert "170417" in client.get(page_of(failed)).text

    def test_is_kept_from_others(self, someone):
        failed = die(send_receipt.using(meta={"who": "secretive"}).prepare(order_id=170417))
        shown = someone("view_failedjob").get(page_of(failed)).text
        assert "170417" not in shown
        assert "secretive" not in shown
        assert "Can view the payload of jobs" in shown

    @pytest.mark.parametrize("allowed", [True, False])
    def test_of_live_jobs_and_results_too(self, someone, allowed):
        handle = send_receipt.using(meta={"who": "secretive"}).enqueue(order_id=170417)
        body = Job.objects.get().body
        JobResult.objects.create(
            job_id=uuid.uuid4(),
            backend="database",
            queue="mail",
            handler="h",
            status="succeeded",
            value='"170417 in return"',
            body=body,
            expires=0,
        )
        permissions = ["view_job", "view_jobresult"] + ["view_payload"] * allowed
        client = someone(*permissions)
        for url in (
            reverse("admin:django_jobs_job_change", args=[handle.id]),
            reverse("admin:django_jobs_jobresult_change", args=[JobResult.objects.get().pk]),
        ):
            shown = client.get(url).text
            assert ("170417" in shown) is allowed
            assert ("secretive" in shown) is allowed

    def test_has_its_secrets_redacted(self, admin_client):
        failed = die()
        payload = {"args": [{"nested": {"API-Key": "hush1"}}], "kwargs": {"db_Password": ["hush2"]}}
        meta = {"Cookie": "hush3"}
        body = {**json.loads(failed.body), "payload": payload, "meta": meta}
        FailedJob.objects.update(body=json.dumps(body), meta=meta)
        shown = admin_client.get(page_of(failed)).text
        assert "hush" not in shown
        assert shown.count(REDACTED) == 3

    @pytest.mark.parametrize(
        "key",
        [
            "password",
            "DB_PASSWORD",
            "client_secret",
            "accessToken",
            "api_key",
            "apikey",
            "API-KEY",
            "Authorization",
            "x-signature",
            "Set-Cookie",
        ],
    )
    def test_redacts_by_key_at_any_depth(self, key):
        value = {"a": [{key: {"deep": "x"}}], key: 1, "fine": "y"}
        assert redacted(value) == {"a": [{key: REDACTED}], key: REDACTED, "fine": "y"}

    def test_shows_characters_that_would_hide(self):
        assert printable("a\u202eb\x1b[31mc\nd\te") == "a\\u202eb\\x1b[31mc\nd\te"
        assert printable("Zürich 東京 🎉") == "Zürich 東京 🎉"
        assert "\\u202e" in laid_out({"name": "\u202e"})


def hostile_rows():
    """One row in each table with markup in every text field that takes it."""
    failed = die()
    moment = timezone.now()
    fields = {
        "backend": HOSTILE[:64],
        "queue": HOSTILE[:64],
        "handler": HOSTILE,
        "name": HOSTILE,
        "trace_id": HOSTILE[:64],
        "trace_parent": HOSTILE[:64],
        "tenant": HOSTILE,
        "schedule": HOSTILE,
        "key_id": HOSTILE[:64],
        "meta": {HOSTILE: HOSTILE},
        "body": json.dumps({"payload": {HOSTILE: [HOSTILE]}, "meta": {HOSTILE: HOSTILE}}),
    }
    error = {
        "error_type": HOSTILE,
        "error_message": HOSTILE,
        "traceback": HOSTILE,
        "output": HOSTILE,
    }
    FailedJob.objects.update(
        **fields,
        **error,
        reason=HOSTILE[:64],
        fingerprint=HOSTILE[:64],
        resolution_note=HOSTILE,
        resolved_by=HOSTILE,
        replay_of=uuid.uuid4(),
        replayed_as=uuid.uuid4(),
    )
    handle = doomed.enqueue()
    Job.objects.update(**fields, worker=HOSTILE, concurrency_key=HOSTILE, unique_key=HOSTILE[:64])
    JobAttempt.objects.update(**error, outcome="<b>", backend=HOSTILE[:64], worker=HOSTILE)
    short = {"backend": HOSTILE[:64], "queue": HOSTILE[:64]}
    result = JobResult.objects.create(
        job_id=uuid.uuid4(),
        **short,
        handler=HOSTILE,
        name=HOSTILE,
        status="<script>",
        value=json.dumps({HOSTILE: HOSTILE}),
        output=HOSTILE,
        worker=HOSTILE,
        tenant=HOSTILE,
        trace_id=HOSTILE[:64],
        body=fields["body"],
        expires=0,
    )
    event = OperatorEvent.objects.create(
        at=moment,
        actor=HOSTILE,
        action=HOSTILE[:64],
        **short,
        subject=HOSTILE,
        reason=HOSTILE,
        detail={HOSTILE: HOSTILE},
    )
    control = QueueControl.objects.create(
        **short, reason=HOSTILE, rate_limit="<script>", changed_by=HOSTILE
    )
    attempt = JobAttempt.objects.get()
    return {
        "failedjob": failed.pk,
        "job": handle.id,
        "jobresult": result.pk,
        "jobattempt": attempt.pk,
        "operatorevent": event.pk,
        "queuecontrol": control.pk,
    }


class TestHostileStrings:
    def assert_harmless(self, answer):
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "<img src=x" not in answer.text
        assert not re.search(r"<script>(?!\s*$)", answer.text)
        return answer.text

    def test_in_every_field_of_every_page(self, admin_client):
        rows = hostile_rows()
        for resolution in ("", HOSTILE[:16]):
            FailedJob.objects.update(resolution=resolution)
            for table, pk in rows.items():
                listed = admin_client.get(
                    reverse(f"admin:django_jobs_{table}_changelist"),
                    {"resolution": "all"} if table == "failedjob" else {},
                )
                one = reverse(f"admin:django_jobs_{table}_change", args=[pk])
                assert "&lt;script&gt;" in self.assert_harmless(listed)
                assert "&lt;script&gt;" in self.assert_harmless(admin_client.get(one))

    def test_in_the_pages_in_between(self, admin_client):
        pk = hostile_rows()["failedjob"]
        for verb in ("replay", "discard"):
            asked = admin_client.get(url_of(verb), {"ids": pk, "filters": HOSTILE})
            assert "&lt;script&gt;" in self.assert_harmless(asked)
        data = {"ids": pk, "confirmed": "1", "reason": HOSTILE, "filters": HOSTILE}
        self.assert_harmless(admin_client.post(url_of("replay"), data, follow=True))
        self.assert_harmless(admin_client.post(url_of("discard"), data, follow=True))
        history = reverse("admin:django_jobs_failedjob_history", args=[pk])
        self.assert_harmless(admin_client.get(history))
        for query in ({"q": HOSTILE}, {"queue": HOSTILE}, {"resolution": HOSTILE}):
            self.assert_harmless(admin_client.get(LIST, query))

    def test_pages_bring_no_script_of_their_own(self, admin_client):
        failed = die()
        ours = [page_of(failed), f"{url_of('replay')}?ids={failed.pk}"]
        for url in ours:
            page = admin_client.get(url).text
            assert not re.search(r"<script(?![^>]*\bsrc=)", page)
            assert not re.search(r"\son\w+=", page)
            assert "style=" not in page
            assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


REASON = re.compile(
    r"""(?:Reject(?:ed|ion)\(\s*|Failure\(\s*reason=|reason = |reason=)"([a-z]+(?:-[a-z]+)*)\""""
)
NOT_OF_DEAD_LETTERS = {"revoked"}


def reasons_in_the_code():
    package = Path(django_jobs.__file__).parent
    told = {
        reason
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in {"testing", "admin"}
        for reason in REASON.findall(path.read_text(encoding="utf-8"))
    }
    named = {f"rejected-{name}" for name in ("backend", "queue")}
    not_judged = {"unknown-handler", "unknown-version", "unknown-key", "other-site"}
    return (told | named | not_judged | {"expired"}) - NOT_OF_DEAD_LETTERS


class TestReasons:
    def test_are_all_found(self):
        found = reasons_in_the_code()
        assert {"exhausted", "crashed", "rejected-payload", "cannot-wait", "timed-out"} <= found
        assert len(found) >= 18

    @pytest.mark.parametrize("reason", sorted(reasons_in_the_code()))
    def test_are_each_told_in_plain_words(self, admin_client, reason):
        failed = die(reason=reason)
        told = why_it_died(reason)
        assert "for the reason" not in told
        assert told.endswith((".", "?"))
        assert reason not in told
        assert escape(told) in admin_client.get(page_of(failed)).text

    def test_of_another_release_are_told_as_they_are(self):
        assert why_it_died("of-tomorrow") == "It ended for the reason “of-tomorrow”."
