"""Enqueueing from a coroutine: the sync way says what the other one is."""

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation

from django_jobs import aenqueue_many, enqueue_many
from django_jobs.models import Job
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "enqueue",
    [doomed.enqueue, lambda: enqueue_many([doomed.prepare(), doomed.prepare()])],
    ids=["one", "many"],
)
def test_enqueue_in_a_coroutine_names_the_way_to_do_it(enqueue):
    async def work():
        enqueue()

    with pytest.raises(SynchronousOnlyOperation, match=r"await ….aenqueue\(…\)") as raised:
        async_to_sync(work)()
    assert isinstance(raised.value.__cause__, SynchronousOnlyOperation)


def test_the_ways_that_it_names_work():
    async def work():
        await doomed.aenqueue()
        await aenqueue_many([doomed.prepare(), doomed.prepare()])

    async_to_sync(work)()
    assert Job.objects.count() == 3
