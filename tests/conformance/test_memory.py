"""The reference implementation passes its own contract."""

import threading
from unittest import TestCase

from django_jobs.backends.base import Cancels, Capabilities, Inspects
from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import SystemClock
from django_jobs.testing.conformance import BackendConformance
from django_jobs.testing.factories import make_outgoing
from tests.conformance.hooks import MemoryHooks
from tests.conformance.programmatic import run_suite


class TestMemoryBackend(MemoryHooks, BackendConformance, TestCase):
    pass


class TestMemoryBackendReadingTheClockOffALease(MemoryHooks, BackendConformance, TestCase):
    now = BackendConformance.now


def test_threads_that_share_an_instance_never_share_a_job():
    backend = MemoryBackend("memory", {})
    backend.enqueue([make_outgoing() for _ in range(300)])
    fetched = []
    start = threading.Barrier(4)

    def work():
        start.wait()
        while leases := backend.fetch(["default"], 3, 60):
            fetched.extend(lease.id for lease in leases)
            backend.ack(leases)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == len(set(fetched)) == 300


def test_the_system_clock_is_used_unless_another_is_given():
    assert isinstance(MemoryBackend("memory", {}).clock, SystemClock)


class Modest(MemoryBackend):
    """Can only what no backend can do without."""

    capabilities = Capabilities()
    peek, find, cancel = Inspects.peek, Inspects.find, Cancels.cancel


def test_a_backend_that_claims_little_is_asked_for_little():
    outcome = run_suite(Modest)
    assert not outcome.failed
    assert outcome.skipped["test_a_higher_priority_is_fetched_first"] == (
        "Modest does not claim priority"
    )
    assert {reason.rpartition(" ")[2] for reason in outcome.skipped.values()} == {
        "delay",
        "priority",
        "transactional_enqueue",
        "renew",
        "results",
        "peek",
        "cancel",
        "unique",
        "keys",
        "accounts",
        "breakers",
    }


class Unmovable(MemoryHooks):
    """Hooks of an author whose store has a clock of its own and cannot be altered."""

    advance = BackendConformance.advance
    now = BackendConformance.now
    tamper = BackendConformance.tamper

    def make_backend(self):
        return self.backend_class("memory", {})


def test_without_the_optional_hooks_much_of_the_suite_still_runs():
    outcome = run_suite(MemoryBackend, Unmovable)
    assert not outcome.failed
    assert len(outcome.skipped) < len(outcome.ran) / 2
    assert "test_a_leased_job_is_not_leased_again" not in outcome.skipped
    reason = outcome.skipped["test_an_expired_lease_is_reaped_and_its_job_leased_again"]
    assert reason.startswith("the clock of this store cannot be moved")
