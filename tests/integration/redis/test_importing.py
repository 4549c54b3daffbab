"""Tasks of other tables become jobs of a broker, and none is lost on the way."""

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import override_settings

from django_jobs.worker import process_once
from tests.integration.redis.conftest import WORKER, jobs_in
from tests.integration.tasks.test_importing import (  # noqa: F401 - the fixture
    imported,
    left,
    put,
    source,
)
from tests.redis_servers import Server

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


def test_rows_become_jobs_of_the_broker(jobs, source):  # noqa: F811 - the fixture
    ids = {put(source), put(source)}
    code, told = imported(source)
    assert (code, told["moved"], left(source)) == (0, 2, 0)
    assert {process_once().job_id for _ in ids} == ids


def test_a_broker_that_is_away_costs_no_row(source):  # noqa: F811 - as above
    put(source)
    away = jobs_in(Server())
    with override_settings(DJANGO_JOBS={**WORKER, **away}), pytest.raises(CommandError):
        call_command("jobs_import", source)
    assert left(source) == 1


def test_a_unique_key_is_taken_and_a_second_one_left(jobs, source):  # noqa: F811 - as above
    first = put(source, function="only_one", args=[])
    assert imported(source)[0] == 0
    put(source, function="only_one", args=[])
    with pytest.raises(CommandError, match="is held by the live job"):
        call_command("jobs_import", source)
    assert left(source) == 1
    assert process_once().job_id == first


def test_in_a_transaction_of_somebody_else_nothing_is_begun(jobs, source):  # noqa: F811 - as above
    put(source)
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        imported(source)
    assert left(source) == 1


def test_with_an_outbox_what_it_cannot_keep_stays_and_the_rest_moves(server, source):  # noqa: F811 - as above
    bad = put(source, function="only_one", args=[])
    put(source)
    server.client.flushall()
    given = jobs_in(server)
    given["BACKENDS"]["redis"]["OUTBOX"] = True
    with override_settings(DJANGO_JOBS={**WORKER, **given}):
        code, told = imported(source)
    assert (code, told["moved"], [one["id"] for one in told["refused"]]) == (1, 1, [bad])
    assert "unique_key" in told["refused"][0]["why"]
    assert left(source) == 1
