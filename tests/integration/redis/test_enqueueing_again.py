"""A prepared job that is enqueued once more, while a worker ends it and afterwards."""

import pytest
from django.test import override_settings

from django_jobs import job
from django_jobs.backends.base import ResultRecord, Settled
from django_jobs.worker import process_once
from tests.integration.redis.conftest import jobs_in
from tests.integration.test_enqueue_again import rounds_of_ack_and_push

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


@job(key="again.work")
def work():
    pass


@pytest.fixture(autouse=True)
def fresh(jobs):
    pass


def test_a_job_that_is_enqueued_again_while_it_is_acknowledged_is_not_stored_anew(backend):
    acked, pushed = rounds_of_ack_and_push(backend, ResultRecord(status="succeeded"))
    assert set(acked) == {Settled.SETTLED}
    assert not any(one.created for one in pushed)
    assert backend.fetch(["default"], 9, 30.0) == []


@pytest.mark.parametrize("options", [{}, {"unique_key": "one", "on_conflict": "raise"}], ids=str)
def test_a_job_without_a_result_is_not_enqueued_again(options):
    prepared = work.using(result_ttl=0, **options).prepare()
    assert prepared.enqueue().created
    assert not prepared.enqueue().created
    assert process_once().status == "acked"
    assert not prepared.enqueue().created
    assert process_once().status == "empty"


def test_what_remembers_nothing_still_knows_what_was_enqueued_a_second_time(server):
    with override_settings(DJANGO_JOBS=jobs_in(server, REMEMBER_SECONDS=0)):
        prepared = work.using(result_ttl=0).prepare()
        prepared.tried = True  # the first time nothing arrived
        assert prepared.enqueue().created
        assert process_once().status == "acked"
        assert not prepared.enqueue().created
