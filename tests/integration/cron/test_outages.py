"""A scheduler whose database goes away and comes back goes on, and says so once."""

import signal
import subprocess

import pytest

from django_jobs.models import ScheduleTick
from testproject.databases import server_details
from tests.conftest import RUN_ON
from tests.integration.cron.test_loop import (
    PATIENCE_SECONDS,
    each_tick_has_one_job,
    running,
    until,
)
from tests.integration.worker.pool.proxy import Proxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.only_on("postgres", "mariadb", "mysql"),
]


def ticks() -> int:
    return ScheduleTick.objects.filter(name="each-second").count()


def ended(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, told
    return told


def test_a_loop_outlives_an_outage_and_makes_up_for_what_it_missed(
    site_environment: dict[str, str],
) -> None:
    details = server_details(RUN_ON)
    proxy = Proxy(details["HOST"], details["PORT"])
    prefix = f"DJANGO_JOBS_{RUN_ON.upper()}"
    environment = {
        **site_environment,
        f"{prefix}_HOST": "127.0.0.1",
        f"{prefix}_PORT": str(proxy.port),
    }
    command = ("-m", "tests.integration.cron.clockwork.loop")
    try:
        with running(environment, *command) as process:
            until(lambda: ticks() >= 2)
            proxy.go_away()
            until(lambda: proxy.refused >= 3)  # it tries again and again
            before = ticks()
            proxy.forward()
            until(lambda: ticks() >= before + 3)
            assert process.poll() is None
            told = ended(process)
    finally:
        proxy.close()
    # Children that run inline jobs speak for themselves.
    assert told.count("of schedules (default) does not answer") == 1, told
    assert told.count("of schedules (default) works again") == 1, told
    by = set(ScheduleTick.objects.values_list("decided_by", flat=True))
    assert {one.rpartition(":")[2] for one in by} == {str(process.pid)}
    each_tick_has_one_job()
