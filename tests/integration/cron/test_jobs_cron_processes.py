"""``jobs_cron`` as it is started by a crontab and by a service manager."""

import subprocess
import sys
from pathlib import Path

import pytest

from django_jobs.models import ScheduleTick
from tests.integration.cron.test_loop import ended_well, running, until

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[3]


def manage(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", "jobs_cron", *arguments],
        cwd=ROOT,
        env={
            **environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.cron.clockwork.settings",
            "CLOCKWORK": "seconds",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_as_a_process_one_tick_runs_inline_jobs_to_their_end(
    site_environment: dict[str, str],
) -> None:
    done = manage(site_environment)
    assert done.returncode == 0, done.stderr
    assert "enqueued   inline of" in done.stdout
    assert ScheduleTick.objects.filter(name="inline", outcome="succeeded").exists()


def test_as_a_process_a_loop_ticks_until_it_is_told_to_stop(
    site_environment: dict[str, str],
) -> None:
    with running(site_environment, "-m", "django", "jobs_cron", "--loop") as process:
        until(lambda: ScheduleTick.objects.filter(name="each-second").count() > 1)
        ended_well(process)
