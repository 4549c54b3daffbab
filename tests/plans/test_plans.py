"""What the databases do for a claim, a promotion and a reap among a million jobs.

Not part of an ordinary run: ``pytest tests/plans -s`` shows the plans. What is explained
is the SQL that the backend really sent, with its parameters.
"""

from statistics import median
from time import perf_counter

import pytest
from django.db import connection, transaction
from django.urls import reverse

from django_jobs.backends.base import Failure, ResultRecord
from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database.claim import FEW, promote
from django_jobs.backends.database.counts import LOOKED_AT, bands, keys_of_suspects
from django_jobs.backends.database.settle import return_claimed
from django_jobs.backends.database.wait import queues_with_blocked, queues_with_due
from django_jobs.management.jobs import Wanted, listed
from django_jobs.models import Job
from django_jobs.operations.explain import COUNTED_AT_MOST
from django_jobs.operations.explain import explain as explain_job
from django_jobs.operations.health import HealthLimits, find_problems
from django_jobs.operations.overview import overview
from tests.benchmarks import bare
from tests.plans.explaining import explain
from tests.plans.filling import BACKEND, QUEUES, READY, RUNNING, SCHEDULED, Table

pytestmark = [pytest.mark.plans, pytest.mark.timeout(180), pytest.mark.django_db]

MILLION = 1_000_000
LIMIT = 100
HOUR = 3_600_000_000
QUEUE = "queue-1"
CLAIM, PROMOTE, REAP = "dj_job_claim", "dj_job_promote", "dj_job_reap"
CONTROL = "dj_control_queue"


