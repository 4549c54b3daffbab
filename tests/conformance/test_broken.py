"""The suite is worth its name only if it notices what it was written for."""

import zlib
from unittest import TestCase

import pytest

from django_jobs.backends.memory import MemoryBackend
from django_jobs.testing.conformance import BackendConformance
from tests.conformance.broken import BROKEN
from tests.conformance.programmatic import run_suite


def test_the_unbroken_backend_passes_the_same_run():
    run = run_suite(MemoryBackend)
    assert run.failed == {}
    assert set(run.skipped) == {
        "test_an_enqueue_that_is_rolled_back_never_existed",
        "test_an_account_tells_of_a_job_that_waits_and_runs",
        "test_an_account_tells_of_every_attempt_and_of_a_good_end",
        "test_an_account_tells_of_a_death",
        "test_an_account_tells_of_jobs_that_were_cancelled_while_they_waited",
        "test_an_account_tells_of_a_job_that_was_cancelled_between_its_attempts",
        "test_an_account_tells_which_job_has_taken_the_place_of_another",
        "test_an_account_tells_of_a_job_that_was_skipped",
        "test_an_account_tells_of_a_job_that_was_refused_without_a_run",
        "test_there_is_no_account_of_what_never_was",
        "test_jobs_of_a_broken_handler_cost_a_few_fetches_and_run_in_order_later",
        "test_a_job_put_off_by_a_breaker_leaves_its_place_of_a_key_to_others",
        "test_while_one_job_of_a_broken_handler_tries_no_other_does",
        "test_a_probe_that_fails_lets_the_others_wait_for_another_while",
    }


# A third of the suite's tests, to see that not everything fails; the same ones whatever is added.
SAMPLE = {
    name
    for name in dir(BackendConformance)
    if name.startswith("test_") and zlib.crc32(name.encode()) % 3 == 0
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_backend_fails_on_the_promise_it_breaks(broken):
    named = {*BROKEN[broken], *SAMPLE}
    run = run_suite(broken, only=named.__contains__)
    for intended in BROKEN[broken]:
        assert intended in run.failed, f"{intended} passed; failed: {sorted(run.failed)}"
        assert "AssertionError" in run.failed[intended], "it failed, but not on its assertion"
    assert len(run.failed) < len(run.ran) / 5, "when everything fails, nothing is told apart"


def test_every_broken_backend_names_tests_that_exist():
    tests = {name for name in dir(BackendConformance) if name.startswith("test_")}
    named = {name for names in BROKEN.values() for name in names}
    assert named <= tests


def test_the_suite_is_no_test_case_until_it_is_mixed_with_one():
    assert not issubclass(BackendConformance, TestCase)
