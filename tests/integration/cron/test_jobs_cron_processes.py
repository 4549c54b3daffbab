"""``jobs_cron`` as it is started by a crontab and by a service manager."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from django_jobs.models import ScheduleTick
from tests.integration.cron.test_loop import ended_well, running, until

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[3]


def manage(
    environment: dict[str, str], *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", "jobs_cron", *arguments],
        cwd=ROOT,
        env={
            **environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.cron.clockwork.settings",
            "CLOCKWORK": "seconds",
            **more,
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


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"CRON": "61 * * * *"}, ("'bell'", "'61 * * * *' is no cron expression", "Five fields")),
        ({"TIMEZONE": "Mars/Base"}, ("'bell'", "'Mars/Base' is no time zone", "'Europe/Paris'")),
        ({"OVERLAP": "maybe"}, ("'bell'", "overlap is 'maybe'", "give one of 'allow'")),
        ({"OVERLAPS": "skip"}, ("'bell'", "'OVERLAPS'", "did you mean 'OVERLAP'?")),
        ({"HANDLER": "nobody"}, ("'bell'", "registered as 'nobody'", "Correct the entry")),
        ({"DEPENDS_ON": ["gnog"]}, ("'bell'", "depends on 'gnog'", "did you mean 'gong'?")),
        ({"DEPENDS_ON": ["gong"]}, ("'bell' → 'gong'", "circle", "out of a depends_on")),
    ],
    ids=["expression", "zone", "value", "option", "handler", "dependency", "circle"],
)
@pytest.mark.parametrize("arguments", [(), ("--skip-checks",)], ids=["checked", "unchecked"])
def test_a_wrong_schedule_ends_with_2_and_names_the_way_out(
    site_environment: dict[str, str],
    wrong: dict[str, object],
    says: tuple[str, ...],
    arguments: tuple[str, ...],
) -> None:
    done = manage(site_environment, *arguments, CLOCKWORK_WRONG=json.dumps(wrong))
    assert done.returncode == 2, done.stderr
    for part in says:
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_only_names_why_a_schedule_is_left_out(site_environment: dict[str, str]) -> None:
    wrong = json.dumps({"TIMEZONE": "Mars/Base"})
    done = manage(
        site_environment, "--skip-checks", "--only", "bell", "--list", CLOCKWORK_WRONG=wrong
    )
    assert done.returncode == 2
    assert "the schedule 'bell' cannot be used" in done.stderr
    assert "'Mars/Base' is no time zone" in done.stderr
