"""A pool says what it claims, in its parent, and what it starts, in its children."""

import re

import pytest

from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
ODD = {"DJANGO_SETTINGS_MODULE": "tests.integration.worker.pool.odd.settings"}


def test_each_job_is_told_of_from_claim_to_settle(start, diary):
    gang.note.enqueue(str(diary))
    gang.async_nap.enqueue(str(diary), 0)
    pool = start("--until-empty", "-v0", "--concurrency", "2", processes=1, environment=ODD)
    assert pool.ended() == 0
    for handler in ("gang.note", "gang.async_nap"):
        keys = re.findall(rf"\[([\w.]+)\] {handler} ", until(lambda: pool.said))
        assert sorted(keys) == ["job.claimed", "job.started", "job.succeeded"]
