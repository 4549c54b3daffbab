"""Networks that swallow, and servers that hang up: told once, outlived, and nothing runs twice."""

import threading
import time
from collections import Counter

import pytest
from django.db import connection, transaction

from django_jobs import enqueue_many
from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, Worker
from testproject.databases import server_details
from testproject.shop.models import Order
from tests.conftest import RUN_ON
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang
from tests.integration.worker.pool.proxy import Proxy
from tests.integration.worker.pool.wreck import jobs as wreck

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.only_on("postgres", "mariadb", "mysql"),
]
LEASE = 3
GOES_ON_SECONDS = 5.0
WRECK = {"DJANGO_SETTINGS_MODULE": "tests.integration.worker.pool.wreck.settings"}
OTHERS = {
    "postgresql": (
        """SELECT pid FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()""",
        "SELECT pg_terminate_backend(%s)",
    ),
    "mysql": (
        """SELECT id FROM information_schema.processlist
           WHERE db = DATABASE() AND id <> CONNECTION_ID()""",
        "KILL %s",
    ),
}
CLAIM = {
    "postgresql": [b"WITH due AS MATERIALIZED"],
    "mysql": [b"UPDATE `django_jobs_job` SET `state` = 2", b"COMMIT"],
}
ACK = {
    "postgresql": [b"DELETE FROM django_jobs_job "],
    "mysql": [b"DELETE FROM `django_jobs_job` ", b"COMMIT"],
}


@pytest.fixture
def proxy():
    details = server_details(RUN_ON)
    proxy = Proxy(details["HOST"], details["PORT"])
    yield proxy
    proxy.close()


def through(proxy):
    prefix = f"DJANGO_JOBS_{RUN_ON.upper()}"
    return {**WRECK, f"{prefix}_HOST": "127.0.0.1", f"{prefix}_PORT": str(proxy.port)}


def hang_up_on_everybody():
    """End every connection to this test's database but our own; how many there were."""
    find, kill = OTHERS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(find)
        found = [pid for (pid,) in cursor.fetchall()]
        for pid in found:
            # One that has ended by itself meanwhile is no error for PostgreSQL alone.
            try:
                cursor.execute(kill, [pid])
            except Exception as error:
                if "Unknown thread" not in str(error):
                    raise
    return len(found)


def monotonic_of(microseconds):
    """A moment of the store's clock, which is this machine's, as handlers write moments."""
    return time.monotonic() + microseconds / 1e6 - time.time()


def test_a_worker_behind_a_black_hole_stops_before_its_lease_can_end(start, diary, proxy):
    wreck.pulse.enqueue(str(diary), str(diary.gate))
    cut_off = start(
        "--queue", "default,own", processes=1, environment=through(proxy), LEASE_SECONDS=LEASE
    )
    until(lambda: diary.words)
    first_end = Job.objects.get().lease_expires
    until(lambda: Job.objects.get().lease_expires > first_end)  # it is renewed
    other = start("--queue", "default", environment=WRECK, LEASE_SECONDS=LEASE)
    until(lambda: "worker.started" in other.said)
    proxy.swallow()
    lease_ends = monotonic_of(Job.objects.get().lease_expires)
    until(lambda: "[store.lost]" in cut_off.said, patience=LEASE)  # the call is cut
    until(lambda: len(spans(diary)) == 2)
    (one, (_, last)), (two, (begins, _)) = spans(diary).items()
    print(
        f"stopped {lease_ends - last:.2f} s before its lease ended, "
        f"run again {begins - lease_ends:.2f} s after"
    )
    assert last < lease_ends < begins
    assert one not in other.family
    assert two in other.family
    diary.gate.touch()
    until(JobResult.objects.exists)
    kept = JobResult.objects.values().get()
    proxy.forward()
    goes_on(cut_off, diary)
    until(lambda: "[lease.lost]" in cut_off.said)
    assert JobResult.objects.values().get(job_id=kept["job_id"]) == kept
    assert (kept["status"], kept["attempts"]) == ("succeeded", 0)
    assert kept["worker"].endswith(f":{two}")
    nothing_is_left_or_charged()


