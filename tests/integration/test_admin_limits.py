"""Limits of several queues at once: what is left empty stays as it is in each."""

import pytest
from django.urls import reverse

from django_jobs.operations.queues import limit_queue, queue_settings

pytestmark = pytest.mark.django_db
IDS = ["database/mail", "database/reports"]


@pytest.fixture(autouse=True)
def limited():
    limit_queue("mail", {"rate_limit": "60/m", "concurrency": 3}, by="ada")
    limit_queue("reports", {"rate_limit": "5/s", "concurrency": 7}, by="ada")


def post(client, *ids, **data):
    url = reverse("admin:django_jobs_queuecontrol_limit")
    return client.post(url, {"ids": ids, "confirmed": "1", **data}, follow=True)


def limits():
    told = (queue_settings(queue) for queue in ("mail", "reports"))
    return [(one.rate_limit, one.concurrency) for one in told]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rate_limit": "9/s"}, [("9/s", 3), ("9/s", 7)]),
        ({"concurrency": "2"}, [("60/m", 2), ("5/s", 2)]),
        ({"concurrency": "0"}, [("60/m", 0), ("5/s", 0)]),
        ({"rate_limit": "none", "concurrency": "none"}, [("none", None), ("none", None)]),
        ({"rate_limit": "settings"}, [("", 3), ("", 7)]),
    ],
)
def test_what_is_said_is_set_and_no_more(admin_client, given, expected):
    answer = post(admin_client, *IDS, **given)
    assert [str(message) for message in answer.context["messages"]] == ["Limits of 2 set."]
    assert limits() == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "Say at least one limit."),
        ({"rate_limit": "soon"}, "soon"),
        ({"concurrency": "many"}, "Enter a whole number."),
        ({"concurrency": "-1"}, "greater than or equal to 0"),
    ],
)
def test_what_makes_no_sense_is_refused(admin_client, given, told):
    before = limits()
    assert told in post(admin_client, *IDS, **given).text
    assert limits() == before


def test_one_queue_shows_what_it_has_and_takes_empty_for_none(admin_client):
    url = reverse("admin:django_jobs_queuecontrol_limit")
    page = admin_client.get(url, {"ids": IDS[0]}).text
    assert 'value="60/m"' in page
    post(admin_client, IDS[0], rate_limit="", concurrency="")
    assert limits() == [("", None), ("5/s", 7)]
