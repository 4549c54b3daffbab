"""Breakers of handlers: jobs of a failing handler wait without blocking others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.test import override_settings

from django_jobs.backends.values import Evidence
from django_jobs.testing.conformance.base import QUEUE, Suite, needing

if TYPE_CHECKING:
    from django_jobs.backends.base import Lease

BROKEN, SOUND = "conformance.broken", "conformance.sound"
COOLDOWN = 60
LONG = 600
FEW_FETCHES = 4


@needing("breakers")
class Breaking(Suite):
    """The breaker of a handler holds back its jobs, and no others."""

    def setUp(self) -> None:
        super().setUp()
        named = {BROKEN: {"THRESHOLD": 2, "COOLDOWN": COOLDOWN}}
        asked = {**getattr(settings, "DJANGO_JOBS", {}), "CIRCUIT_BREAKER": {"HANDLERS": named}}
        set_up = override_settings(DJANGO_JOBS=asked)
        set_up.enable()
        self.addCleanup(set_up.disable)

    def _open_it(self) -> None:
        """Open the breaker by two failures; the failed jobs are gone."""
        for _ in range(2):
            self.put(job=BROKEN, priority=100)
        leases = self.fetch(2)
        self.backend.count_evidence([(lease, Evidence.FAILED) for lease in leases])
        self.backend.ack(leases)

    def _soon(self, limit: int = 2) -> list[Lease]:
        """The leases of a few fetches, each of which may end before it has seen all jobs."""
        for _ in range(FEW_FETCHES):
            if leases := self.fetch(limit):
                return leases
            if not self.backend.fetch_ended_early:
                break
        return []

    def _all(self, limit: int = 2) -> list[Lease]:
        """Fetch and end all jobs that are available now."""
        ended: list[Lease] = []
        while leases := self._soon(limit):
            self.backend.count_evidence([(lease, Evidence.WORKED) for lease in leases])
            self.backend.ack(leases)
            ended += leases
        return ended

    def _none_was_charged(self, leases: list[Lease]) -> None:
        headers = [lease.message.header for lease in leases]
        self.assertEqual({header.attempts for header in headers}, {0})
        self.assertEqual({header.deliveries for header in headers}, {1})

    def test_jobs_of_a_broken_handler_cost_a_few_fetches_and_run_in_order_later(self) -> None:
        broken = [self.put(job=BROKEN) for _ in range(300)]
        sound = self.put(job=SOUND)
        self._open_it()
        self.assertEqual([lease.id for lease in self._all()], [sound])
        self.assertEqual(self.backend.stats(QUEUE).scheduled, len(broken))
        self.advance(COOLDOWN)
        (probe,) = self._soon()
        self.assertTrue(probe.probe)
        another = self.put(job=SOUND)
        self.assertEqual([lease.id for lease in self._all()], [another])
        self.backend.count_evidence([(probe, Evidence.WORKED)])
        self.backend.ack([probe])
        self.advance(COOLDOWN)
        rest = self._all(50)
        self.assertEqual([lease.id for lease in [probe, *rest]], broken)
        self._none_was_charged([probe, *rest])

    def test_a_job_put_off_by_a_breaker_leaves_its_place_of_a_key_to_others(self) -> None:
        self.needs("keys")
        self.put(job=BROKEN, priority=1, concurrency_key="disk")
        sound = self.put(job=SOUND, concurrency_key="disk")
        self._open_it()
        self.assertEqual([lease.id for lease in self._all()], [sound])

    def test_while_one_job_of_a_broken_handler_tries_no_other_does(self) -> None:
        ids = [self.put(job=BROKEN) for _ in range(3)]
        self._open_it()
        self.advance(COOLDOWN)
        (probe,) = self.backend.fetch([QUEUE], 2, LONG)
        self.assertEqual((probe.id, probe.probe), (ids[0], True))
        for _ in range(3):
            self.advance(LONG / 4)
            self.assertEqual(self._soon(), [])
        self.advance(LONG / 4)
        self.assertEqual(self.backend.reap_expired(), 1)
        (another,) = self._soon()
        self.assertTrue(another.probe)
        self.assertEqual(self._soon(), [])

    def test_a_probe_that_fails_lets_the_others_wait_for_another_while(self) -> None:
        broken = [self.put(job=BROKEN) for _ in range(150)]
        self._open_it()
        self.assertEqual(self._all(), [])
        self.advance(COOLDOWN)
        (probe,) = self._soon()
        self.backend.count_evidence([(probe, Evidence.FAILED)])
        self.backend.ack([probe])
        self.advance(COOLDOWN - 1)
        self.assertEqual(self._all(), [])
        self.advance(1)
        self.assertEqual([lease.id for lease in [probe, *self._soon()]], broken[:2])
