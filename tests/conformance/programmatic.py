"""Runs the conformance suite against a backend class and tells what failed."""

from dataclasses import dataclass
from unittest import TestCase, TestResult, TestSuite, defaultTestLoader

from django_jobs.testing.conformance import BackendConformance
from tests.conformance.hooks import MemoryHooks


@dataclass(frozen=True)
class SuiteRun:
    ran: frozenset[str]
    failed: dict[str, str]
    skipped: dict[str, str]


def run_suite(backend_class, hooks=MemoryHooks, *, only=lambda _name: True):
    """Run those of the suite's tests that ``only`` lets through by their name."""
    case = type(
        f"{backend_class.__name__}Conformance",
        (hooks, BackendConformance, TestCase),
        {"backend_class": backend_class},
    )
    names = filter(only, defaultTestLoader.getTestCaseNames(case))
    suite = TestSuite(map(case, names))
    ran = frozenset(test.id().rpartition(".")[2] for test in suite)
    result = TestResult()
    suite.run(result)
    return SuiteRun(ran, _by_name(result.failures + result.errors), _by_name(result.skipped))


def _by_name(reports):
    return {test.id().rpartition(".")[2]: text for test, text in reports}
