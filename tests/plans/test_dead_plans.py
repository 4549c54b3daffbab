"""What the databases do for the list of dead letters, its filters and its search.

Among 300,000 of them; ``pytest tests/plans/test_dead_plans.py -s`` shows the plans.
"""

import pytest
from django.db import connection
from django.db.models import Count
from django.test.utils import CaptureQueriesContext

from django_jobs.backends.database.counts import open_dead_letters, queues_of_open_dead_letters
from django_jobs.models import FailedJob
from django_jobs.operations.dead_letters import Matching, groups, recount_groups
from django_jobs.operations.search import (
    FOUND_AT_MOST,
    RESOLUTIONS,
    TEXT_WINDOW,
    search,
)
from tests.plans import dead
from tests.plans.explaining import explain

pytestmark = [pytest.mark.plans, pytest.mark.timeout(600), pytest.mark.django_db]

LETTERS = 300_000
PAGE = 50


@pytest.fixture(scope="module", params=[False, True], ids=["a tenth open", "nine tenths open"])
def letters(request, django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        dead.empty(connection)
        dead.fill(connection, LETTERS, mostly_open=request.param)
        recount_groups()
        dead.analyze(connection)
        yield FailedJob.objects.order_by("-failed_at", "-id")
        dead.empty(connection)
        connection.close()


def plans_of(queryset):
    with CaptureQueriesContext(connection) as sent:
        list(queryset)
    plans = [explain(connection, query["sql"], None) for query in sent.captured_queries]
    for plan in plans:
        print(plan)
    return plans


def assert_in_order(queryset, at_most=4 * PAGE):
    """Read in the order of an index, and hardly further than the page goes."""
    (plan,) = plans_of(queryset.values_list("pk", flat=True)[:PAGE])
    assert plan.covered, plan.text
    assert plan.sorted_rows == 0, plan.text
    assert plan.rows <= at_most, plan.text


@pytest.mark.parametrize("resolution", [*RESOLUTIONS, "nothing-like-that"])
def test_a_page_of_one_resolution(letters, resolution):
    assert_in_order(letters.filter(resolution=resolution))


def test_a_page_of_all(letters):
    assert_in_order(letters)


@pytest.mark.parametrize(
    "narrowed",
    [
        {"queue": "queue-1"},
        {"queue": "queue-4"},
        {"handler": "shop.jobs.handler_3"},
        {"reason": "timed-out"},
        {"reason": "nobody"},
        {"fingerprint": "nobody"},
    ],
    ids=str,
)
def test_a_page_of_open_ones_with_one_more_condition(letters, narrowed):
    assert_in_order(letters.filter(resolution="", **narrowed))


@pytest.mark.parametrize("resolution", [{"resolution": ""}, {}], ids=["open", "all"])
@pytest.mark.parametrize(
    "narrowed",
    [
        {"queue": "queue-1", "reason": "rejected-signature"},
        {"queue": "queue-1", "handler": "shop.jobs.handler_3"},
        {"handler": "shop.jobs.handler_1", "reason": "rejected-signature"},
        {"queue": "queue-4", "reason": "timed-out"},
        {"queue": "queue-1", "handler": "shop.jobs.handler_1", "reason": "rejected-signature"},
    ],
    ids=lambda said: ", ".join(said.values()),
)
def test_two_conditions_that_leave_nothing_together_are_judged_in_an_index(
    letters, narrowed, resolution
):
    (plan,) = plans_of(letters.filter(**resolution, **narrowed).values_list("pk")[:PAGE])
    assert plan.covered, plan.text
    if connection.vendor == "postgresql":  # MariaDB counts index entries as rows
        assert plan.rows <= PAGE, plan.text


def test_all_of_one_queue_are_read_in_order(letters):
    (plan,) = plans_of(letters.filter(queue="queue-1").values_list("pk", flat=True)[:PAGE])
    assert plan.covered, plan.text
    assert plan.sorted_rows == 0, plan.text


def test_a_name_reads_what_it_finds(letters):
    one = letters[LETTERS // 2]
    for text in (str(one.job_id), str(one.job_id)[:13], one.trace_id, one.trace_id[:12], "zebra"):
        with CaptureQueriesContext(connection) as sent:
            search(letters, text, payloads=False)
        for query in sent.captured_queries:
            plan = explain(connection, query["sql"], None)
            print(plan)
            assert not plan.scans, plan.text
            # What is no whole name is looked for in the window as well.
            limit = FOUND_AT_MOST + 1 if text == str(one.job_id) else TEXT_WINDOW + 1
            assert plan.rows <= limit, plan.text


def test_a_name_within_a_filter_is_looked_up_in_an_index(letters):
    narrowed = letters.filter(queue="queue-4")
    with CaptureQueriesContext(connection) as sent:
        search(narrowed, letters[7].fingerprint[:6], payloads=False)
    by_name = [query["sql"] for query in sent.captured_queries if "fingerprint" in query["sql"]]
    assert by_name
    for sql in by_name:
        plan = explain(connection, sql, None)
        print(plan)
        assert not plan.scans, plan.text
        assert plan.rows <= LETTERS // 500, plan.text


def test_groups_are_not_counted_from_dead_letters(letters):
    with CaptureQueriesContext(connection) as sent:
        assert len(groups(limit=1000, resolved=True)) == 500
    assert "django_jobs_failedjob" not in sent.captured_queries[0]["sql"]


def test_a_run_reads_on_by_primary_key(letters):
    matching = Matching(queue="queue-1").letters("default").order_by("pk")
    last = letters.order_by("-pk").values_list("pk", flat=True).first()
    (plan,) = plans_of(
        matching.filter(pk__gt=last - LETTERS // 2).values_list("pk", flat=True)[:PAGE]
    )
    assert not plan.scans, plan.text


def test_the_open_ones_of_each_queue_are_counted_without_reading_the_others(letters):
    most = 1_000
    with CaptureQueriesContext(connection) as sent:
        found = open_dead_letters("default", queues_of_open_dead_letters("default"), most)
    counted = {dead.queue: dead.letters for dead in found}
    there = letters.filter(resolution="").order_by().values_list("queue").annotate(Count("pk"))
    assert counted == {queue: min(count, most) for queue, count in there}
    names, counts = [query["sql"] for query in sent.captured_queries if "failed" in query["sql"]]
    # To group a thousand rows MariaDB makes a table of its own, which no plan here may have.
    for sql in [names] if connection.vendor == "mysql" else [names, counts]:
        plan = explain(connection, sql, None)
        print(plan)
        assert not plan.scans, plan.text
        assert plan.covered, plan.text
        assert plan.rows <= 2 * (most + 1) * max(len(counted), 1), plan.text
