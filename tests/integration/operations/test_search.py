"""Searching: by a name in every database's index, by text in a window, secrets by nobody."""

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs.models import FailedJob
from django_jobs.operations import search as searching
from django_jobs.operations.search import search
from testproject.shop.jobs import doomed, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db


def found(text, payloads=True):
    answer = search(FailedJob.objects.all(), text, payloads=payloads)
    return sorted(FailedJob.objects.filter(answer.wanted).values_list("pk", flat=True))


def test_a_name_in_full_or_by_how_it_begins():
    die()
    wanted = die(doomed.using(trace_id="Trace_1%x").prepare(), fingerprint="ab12" * 8)
    job_id = str(wanted.job_id)
    for word in (
        job_id, job_id.upper(), job_id.replace("-", ""), job_id[:-3], str(wanted.pk),
        "Trace_1%x", "Trace_1%", "Trace_", "ab12" * 8, "ab1", "AB12", "ab1 Trace", f"ab1 {job_id}",
    ):  # fmt: skip
        assert found(word) == [wanted.pk], word
    for word in ("trace_1", "TraceX1", "ab13", "race_1", f"ab1 {job_id[:-1]}0x"):
        assert found(word) == [], word


@pytest.mark.parametrize("trace_id", ["a-b", "ab-c", "ÄB", "a b", "Z", "_x", "a\U0001f600b"])
def test_beginnings_are_exact_under_every_collation(trace_id):
    wanted = die(doomed.using(trace_id=trace_id).prepare())
    die(doomed.using(trace_id=trace_id.swapcase() + "!").prepare())
    rows = FailedJob.objects.filter(searching.begins("default", "trace_id", trace_id))
    expected = {wanted.pk} | {
        row.pk for row in FailedJob.objects.all() if row.trace_id.startswith(trace_id)
    }
    assert {row.pk for row in rows} == expected


def test_text_when_no_name_fits():
    wanted = die(error_message='the gateway said: 50% of Zürich’s mail is "lost"')
    die(error_message="nothing of the kind")
    for text in ("gateway", "GATEWAY said:", "50%", "Zürich", '"lost"', "said: RuntimeError"):
        answer = search(FailedJob.objects.all(), text, payloads=False)
        assert (answer.keys, answer.by_text, answer.since) == ([wanted.pk], True, None), text
    assert found("50_") == []


def test_text_only_among_the_latest(monkeypatch):
    monkeypatch.setattr(searching, "TEXT_WINDOW", 2)
    letters = [die(error_message=f"needle {number}") for number in range(4)]
    answer = search(FailedJob.objects.all(), "needle", payloads=False)
    assert answer.keys == [letters[3].pk, letters[2].pk]
    assert answer.since == letters[2].failed_at
    monkeypatch.setattr(searching, "FOUND_AT_MOST", 1)
    assert search(FailedJob.objects.all(), "needle", payloads=False).more


def test_a_name_is_looked_for_within_what_the_letters_are_narrowed_to(monkeypatch):
    monkeypatch.setattr(searching, "FOUND_AT_MOST", 2)
    for _ in range(4):
        die(fingerprint="ab12" * 8)
    wanted = die(send_receipt.prepare(order_id=1), fingerprint="ab12" * 8)
    narrowed = FailedJob.objects.filter(handler=wanted.handler)
    answer = search(narrowed, "ab12", payloads=True)
    assert (answer.keys, answer.more) == ([wanted.pk], False)


def test_of_several_words_the_one_that_names_few_decides(monkeypatch):
    monkeypatch.setattr(searching, "FOUND_AT_MOST", 2)
    job = doomed.using(trace_id="checkout-1")
    for _ in range(5):
        die(job.prepare(), fingerprint="ab12" * 8)
    wanted = die(job.prepare(), fingerprint="cd34" * 8)
    for text, keys in (
        ("checkout- cd34", [wanted.pk]),
        ("cd34 checkout-", [wanted.pk]),
        (f"checkout- {wanted.pk} cd3", [wanted.pk]),
        ("checkout- ab1 cd34", []),
    ):
        answer = search(FailedJob.objects.all(), text, payloads=False)
        assert (answer.keys, answer.more) == (keys, False), text