@pytest.fixture(scope="module")
def table(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        table = Table(connection)
        table.empty()
        yield table
        table.empty()
        connection.close()


@pytest.fixture(scope="module")
def backend(table):
    return DatabaseBackend(BACKEND, {})


@pytest.fixture(scope="module")
def now(backend):
    return backend.clock.read(connection)


@pytest.fixture(scope="class")
def many_ready(table, now):
    """A million ready in five queues, some running, a few of these lost."""
    table.empty()
    table.add(MILLION, READY, now - HOUR)
    table.add(5_000, RUNNING, now - HOUR, lease_expires=now - HOUR)
    table.add(5_000, RUNNING, now - HOUR, lease_expires=now + HOUR)
    table.analyze()


@pytest.fixture(scope="class")
def few_ready(table, now, backend):
    """Ten thousand ready alone; how long a claim takes."""
    table.empty()
    table.add(10_000, READY, now - HOUR)
    table.analyze()
    return claim_seconds(backend)


@pytest.fixture(scope="class")
def many_scheduled(table, now, few_ready, backend):
    """The same beside a million scheduled for later."""
    table.empty()
    table.add(10_000, READY, now - HOUR)
    table.add(MILLION, SCHEDULED, now + HOUR)
    table.analyze()
    return claim_seconds(backend)


@pytest.fixture(scope="class")
def suddenly_ready(table, now):
    """An empty table was analyzed, and then a million jobs came."""
    table.empty()
    table.analyze()
    table.add(MILLION, READY, now - HOUR)


@pytest.fixture(scope="class")
def suddenly_running(table, now):
    """It was analyzed while the workers were idle, and then they had much to do."""
    table.empty()
    table.add(100_000, READY, now - HOUR)
    table.analyze()
    table.add(20_000, RUNNING, now - HOUR, lease_expires=now + HOUR)


@pytest.fixture(scope="class")
def suddenly_scheduled(table, now):
    table.empty()
    table.add(100_000, READY, now - HOUR)
    table.analyze()
    table.add(100_000, SCHEDULED, now - HOUR)


@pytest.fixture
def long_dead(table, now):
    """A hundred thousand jobs came and went, were analyzed, and an old snapshot keeps them."""
    table.empty()
    table.add(100_000, READY, now - HOUR)
    with bare.connected() as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM django_jobs_job")
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM django_jobs_job")
        table.analyze()
        table.add(10_000, READY, now)
        yield
        reader.execute("ROLLBACK")


def plans_of(call):
    """The plans of every statement that a call sends; nothing it does remains."""
    sent = []

    def listen(execute, sql, params, many, context):
        if sql.startswith(("SELECT", "UPDATE", "DELETE", "WITH")) and "django_jobs_job" in sql:
            sent.append((sql, params))
        return execute(sql, params, many, context)

    with transaction.atomic():
        with connection.execute_wrapper(listen):
            call()
        transaction.set_rollback(True)
    with transaction.atomic():
        plans = [explain(connection, sql, params) for sql, params in sent]
        transaction.set_rollback(True)
    for plan in plans:
        print(plan)
    return plans


def assert_reads_little(plan, at_most):
    assert not plan.scans, plan.text
    assert plan.rows <= at_most, plan.text


def assert_reads_in_order(plan, index, at_most):
    assert plan.indexes == {index}, plan.text
    # MariaDB says that it would sort when it expects to find nothing, and then sorts nothing.
    assert plan.sorted_rows == 0, plan.text
    assert_reads_little(plan, at_most)


def assert_updates_by_primary_key(plan, at_most):
    assert len(plan.indexes) == 1, plan.text
    assert not plan.indexes & {CLAIM, PROMOTE, REAP}, plan.text
    assert_reads_little(plan, at_most)


def assert_claims_well(plans, limit=LIMIT):
    if connection.vendor == "postgresql":
        (claim,) = plans
        # By what it knows of that small table's size, it finds a pause with its index or without.
        assert claim.indexes - {CONTROL} == {CLAIM, PROMOTE}, claim.text
        assert claim.sorted_rows == 0, claim.text
        # Each row is read in the index's order, and once more where it is updated; and the next
        # job that is scheduled.
        assert_reads_little(claim, at_most=2 * limit + 1)
        return
    look, *reads, write = plans
    # Nothing is due: any index that can tell so at once will do.
    assert_reads_little(look, at_most=1)
    assert look.sorted_rows == 0, look.text
    assert len(reads) == (1 if limit <= FEW else 2)  # of many their sizes are read first
    for read in reads:
        assert_reads_in_order(read, CLAIM, at_most=limit)
    assert_updates_by_primary_key(write, at_most=limit)


def assert_promotes_well(plans):
    # PostgreSQL is asked for a claim first, and says that something is due.
    read, write = plans[1:3] if connection.vendor == "postgresql" else plans[:2]
    assert_reads_in_order(read, PROMOTE, at_most=LIMIT)
    assert_updates_by_primary_key(write, at_most=LIMIT)


def assert_settles_well(backend, count):
    leases = backend.fetch([QUEUE], count, 30.0)
    results = {lease.id: ResultRecord(status="succeeded") for lease in leases}
    for settle in (
        lambda: backend.renew(leases, 60.0),
        lambda: backend.nack(leases[0], 5.0),
        lambda: backend.abandon(leases[0], Failure(reason="exhausted")),
        lambda: backend.ack(leases),
        lambda: backend.ack(leases, results),
    ):
        for plan in plans_of(settle):
            # Lists of ids and results are counted as rows too.
            assert_reads_little(plan, at_most=5 * count)


def assert_looks_cheaply(backend, *unnamed):
    """One statement, whether for some queues or for whatever there are (None)."""
    for queues in ([QUEUE], [QUEUE, "empty"], *unnamed):
        (plan,) = plans_of(lambda: backend.wait(queues, 0.0))  # noqa: B023 - called at once
        # Of the names it makes a table of its own, and reads that twice.
        assert_reads_little(plan, at_most=8 if queues else 8 * (QUEUES + 1))
        assert plan.sorted_rows <= 1, plan.text


def claim_seconds(backend):
    def one():
        start = perf_counter()
        assert len(backend.fetch([QUEUE], LIMIT, 30.0)) == LIMIT
        return perf_counter() - start

    return median(one() for _ in range(9))


class TestAmongAMillionReadyJobs:
    pytestmark = pytest.mark.usefixtures("many_ready")

    def test_a_claim_among_a_million_ready_jobs_reads_what_it_takes(self, backend):
        assert_claims_well(plans_of(lambda: backend.fetch([QUEUE], LIMIT, 30.0)))

    def test_a_claim_of_one_job_reads_one_row(self, backend):
        assert_claims_well(plans_of(lambda: backend.fetch([QUEUE], 1, 30.0)), limit=1)

    def test_an_empty_queue_is_found_empty_at_once(self, backend):
        for plan in plans_of(lambda: backend.fetch(["empty"], LIMIT, 30.0)):
            assert plan.sorted_rows == 0, plan.text
            assert_reads_little(plan, at_most=1)

    def test_the_reaper_reads_the_lost_jobs_and_no_others(self, backend):
        read, lock, write = plans_of(lambda: backend.reap_expired(limit=LIMIT))
        assert_reads_in_order(read, REAP, at_most=LIMIT)
        assert_reads_little(lock, at_most=LIMIT)
        assert_updates_by_primary_key(write, at_most=LIMIT)

    def test_what_an_unanswered_claim_took_is_found_among_what_runs(self, backend):
        token = backend.fetch([QUEUE], LIMIT, 30.0)[0].token
        read, write = plans_of(lambda: return_claimed(backend.database, backend.clock, token))
        assert read.indexes == {REAP}, read.text
        assert_reads_little(read, at_most=10_000 + LIMIT)
        assert_updates_by_primary_key(write, at_most=LIMIT)

    def test_the_reaper_of_one_queue_reads_running_jobs_at_most(self, backend):
        read, lock, write = plans_of(lambda: backend.reap_expired(QUEUE, limit=LIMIT))
        assert_reads_little(read, at_most=5_000)
        assert_reads_little(lock, at_most=LIMIT)
        assert_updates_by_primary_key(write, at_most=LIMIT)

    @pytest.mark.parametrize("count", [1, LIMIT])
    def test_a_settle_reads_the_rows_it_settles(self, backend, count):
        assert_settles_well(backend, count)

    def test_the_queues_are_found_without_reading_their_jobs(self, backend):
        for work in (backend.queues, lambda: backend.queues_due(float("inf"))):
            (plan,) = plans_of(work)
            assert plan.sorted_rows <= 1, plan.text
            assert_reads_little(plan, at_most=8 * (QUEUES + 1))

    def test_the_queues_to_tidy_are_found_without_reading_their_jobs(self, backend):
        for work in (
            lambda: queues_with_due("default", backend.clock),
            lambda: queues_with_blocked("default"),
        ):
            (plan,) = plans_of(work)
            assert_reads_little(plan, at_most=8 * (QUEUES + 1))

    def test_an_idle_look_reads_a_few_rows_per_queue(self, backend):
        assert_looks_cheaply(backend, None)

    @pytest.mark.parametrize("state", [None, "ready", "running", "blocked"])
    def test_a_list_reads_what_it_shows(self, state):
        for plan in plans_of(lambda: list(listed(Wanted(state, None, None, LIMIT)))):
            if "django_jobs_jobattempt" not in plan.sql:  # which has no rows here
                # Of a state in which there are none, PostgreSQL sorts what it does not find.
                assert plan.sorted_rows <= 1, plan.text
                assert_reads_little(plan, at_most=LIMIT)

    def test_the_queues_are_counted_as_far_as_asked(self):
        per_place = 1_000 + 1 + LOOKED_AT
        plans = plans_of(lambda: overview(1_000))
        assert len(plans) == 3  # what there is, how many, and the suspects
        for plan in plans:
            # What a part of a statement hands on is counted as read once more.
            assert_reads_little(plan, at_most=3 * 2 * QUEUES * per_place)
        assert plans[0].covered, plans[0].text
        assert plans[0].sorted_rows <= 1, plans[0].text
        for shown in overview(1_000):
            assert set(shown.at_least) == {"ready", "running"}

    def test_so_are_those_of_one_queue_for_its_backend(self, backend):
        for plan in plans_of(lambda: backend.stats(QUEUE)):
            assert_reads_little(plan, at_most=3 * 2 * (10_000 + 1 + LOOKED_AT))

    def test_a_probe_reads_as_far_as_it_counts(self):
        if connection.vendor == "mysql":
            # To group a thousand rows it makes a table of its own, which no plan here may have.
            plans = plans_of(lambda: bands("default"))
        else:
            plans = plans_of(lambda: find_problems(HealthLimits(min_workers=0)))
        for plan in plans:
            # Three priorities in each queue, and all leases that have ended.
            assert_reads_little(plan, at_most=max(2 * 3 * QUEUES * 1_000, 10_000))

    def test_suspects_are_found_without_reading_any_other_job(self):
        last = Job.objects.order_by("-pk").values_list("pk", flat=True)
        ready = Job.objects.filter(state=READY, queue="queue-3").order_by("-pk")
        chosen = {*last[:30], *ready.values_list("pk", flat=True)[:30]}
        Job.objects.filter(pk__in=chosen).update(suspect=True)
        (plan,) = plans_of(lambda: keys_of_suspects("default", LIMIT))
        assert plan.indexes - {"none"} == {REAP}, plan.text
        # What a part of a statement hands on is counted as read once more. MariaDB also counts
        # the entries of what runs and is no suspect; it reads no rows for them.
        running = 10_000 if connection.vendor == "mysql" else 0
        assert_reads_little(plan, at_most=running + 3 * len(chosen))
        assert set(keys_of_suspects("default", LIMIT)) == set(map(str, chosen))

    def test_a_page_of_suspects_reads_no_other_job(self, admin_client):
        last = Job.objects.filter(state=READY).order_by("-rank", "-pk")
        chosen = list(last.values_list("pk", flat=True)[:LIMIT])
        Job.objects.filter(pk__in=chosen).update(suspect=True)
        page = reverse("admin:django_jobs_job_changelist")
        for plan in plans_of(lambda: admin_client.get(page, {"state": "suspect"})):
            # Its other filters offer what the latest jobs have.
            at_most = 2_000
            if "dj_job_reap" in plan.indexes and connection.vendor == "mysql":
                at_most += 10_000  # it counts the index entries of what runs
            assert_reads_little(plan, at_most=at_most)

    def test_an_explanation_reads_as_far_as_it_counts(self, backend):
        last = Job.objects.filter(queue=QUEUE, state=READY).order_by("-rank", "-due").first()
        for plan in plans_of(lambda: explain_job(str(last.pk))):
            assert_reads_little(plan, at_most=2 * COUNTED_AT_MOST)


class TestBesideAMillionScheduledJobs:
    pytestmark = pytest.mark.usefixtures("many_scheduled")

    def test_a_look_at_what_comes_reads_what_it_shows(self, backend):
        for plan in plans_of(lambda: backend.peek(QUEUE, 3_000)):
            # A few that are ready may be sorted by hand.
            assert plan.sorted_rows <= 10_000 // QUEUES, plan.text
            assert_reads_little(plan, at_most=3_000)

    def test_they_cost_a_claim_nothing(self, many_scheduled, few_ready, backend):
        print(
            f"a claim of {LIMIT}: {few_ready * 1e3:.2f} ms alone, {many_scheduled * 1e3:.2f} ms "
            f"beside a million scheduled jobs, ratio {many_scheduled / few_ready:.2f}"
        )
        assert many_scheduled < 5 * few_ready
        assert_claims_well(plans_of(lambda: backend.fetch([QUEUE], LIMIT, 30.0)))

    def test_an_idle_look_reads_a_few_rows_per_queue(self, backend):
        assert_looks_cheaply(backend, None)

    def test_a_reap_of_nothing_reads_nothing(self, backend):
        (read,) = plans_of(backend.reap_expired)
        assert_reads_in_order(read, REAP, at_most=1)

    def test_a_promotion_reads_the_jobs_that_are_due(self, table, now, backend):
        table.add(50_000, SCHEDULED, now - HOUR)
        assert_promotes_well(plans_of(lambda: backend.fetch([QUEUE], LIMIT, 30.0)))

    def test_the_promotion_of_all_queues_reads_the_jobs_that_are_due(self, backend):
        alias, clock = backend.database, backend.clock
        for plan in plans_of(lambda: promote(alias, clock, None, LIMIT)):
            assert plan.sorted_rows == 0, plan.text
            assert_reads_little(plan, at_most=LIMIT)


def test_a_claim_stays_in_order_before_the_statistics_are_renewed(suddenly_ready, backend):
    assert_claims_well(plans_of(lambda: backend.fetch([QUEUE], LIMIT, 30.0)))


def test_an_idle_look_stays_cheap_before_the_statistics_are_renewed(suddenly_ready, backend):
    # MariaDB finds the names in one read of the index, until it notices by itself, within
    # seconds, how the table has grown.
    unnamed = [] if connection.vendor == "mysql" else [None]
    assert_looks_cheaply(backend, *unnamed)


def test_an_idle_look_beside_scheduled_jobs_stays_cheap_before_the_statistics_are_renewed(
    suddenly_scheduled, backend
):
    unnamed = [] if connection.vendor == "mysql" else [None]
    assert_looks_cheaply(backend, *unnamed)


def test_a_promotion_goes_by_its_keys_before_the_statistics_are_renewed(
    suddenly_scheduled, backend
):
    assert_promotes_well(plans_of(lambda: backend.fetch([QUEUE], LIMIT, 30.0)))


@pytest.mark.parametrize("count", [1, LIMIT])
def test_a_settle_goes_by_its_keys_before_the_statistics_are_renewed(
    suddenly_running, backend, count
):
    assert_settles_well(backend, count)


@pytest.mark.only_on("postgres")
@pytest.mark.django_db(transaction=True)
def test_claims_and_acks_are_quick_when_all_that_was_counted_is_dead(long_dead, backend):
    """The planner believes that there are no rows, and then any index may seem as good.

    It may sort the queue's rows by hand then, but it reads no others.
    """
    (claim,) = plans_of(lambda: backend.fetch([QUEUE], LIMIT, 30.0))
    assert_reads_little(claim, at_most=10_000 // QUEUES + LIMIT)
    leases = backend.fetch([QUEUE], LIMIT, 30.0)
    (ack,) = plans_of(lambda: backend.ack(leases))
    assert not ack.indexes, ack.text
    assert_reads_little(ack, at_most=LIMIT + 1)  # and what is noted of them
