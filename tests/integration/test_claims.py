"""Claims under contention, between processes that know nothing of each other."""

from collections import Counter

import pytest
from django.db import Error, connection, connections
from django.db.transaction import atomic

from django_jobs.backends.base import Failure, Settled
from django_jobs.backends.database import DatabaseBackend
from django_jobs.exceptions import EnqueueOutcomeUnknown
from django_jobs.models import FailedJob, Job, JobResult, JobState
from django_jobs.testing.factories import make_outgoing
from tests.conftest import RUN_ON
from tests.integration.children import Crew

pytestmark = pytest.mark.django_db(transaction=True)
QUEUES = ["first", "second"]
CLAIMERS = 4
JOBS = 2000

STRICTEST = {
    "sqlite": {"transaction_mode": "DEFERRED"},
    "postgres": {"options": "-c default_transaction_isolation=serializable"},
    "mariadb": {"isolation_level": "repeatable read"},
    "mysql": {"isolation_level": "serializable"},
}[RUN_ON]


@pytest.fixture
def crew(site_environment):
    with Crew(site_environment) as crew:
        yield crew


@pytest.fixture
def backend():
    return DatabaseBackend("database", {})


def outgoing(queue="first", **terms):
    return make_outgoing(queue, backend="database", **terms)


def fill(backend, count=JOBS):
    """Jobs in both queues; every seventh is more urgent, and every fifth has just become due."""
    messages = []
    for place in range(count):
        terms = {"priority": 10} if place % 7 == 0 else {}
        terms |= {"delay": 0.000001} if place % 5 == 0 else {}
        messages.append(outgoing(QUEUES[place % 2], **terms))
    return {stored.id for stored in backend.enqueue(messages)}


def assert_each_was_claimed_once(answers, ids):
    claimed = Counter(job_id for answer in answers for job_id, _ in answer)
    assert set(claimed) == ids
    assert max(claimed.values()) == 1
    assert not Job.objects.exists()
    assert JobResult.objects.count() == len(ids)


def test_four_processes_claim_every_job_exactly_once(crew, backend):
    ids = fill(backend)
    for place in range(CLAIMERS):
        queues = QUEUES if place % 2 else QUEUES[::-1]
        crew.add("claim", limit=10, queues=queues, expected=JOBS)
    answers = crew.work()
    assert_each_was_claimed_once(answers, ids)
    # On SQLite whoever has the one write lock may keep it as long as it has work.
    assert RUN_ON == "sqlite" or all(answers), [len(answer) for answer in answers]


def test_without_skip_locked_they_still_claim_every_job_exactly_once(crew, backend):
    ids = fill(backend)
    for _ in range(CLAIMERS):
        crew.add("claim", limit=10, queues=QUEUES, expected=JOBS, optimistic=True)
    answers = crew.work()
    assert_each_was_claimed_once(answers, ids)


def test_claimers_of_both_kinds_never_share_a_job(crew, backend):
    ids = fill(backend, 600)
    for place in range(CLAIMERS):
        crew.add("claim", limit=7, queues=QUEUES, expected=600, optimistic=place % 2 == 0)
    assert_each_was_claimed_once(crew.work(), ids)


def test_lost_leases_are_reaped_amid_the_traffic_and_settled_once(crew, backend):
    ids = fill(backend, 400)
    lost = [lease.id for _ in range(10) for lease in backend.fetch(QUEUES, 10, 0.0)]
    assert len(lost) == 100
    for _ in range(2):
        crew.add("claim", limit=10, queues=QUEUES, expected=400)
        crew.add("reap", expected=400)
    crew.add("lose", queues=QUEUES, rounds=30)
    *answers, lost_meanwhile = crew.work()
    reaped = answers[1] + answers[3]
    assert_each_was_claimed_once(answers[::2], ids)
    assert reaped == len(lost) + len(lost_meanwhile)


@pytest.mark.parametrize("optimistic", [False, True])
def test_the_strictest_isolation_costs_retries_and_nothing_else(crew, backend, optimistic):
    ids = fill(backend, 400)
    for _ in range(3):
        parameters = {"limit": 10, "queues": QUEUES, "expected": 600, "options": STRICTEST}
        crew.add("claim", optimistic=optimistic, **parameters)
    crew.add("reap", expected=600, options=STRICTEST)
    crew.add("enqueue", queues=QUEUES, count=200, options=STRICTEST)
    *answers, enqueued = crew.work()
    assert_each_was_claimed_once(answers[:3], ids | set(enqueued))


def test_four_claimers_and_two_enqueuers_are_never_told_of_a_lock(crew, backend):
    ids = fill(backend)
    expected = JOBS + 2 * 200
    for place in range(CLAIMERS):
        options = STRICTEST if place % 2 else {}
        crew.add("claim", limit=20, queues=QUEUES, expected=expected, options=options)
    for _ in range(2):
        crew.add("enqueue", queues=QUEUES, count=200, options=STRICTEST)
    answers = crew.work()
    enqueued = {job_id for answer in answers[CLAIMERS:] for job_id in answer}
    assert_each_was_claimed_once(answers[:CLAIMERS], ids | enqueued)


def test_one_claimer_sees_priority_then_due_then_the_order_of_enqueueing(crew, backend):
    batch = [outgoing(priority=priority) for priority in (0, 5, -5, 0, 5, -5) for _ in range(20)]
    stored = [one.id for one in backend.enqueue(batch)]
    stored += [backend.enqueue([outgoing()])[0].id for _ in range(20)]
    crew.add("claim", limit=7, queues=["first"], expected=len(stored))
    (claimed,) = crew.work()
    urgent, later = stored[20:40] + stored[80:100], stored[40:60] + stored[100:120]
    normal = stored[:20] + stored[60:80] + stored[120:]
    assert [job_id for job_id, _ in claimed] == urgent + normal + later


