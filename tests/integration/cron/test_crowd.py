"""Several schedulers: each tick gets exactly one job, whoever dies in the middle of it."""

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from django_jobs.clock import SECOND, from_datetime
from django_jobs.models import Job, ScheduleTick

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[3]
START = from_datetime(datetime(2031, 5, 4, 22, 0, tzinfo=UTC))
MINUTES = 300
KILLED_AT = 150
SCHEDULERS = 4


class Scheduler:
    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.cron.clockwork.scheduler"],
            cwd=ROOT,
            env={
                **environment,
                "DJANGO_SETTINGS_MODULE": "tests.integration.cron.clockwork.settings",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, now: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{now}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the scheduler ended"
        return line.strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


def expected() -> Counter[tuple[str, int]]:
    """By counting minutes, without a word of cron."""
    found: Counter[tuple[str, int]] = Counter()
    for minute in range(MINUTES):
        tick = START + minute * 60 * SECOND
        found["each-minute", tick] += 1
        if minute % 5 == 0:
            found["each-fifth", tick] += 1
        if minute % 60 == 0:
            found["each-hour", tick] += 1
    return found


def test_four_schedulers_of_which_one_is_killed_make_one_job_for_each_tick(
    site_environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    crowd = [Scheduler(site_environment) for _ in range(SCHEDULERS)]
    decided = 0
    try:
        assert [one.hear() for one in crowd] == ["ready"] * SCHEDULERS
        for minute in range(MINUTES):
            now = START + minute * 60 * SECOND + 100_000
            for one in crowd:
                one.tell(now)
            if minute == KILLED_AT:
                crowd.pop(0).end()  # in the middle of its tick
            decided += sum(int(one.hear()) for one in crowd)
    finally:
        for one in crowd:
            one.end()

    made = Counter(Job.objects.values_list("schedule", "tick"))
    wanted = expected()
    doubled = {key: count for key, count in made.items() if count > 1}
    assert doubled == {}
    assert wanted - made == Counter()
    assert made == wanted
    assert ScheduleTick.objects.count() == sum(wanted.values())
    with capsys.disabled():
        print(f"\n{SCHEDULERS} schedulers, {len(wanted)} ticks: 0 doubled, 0 missing")