def spans(diary):
    """When each process wrote its first line and its last."""
    written = {}
    for pid, _, at in diary.lines:
        written.setdefault(int(pid), []).append(float(at))
    return {pid: (min(times), max(times)) for pid, times in written.items()}


def goes_on(pool, diary):
    """From now on it takes at most so long; and there was one outage, told once."""
    back_at = time.monotonic()
    gang.note.using(queue="own").enqueue(str(diary), "goes-on")
    until(lambda: "goes-on" in diary.words)
    took = diary.moment("goes-on") - back_at
    print(f"went on {took:.2f} s after the store was back")
    assert took < GOES_ON_SECONDS
    assert pool.process.poll() is None
    until(lambda: "[store.found]" in pool.said)
    assert pool.said.count("[store.lost]") == pool.said.count("[store.found]") == 1


def nothing_is_left_or_charged():
    until(lambda: not Job.objects.exists())
    assert not FailedJob.objects.exists()
    assert not JobAttempt.objects.exists()


def test_what_a_living_worker_gives_back_after_it_was_reaped_is_no_suspect(start, diary, proxy):
    wreck.pulse.enqueue(str(diary), str(diary.gate))
    start(processes=1, environment=through(proxy), LEASE_SECONDS=LEASE)
    until(lambda: diary.words)
    proxy.go_away()
    until(lambda: backends["database"].reap_expired() == 1)  # as jobs_reap does
    assert Job.objects.get().suspect
    proxy.forward()
    until(lambda: not Job.objects.get().suspect)
    until(lambda: len(spans(diary)) == 2)
    assert Job.objects.get().crashes == 0
    diary.gate.touch()
    until(JobResult.objects.exists)
    nothing_is_left_or_charged()


@pytest.mark.parametrize("processes", [0, 1])
def test_a_worker_whose_store_was_away_reaps_nothing_for_one_lease(start, proxy, processes):
    pool = start(
        "--queue", "own", processes=processes, environment=through(proxy), LEASE_SECONDS=LEASE
    )
    until(lambda: "[worker.started]" in pool.said)
    proxy.go_away()
    gang.note.enqueue("of nobody")
    assert backends["database"].fetch(["default"], 1, 0.01)
    until(lambda: proxy.refused >= 6)
    back_at = time.monotonic()
    proxy.forward()
    until(lambda: Job.objects.get().suspect)
    assert time.monotonic() - back_at >= LEASE
    until(lambda: "[lease.reaped]" in pool.said)


def test_an_ack_whose_answer_is_swallowed_counts_once(start, diary, proxy):
    proxy.lose_the_answer_to(*ACK[connection.vendor])
    gang.note.enqueue(str(diary), "ran")
    pool = start(processes=1, environment=through(proxy), LEASE_SECONDS=LEASE)
    until(lambda: proxy.answer_was_lost)
    until(lambda: "[job.succeeded]" in pool.said)
    gang.note.enqueue(str(diary), "next")
    until(lambda: JobResult.objects.count() == 2)
    assert diary.words == ["ran", "next"]
    until(lambda: pool.said.count("[job.succeeded]") == 2)
    assert pool.said.count("[store.lost]") == pool.said.count("[store.found]") == 1
    assert "[lease.lost]" not in pool.said
    assert "[settle.unknown]" not in pool.said


def test_what_a_claim_took_whose_answer_is_swallowed_goes_back_uncharged(start, diary, proxy):
    proxy.lose_the_answer_to(*CLAIM[connection.vendor])
    gang.note.using(max_retries=0).enqueue(str(diary), "ran")
    # Its lease is so long that nobody reaps it meanwhile.
    pool = start(processes=1, environment=through(proxy), LEASE_SECONDS=12)
    until(lambda: proxy.answer_was_lost)
    until(lambda: Job.objects.filter(lease_token__isnull=False).exists())
    until(JobResult.objects.exists, patience=10.0)
    assert diary.words == ["ran"]
    assert JobResult.objects.get().attempts == 0
    assert "[lease.reaped]" not in pool.said
    nothing_is_left_or_charged()


