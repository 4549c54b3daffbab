"""Django's Tasks on Redis."""

import pytest

from tests.integration.tasks.chores import tasks as chores
from tests.integration.tasks.conftest import diary, start  # noqa: F401 - fixtures of these tasks

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


def test_tasks_run_and_tell_of_it(jobs, start):  # noqa: F811 - the fixture
    added, fails = chores.add.enqueue(1, right=2), chores.fails.enqueue()
    assert start("--until-empty", **jobs).wait(60) == 0
    added.refresh()
    fails.refresh()
    assert added.return_value == 3
    assert (fails.status.name, len(fails.errors), fails.attempts) == ("FAILED", 2, 2)
    assert added.worker_ids
