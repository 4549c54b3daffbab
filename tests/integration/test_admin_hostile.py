# ruff: noqa: E501, RUF001 - what attackers write is not to be laid out
"""Hundreds of hostile strings in every field that the dead-letter pages show.

Whatever a string holds, a page has the elements and attributes that it has with a harmless
one: markup that got out of its place would be one more.
"""

import json
import uuid
from collections import Counter
from html.parser import HTMLParser

import pytest
from django.urls import reverse
from django.utils import timezone

from django_jobs.models import FailedJob, FailureGroup, JobAttempt, ResolutionRun
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db
LIST = "/admin/django_jobs/failedjob/"
CLOSERS = ["", '"', "'", '">', "'>", "</textarea>", "</pre>", "</title>", "-->", "]]>", "</script>",
           "</style>", "{{", "{%", "`", "\\", "&lt;", "&#60;", "\u202e", "\x9b", "</dd></dl>", "</td>",
           "\r\n\r\n", "%3C", "</summary></details>"]  # fmt: skip
MARKUP = ["<script>hurt()</script>", "<img src=x onerror=hurt()>", "<svg/onload=hurt()>", "<b>",
          "<a href=javascript:hurt()>x</a>", "<iframe srcdoc='<script>hurt()</script>'></iframe>",
          "<style>*{display:none}</style>", "<form action=//evil><input name=csrfmiddlewaretoken>",
          " onmouseover=hurt() x=", " autofocus onfocus=hurt() ", "{% load static %}{{ request }}",
          "<!--", "<meta http-equiv=refresh content='0;url=//evil'>", "<base href=//evil>",
          "javascript:hurt()", "data:text/html,<script>hurt()</script>", "<object data=x>",
          "<math><mi//xlink:href='data:x,<script>hurt()</script>'>", "<details open ontoggle=hurt()>",
          "＜script＞", "<scr\0ipt>".replace("\0", "\u2028"), "<p style=color:red>"]  # fmt: skip
HOSTILE = [closer + markup for closer in CLOSERS for markup in MARKUP]
PER_PAGE = 40


