"""The backend contract, sentence by sentence, as tests for any backend.

Mix ``BackendConformance`` with a ``unittest.TestCase`` (or Django's), implement the
hooks of ``Suite``, and every test method checks one sentence of
``django_jobs.backends.base``. A test of something the backend does not claim in its
``capabilities`` is skipped, and says so.
"""

from __future__ import annotations

from django_jobs.testing.conformance.accounting import Accounting
from django_jobs.testing.conformance.base import DeadLetter, Suite
from django_jobs.testing.conformance.breakers import Breaking
from django_jobs.testing.conformance.enqueue import Enqueueing
from django_jobs.testing.conformance.give_back import GivingBack
from django_jobs.testing.conformance.inspect import Looking
from django_jobs.testing.conformance.keys import KeysSuite
from django_jobs.testing.conformance.lease import Leasing
from django_jobs.testing.conformance.order import Ordering
from django_jobs.testing.conformance.reap import Reaping
from django_jobs.testing.conformance.refusals import Opening
from django_jobs.testing.conformance.retry import Retrying
from django_jobs.testing.conformance.settle import Settling
from django_jobs.testing.conformance.timing import Timing
from django_jobs.testing.conformance.uniqueness import Uniqueness
from django_jobs.testing.conformance.wait import WaitSuite

__all__ = ["BackendConformance", "DeadLetter", "Suite"]


class BackendConformance(
    Enqueueing,
    Uniqueness,
    Ordering,
    Timing,
    Leasing,
    Settling,
    GivingBack,
    Retrying,
    Reaping,
    KeysSuite,
    Breaking,
    Looking,
    Accounting,
    Opening,
    WaitSuite,
):
    """Every test of the contract. List it before the TestCase among the bases."""