def test_a_row_that_is_locked_delays_its_own_settle_and_nothing_else(start, diary):
    gang.hold.enqueue(str(diary), str(diary.gate))
    # So long that nobody reaps it while it is locked.
    pool = start(processes=2, environment=WRECK, LEASE_SECONDS=30)
    until(lambda: "hold-begins" in diary.words)
    with transaction.atomic():
        held = Job.objects.select_for_update().get()
        diary.gate.touch()
        until(lambda: "hold-ends" in diary.words)
        enqueue_beside(30, diary)
        until(lambda: JobResult.objects.count() == 30)
        assert JobResult.objects.filter(job_id=held.pk).count() == 0
    until(lambda: JobResult.objects.filter(job_id=held.pk).exists())
    assert JobResult.objects.count() == 31
    assert diary.words.count("hold-begins") == 1
    assert "[store.lost]" not in pool.said
    nothing_is_left_or_charged()


def enqueue_beside(count, diary):
    """Enqueue over a connection that is not this thread's."""

    def work():
        enqueue_many([gang.note.prepare(str(diary), "beside") for _ in range(count)])
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_an_idle_worker_tells_an_outage_once_and_goes_on(start, diary, proxy):
    # With long leases house-keeping is not due meanwhile: it alone would tell nothing.
    pool = start("--queue", "own", environment=through(proxy), LEASE_SECONDS=60)
    gang.note.using(queue="own").enqueue(str(diary), "before")
    until(JobResult.objects.exists)
    row = Worker.objects.get()
    proxy.go_away()
    until(lambda: proxy.refused >= 4)
    proxy.forward()
    goes_on(pool, diary)
    assert Worker.objects.get(pid=pool.pid).pk == row.pk


@pytest.mark.only_on("postgres")  # elsewhere Django itself asks the server before it starts
def test_a_worker_that_is_started_before_its_database_waits_for_it(start, diary, proxy):
    proxy.go_away()
    pool = start("--queue", "own", environment=through(proxy))
    until(lambda: "[store.lost]" in pool.said and proxy.refused >= 3)
    proxy.forward()
    goes_on(pool, diary)


def test_a_pool_on_which_the_server_hangs_up_again_and_again_loses_nothing(start, diary):
    enqueue_many([gang.nap.prepare(str(diary), 0.02, f"n{n}") for n in range(120)])
    pool = start(environment=WRECK, LEASE_SECONDS=LEASE)
    drops = 0
    for rounds in range(1, 6):
        until(lambda: JobResult.objects.count() >= rounds * 15)  # noqa: B023 - used at once
        drops += hang_up_on_everybody()
    until(lambda: JobResult.objects.count() == 120)
    print(f"{drops} connections were ended")
    assert drops >= 5
    ends = Counter(word for word in diary.words if word.endswith("-ends"))
    assert set(ends) == {f"n{n}-ends" for n in range(120)}
    assert set(JobResult.objects.values_list("status", "attempts")) == {("succeeded", 0)}
    assert not Job.objects.exists()
    until(lambda: pool.said.count("[store.lost]") == pool.said.count("[store.found]"))
    assert 1 <= pool.said.count("[store.lost]") <= 5
    assert pool.process.poll() is None


def test_a_childs_connection_that_the_server_ended_while_idle_hurts_no_job(start, diary):
    gang.order.enqueue(str(diary))
    pool = start(processes=1, environment=WRECK)
    until(lambda: JobResult.objects.count() == 1)
    until(hang_up_on_everybody)
    gang.order.enqueue(str(diary))
    until(lambda: not Job.objects.exists())
    assert not FailedJob.objects.exists()
    assert Order.objects.count() == 2
    assert len({pid for pid, _, _ in diary.lines}) == 1
    assert pool.process.poll() is None


@pytest.mark.parametrize("processes", [0, 2])
def test_a_worker_that_is_started_while_its_database_is_away_begins_when_it_is_back(
    start, diary, proxy, processes
):
    proxy.go_away()
    pool = start(processes=processes, environment=through(proxy))
    until(
        lambda: (
            "the backend database does not answer" in pool.said
            and "serving every queue" in pool.said
        )
    )
    assert "works again" not in pool.said
    gang.note.enqueue(str(diary))
    proxy.forward()
    until(lambda: diary.words == ["ran"], patience=GOES_ON_SECONDS)
    until(lambda: "works again" in pool.said)