class Structure(HTMLParser):
    """The elements of a page with the names of their attributes, and no text."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, *(name for name, _ in attrs)))
        for name, value in attrs:
            if name in {"href", "src", "action", "formaction"}:
                assert not (value or "").lower().startswith(("javascript:", "data:", "//")), value

    def handle_comment(self, data):
        self.found.append(("comment", len(data)))


def structure_of(client, url, query=None):
    answer = client.get(url, query or {})
    assert answer.status_code == 200, url
    return Structure(answer.text).found


def fill(failed, attempt, run, group, strings):
    """Every text that is shown holds the strings, cut to what its column takes."""
    text = "\n".join(strings)

    def cut(length):
        return text[:length]

    payload = {"args": list(strings), "kwargs": {one: one for one in strings}}
    common = {"error_type": cut(255), "error_message": text, "traceback": text, "output": text}
    FailedJob.objects.filter(pk=failed.pk).update(
        **common, queue=cut(64), handler=cut(255), name=cut(255), reason=cut(64), tenant=cut(255),
        trace_id=cut(64), schedule=cut(255), key_id=cut(64), fingerprint=cut(64), backend=cut(64),
        resolution_note=text, resolved_by=cut(150), replay_of=uuid.uuid4(), replayed_as=uuid.uuid4(),
        body=json.dumps({"payload": payload, "meta": payload}),
    )  # fmt: skip
    JobAttempt.objects.filter(pk=attempt.pk).update(**common, outcome=cut(16), worker=cut(128))
    FailureGroup.objects.filter(pk=group.pk).update(
        fingerprint=cut(64), handler=cut(255), reason=cut(64), error_type=cut(255),
        error_message=cut(255),
    )  # fmt: skip
    matching = {"queue": text, "handler": text, "reason": text, "fingerprint": text}
    ResolutionRun.objects.filter(pk=run.pk).update(
        reason=text, started_by=cut(150), ended_by=cut(150), obstacle=text, carrier=cut(255),
        matching=matching, problems=[[failed.pk, text]] * 3,
    )  # fmt: skip


def new_rows():
    """A dead letter with its attempt, a run, a group."""
    failed = die(fingerprint=uuid.uuid4().hex)
    run = ResolutionRun.objects.create(
        verb="replay", matching={}, total=3, upto=3, started_at=timezone.now()
    )
    group = FailureGroup.objects.get(fingerprint=failed.fingerprint)
    return failed, JobAttempt.objects.get(job_id=failed.job_id), run, group


def lists():
    return [
        (LIST, {"resolution": "all"}),
        (f"{LIST}groups/", {}),
        (reverse("admin:django_jobs_resolutionrun_changelist"), {}),
    ]


def pages(failed, run):
    return [
        (reverse("admin:django_jobs_failedjob_change", args=[failed.pk]), {}),
        (reverse("admin:django_jobs_resolutionrun_change", args=[run.pk]), {}),
        (f"{LIST}replay/", {"ids": failed.pk}),
    ]


def test_there_are_enough_of_them():
    assert len(set(HOSTILE)) >= 500


def test_in_every_field_change_no_page(admin_client):
    rows = new_rows()
    failed, _attempt, run, _group = rows
    fill(*rows, ["harmless"])
    expected = [structure_of(admin_client, *page) for page in pages(failed, run)]
    for number, hostile in enumerate(HOSTILE):
        # One at a time, so that short columns hold it too, wherever they are cut.
        fill(*rows, [hostile])
        # The page in between shows less, and takes longer.
        some = pages(failed, run)[: 2 + (number % 5 == 0)]
        for page, harmless in zip(some, expected, strict=False):
            assert structure_of(admin_client, *page) == harmless, (hostile, page)


def test_in_every_column_change_no_list(admin_client):
    many = [new_rows() for _ in range(PER_PAGE)]
    strings = [f"harmless {number}" for number in range(PER_PAGE)]
    for rows, one in zip(many, strings, strict=True):
        fill(*rows, [one])
    expected = [Counter(structure_of(admin_client, *page)) for page in lists()]
    assert all(found[("tr",)] >= PER_PAGE or found[("li",)] >= PER_PAGE for found in expected)
    for first in range(0, len(HOSTILE), PER_PAGE):
        # The filters offer each value once, so there have to be as many different ones.
        batch = [f"{one}{number}" for number, one in enumerate(HOSTILE[first : first + PER_PAGE])]
        for rows, one in zip(many, [*batch, *strings], strict=False):
            fill(*rows, [one])
        for page, harmless in zip(lists(), expected, strict=True):
            assert Counter(structure_of(admin_client, *page)) == harmless, (batch, page)


def test_in_addresses_and_forms_change_no_page(admin_client):
    failed = die()
    edit = reverse("admin:django_jobs_failedjob_edit", args=[failed.pk])
    expected = Structure(admin_client.post(edit, {"payload": "harmless", "reason": "x"}).text).found
    searched = Structure(admin_client.get(LIST, {"q": "harmless"}).text).found
    begun = Structure(admin_client.get(f"{LIST}replay-all/", {"queue": "harmless"}).text).found
    for hostile in HOSTILE[::5]:
        edited = admin_client.post(edit, {"payload": hostile, "reason": hostile})
        assert Structure(edited.text).found == expected, hostile
        assert Structure(admin_client.get(LIST, {"q": hostile}).text).found == searched, hostile
        narrowed = admin_client.get(f"{LIST}replay-all/", {"queue": hostile})
        assert Structure(narrowed.text).found == begun, hostile


def test_an_escape_would_be_noticed(admin_client, monkeypatch):
    from django.utils.safestring import mark_safe  # noqa: PLC0415 - what the pages never do

    rows = new_rows()
    fill(*rows, ["harmless"])
    (page, *_rest) = lists()
    harmless = structure_of(admin_client, *page)
    fill(*rows, ["<b>harmless</b>"])
    assert structure_of(admin_client, *page) == harmless
    careless = "django_jobs.admin.dead_letters.error_text"
    monkeypatch.setattr(careless, lambda _type, text: mark_safe(text))  # noqa: S308 - on purpose
    assert structure_of(admin_client, *page) != harmless
