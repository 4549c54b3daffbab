"""Random histories: the memory backend keeps to the model, and broken ones are found out."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import ManualClock
from django_jobs.testing.model import backend_machine
from tests.conformance import broken

HISTORIES = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    print_blob=False,
)


def machine_for(backend_class):
    return backend_machine(
        lambda: backend_class("memory", {"CLOCK": ManualClock()}),
        lambda backend, seconds: backend.clock.advance(seconds),
    )


def test_the_memory_backend_keeps_to_the_model():
    run_state_machine_as_test(machine_for(MemoryBackend), settings=HISTORIES)


@pytest.mark.parametrize(
    "broken_backend",
    [
        broken.SettlesWithAnyToken,
        broken.LeasesTwice,
        broken.ReapsLiveLeases,
        broken.LosesTheDelayOfARetry,
        broken.ForgetsAttempts,
        broken.IgnoresPriority,
        broken.RunsSuspectsInCompany,
        broken.NeverChargesALoss,
        broken.FreesTheKeyWhenAJobStarts,
        broken.ComparesKeysWithoutCase,
        broken.RenewsFromTheOldEnd,
        broken.OverwritesAKnownId,
    ],
    ids=lambda broken_backend: broken_backend.__name__,
)
def test_random_histories_find_a_broken_backend(broken_backend):
    # Found is enough; making the history short is for a person who has to mend it.
    found = settings(
        HISTORIES, max_examples=400, phases=[Phase.generate], report_multiple_bugs=False
    )
    with pytest.raises(
        AssertionError, match=r"the contract|was not replaced|was not raised|was replaced"
    ):
        run_state_machine_as_test(machine_for(broken_backend), settings=found)
