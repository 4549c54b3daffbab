"""Retry policies of a site's own, by dotted path."""

import pytest

from django_jobs.conf import get_settings
from django_jobs.exceptions import SettingsError
from django_jobs.handlers.registry import Registry
from django_jobs.worker.admission import Policies

HERE = f"{__name__}"


class Patient:
    def delay(self, retry_number):
        return 60.0 * retry_number


ready_made = Patient()


class Hasty:
    def delay(self, retry_number):
        return 1.0 / retry_number


class NoPolicy:
    pass


@pytest.fixture
def policies(settings):
    def make(path):
        settings.DJANGO_JOBS = {"RETRY": path}
        return Policies(get_settings(), Registry())

    return make


@pytest.mark.parametrize("name", ["Patient", "ready_made"])
def test_a_policy_of_the_settings_is_made_once(policies, name):
    path = f"{HERE}.{name}"
    own = policies(path)
    policy = own.own(path, "mail")
    assert policy.delay(2) == 120.0
    assert own.own(path, "mail") is policy
    assert own.own(None, "mail") is policy  # what the queue has where a job names none


def test_a_path_that_only_a_message_names_is_not_imported(policies):
    assert policies("fixed").own(f"{HERE}.Patient", "mail") is None


def test_a_policy_of_a_job_goes_before_the_one_of_its_queue(settings):
    settings.DJANGO_JOBS = {
        "RETRY": f"{HERE}.Patient",
        "QUEUES": {"mail": {"RETRY": f"{HERE}.Hasty"}},
    }
    own = Policies(get_settings(), Registry())
    assert own.own(None, "mail").delay(2) == 0.5
    assert own.own(f"{HERE}.Patient", "mail").delay(2) == 120.0


@pytest.mark.parametrize("built_in", ["fixed", [1.0, 5.0], {"STRATEGY": "fixed", "BASE": 2}])
def test_what_is_no_path_is_left_to_the_built_in_policies(built_in, policies):
    own = policies(built_in)
    assert own.own(built_in, "mail") is None
    assert own.own(None, "mail") is None


def test_a_policy_that_cannot_be_imported_is_an_error_where_it_is_used(policies):
    path = f"{HERE}.Gone"
    policy = policies(path).own(path, "mail")
    with pytest.raises(SettingsError, match=r"Gone' cannot be imported: .*Gone"):
        policy.delay(1)


def test_what_is_no_policy_is_an_error_where_it_is_used(policies):
    path = f"{HERE}.NoPolicy"
    policy = policies(path).own(path, "mail")
    with pytest.raises(SettingsError, match=r"NoPolicy' has no delay\(retry_number\)"):
        policy.delay(1)