def test_an_owner_that_lost_its_lease_can_settle_nothing(crew, backend):
    backend.enqueue([outgoing()])
    crew.add("settle_late", queue="first")
    crew.start()
    (stale_token,) = crew.hear()
    assert backend.reap_expired() == 1
    (lease,) = backend.fetch(["first"], 1, 60.0)
    assert lease.token != stale_token
    before = Job.objects.values().get()

    crew.tell()
    (answers,) = crew.hear()
    assert set(answers.values()) == {"lost"}, answers
    assert Job.objects.values().get() == before
    assert before["state"] == JobState.RUNNING
    assert not FailedJob.objects.exists()
    assert not JobResult.objects.exists()
    assert backend.ack([lease]) == [Settled.SETTLED]


@pytest.mark.parametrize("options", [{}, STRICTEST], ids=["as usual", "strictest"])
def test_the_first_use_of_a_connection_may_be_a_settle(crew, backend, options):
    backend.enqueue([outgoing()])
    crew.add("settle_first", queue="first", options=options)
    assert crew.work() == ["settled"]
    assert not Job.objects.exists()


servers_only = pytest.mark.only_on("postgres", "mariadb", "mysql")
BACKEND_ID = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}
STILL_THERE = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE pid = %s",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE id = %s",
}


def kill(connection):
    """End a connection's session from another one, and return when it is over."""
    vendor = connection.vendor
    with connection.cursor() as cursor:
        cursor.execute(BACKEND_ID[vendor])
        (session,) = cursor.fetchone()
    with connections["other"].cursor() as cursor:
        how = "SELECT pg_terminate_backend(%s)" if vendor == "postgresql" else "KILL %s"
        cursor.execute(how, [session])
        there = 1
        while there:
            cursor.execute(STILL_THERE[vendor], [session])
            (there,) = cursor.fetchone()


class KilledOnce:
    """An execute wrapper that ends the session just before, or after, a statement."""

    def __init__(self, verb, after=False):
        self.verb, self.after, self.done = verb, after, False

    def __call__(self, execute, sql, params, many, context):
        hit = sql.startswith(self.verb) and not self.done
        self.done = self.done or hit
        if hit and not self.after:
            kill(context["connection"])
        answer = execute(sql, params, many, context)
        if hit and self.after:
            kill(context["connection"])
        return answer


both = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@servers_only
@both
@pytest.mark.parametrize("size", [1, 3, 1001])
def test_an_enqueue_without_an_answer_says_so_and_can_be_repeated(backend, size):
    messages = [outgoing() for _ in range(size)]
    with (
        connection.execute_wrapper(KilledOnce("INSERT")),
        pytest.raises(EnqueueOutcomeUnknown) as raised,
    ):
        backend.enqueue(messages)
    assert [one.id for one in raised.value.prepared] == [one.id for one in messages]
    again = backend.enqueue(messages)  # the same process, the same connection object
    assert [one.id for one in again] == [one.id for one in messages]
    assert Job.objects.count() == size


@servers_only
@both
def test_an_enqueue_in_the_callers_transaction_leaves_the_error_to_the_caller(backend):
    with connection.execute_wrapper(KilledOnce("INSERT")), pytest.raises(Error), atomic():
        backend.enqueue([outgoing()])
    assert not Job.objects.exists()


SETTLES = {
    "ack": lambda backend, lease: backend.ack([lease])[0],
    "nack": lambda backend, lease: backend.nack(lease),
    "abandon": lambda backend, lease: backend.abandon(lease, Failure(reason="exhausted")),
    "renew": lambda backend, lease: backend.renew([lease], 600.0)[0],
}


@servers_only
@both
@pytest.mark.parametrize(
    ("verb", "after"),
    [
        *((verb, False) for verb in SETTLES),
        # Between the statement and the COMMIT, which an ack need not have.
        *((verb, True) for verb in SETTLES if verb != "ack"),
    ],
)
def test_a_settle_without_an_answer_is_unknown_and_can_be_repeated(backend, verb, after):
    backend.enqueue([outgoing()])
    (lease,) = backend.fetch(["first"], 1, 60.0)
    write = {"ack": ("DELETE", "WITH"), "abandon": ("DELETE",)}.get(verb, ("UPDATE",))
    with connection.execute_wrapper(KilledOnce(write, after)):
        assert SETTLES[verb](backend, lease) is Settled.UNKNOWN
    assert Job.objects.count() == 1
    assert not FailedJob.objects.exists()
    assert SETTLES[verb](backend, lease) is Settled.SETTLED


@servers_only
@both
@pytest.mark.parametrize("verb", ["fetch", "reap", "stats", "wait"])
def test_a_look_at_a_broken_connection_raises_once_and_then_works(backend, verb):
    backend.enqueue([outgoing()])
    look = {
        "fetch": lambda: len(backend.fetch(["first"], 1, 60.0)) == 1,
        "reap": lambda: backend.reap_expired() == 0,
        "stats": lambda: backend.stats("first").ready == 1,
        "wait": lambda: backend.wait(["first"], 1.0),
    }[verb]
    with connection.execute_wrapper(KilledOnce(("SELECT", "WITH"))), pytest.raises(Error):
        look()
    assert look()