def test_where_every_word_names_too_many_it_says_that_there_may_be_more(monkeypatch):
    monkeypatch.setattr(searching, "FOUND_AT_MOST", 2)
    for number in range(8):
        trace_id = f"checkout-{number % 2}"
        die(doomed.using(trace_id=trace_id).prepare(), fingerprint=f"{number // 4}f" * 16)
    answer = search(FailedJob.objects.all(), "checkout-1 1f", payloads=False)
    assert answer.more
    told = FailedJob.objects.filter(pk__in=answer.keys)
    assert {(row.trace_id, row.fingerprint[:2]) for row in told} <= {("checkout-1", "1f")}


@pytest.mark.parametrize("word", ["404", "dead", "bad", "feed"])
def test_a_word_that_may_be_a_name_is_looked_for_as_text_too(word):
    by_text = die(error_message=f"the answer was {word}")
    FailedJob.objects.filter(pk=by_text.pk).update(fingerprint="1" * 32)
    named = die(fingerprint=(word + "0" * 32)[:32])
    answer = search(FailedJob.objects.all(), word, payloads=False)
    assert sorted(answer.keys) == [by_text.pk, named.pk]
    assert (answer.named, answer.by_text) == (1, True)


def test_a_whole_id_is_looked_for_as_nothing_else():
    wanted = die()
    die(error_message=f"as {wanted.job_id} said")
    answer = search(FailedJob.objects.all(), str(wanted.job_id), payloads=True)
    assert (answer.keys, answer.by_text) == ([wanted.pk], False)


def test_what_is_in_a_body_unseen_does_not_use_up_what_may_be_found(monkeypatch):
    monkeypatch.setattr(searching, "FOUND_AT_MOST", 2)
    monkeypatch.setattr(searching, "READ_AT_ONCE", 2)
    wanted = [die(error_message="the queue is full") for _ in range(3)]
    for _ in range(5):
        die()  # "queue" stands in the body of every job, where nobody sees it
    answer = search(FailedJob.objects.all(), "queue", payloads=True)
    assert answer.keys == [wanted[2].pk, wanted[1].pk]
    assert answer.more


def test_payloads_for_those_who_may_see_them():
    wanted = die(send_receipt.using(meta={"who": "Jürgen"}).prepare(order_id=170417))
    for text in ("170417", "Jürgen", "jürgen", "order_id"):
        assert found(text) == [wanted.pk], text
        assert found(text, payloads=False) == [], text


def test_what_is_redacted_is_found_by_nobody():
    failed = die()
    payload = {"args": [{"api_key": "hush-1"}], "kwargs": {"password": "hush-2", "to": "me@x"}}
    body = {**json.loads(failed.body), "payload": payload, "traceId": "hush-3"}
    FailedJob.objects.update(body=json.dumps(body))
    assert found("me@x") == [failed.pk]
    for payloads in (True, False):
        assert found("hush", payloads=payloads) == []


@pytest.mark.parametrize("body", ["", "needle", "[needle", '["needle"]', "[" * 5000])
def test_survives_any_body(body):
    failed = die()
    FailedJob.objects.update(body=body)
    assert found("needle") == []
    assert found("RuntimeError") == [failed.pk]


@pytest.mark.parametrize("text", ["", "  ", "\x00", "%", "_", "\\", "'", "a" * 5000, "x " * 500])
def test_takes_any_text(text):
    die()
    found(text)


def test_takes_few_queries():
    die()
    with CaptureQueriesContext(connection) as sent:
        for text in ("12345678 12345678 abc def ghi", "nothing of it at all"):
            found(text)
    assert len(sent) <= 2 * 8
