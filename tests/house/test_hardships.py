"""The hardships' benchmark: what it would take for granted in the middle of a run."""

from itertools import chain, count, repeat
from pathlib import Path

import pytest

from tests.benchmarks.rivals import hardships, producer
from tests.benchmarks.rivals.contestants import ADAPTERS, OURS, site
from tests.benchmarks.rivals.hardships import NAMES, QUICK, Hardships
from tests.benchmarks.rivals.processes import ContestantFailed
from tests.benchmarks.rivals.site import ONE, POSTGRES, Site
from tests.benchmarks.rivals.strains import Growth, Hold, rate
from tests.benchmarks.stream import Stream

ROOT = Path(__file__).resolve().parents[2]


class Listed(Site):
    """Keeps what it is fed."""

    def __init__(self):
        self.bulks, self.singles = [], []

    def one(self, n):
        self.singles.append(n)

    def many(self, numbers):
        self.bulks.append(numbers)


class ListedSingly(Listed):
    """The same without a bulk call."""

    bulk = False


def test_everybody_on_postgresql_takes_part_with_one_process():
    assert [name for name in ADAPTERS if site(name).vendor == POSTGRES] == NAMES
    assert all([way.name for way in site(name).ways].count(ONE) == 1 for name in NAMES)


def test_the_page_tells_how_to_run_it():
    page = (ROOT / "docs/reference/benchmarks.md").read_text("utf-8")
    assert "| `make bench-hardships` |" in page
    assert "\n## Beside others under hardship\n" in page


def test_what_is_slow_at_both_ends_of_a_turn_is_not_in_its_rate():
    even = [n * 1_000_000 for n in range(80)]
    start = [n * 50_000_000 - 10**9 for n in range(10)]
    end = [n * 50_000_000 + 10**9 for n in range(10)]
    assert rate(start + even + end) == pytest.approx(1_000)


@pytest.mark.parametrize("runs", [0, 1])
def test_so_few_runs_have_no_rate(runs):
    with pytest.raises(ContestantFailed, match=f"only {runs} jobs ran"):
        rate(list(range(runs)))


def test_jobs_are_fed_in_bulk_where_there_is_such_a_thing(monkeypatch):
    monkeypatch.setattr(producer, "FED_AT_ONCE", {True: 2, False: 2})
    found = Listed()
    assert producer.feed(found, first=7, jobs=3, seconds=60) == 3
    assert found.bulks == [[7, 8], [9]]
    found = ListedSingly()
    assert producer.feed(found, first=7, jobs=3, seconds=60) == 3
    assert found.singles == [7, 8, 9]


def test_feeding_ends_when_its_time_is_over_and_tells_how_many():
    found = Listed()
    assert producer.feed(found, first=0, jobs=3, seconds=-1) == 0
    assert not found.bulks


def test_a_stream_keeps_its_backlog_and_tells_the_least_that_waited():
    ran, fed = [0], []
    stream = Stream(
        ran=lambda: ran[0],
        fill=lambda jobs, first: fed.append((jobs, first)),
        backlog=10,
        at_once=4,
        step_seconds=0.01,
    )
    stream.fill_up()
    assert fed == [(4, 0), (4, 4), (4, 8)]
    ran[0] = 9
    stream.step(0)
    assert fed[3:] == [(4, 12)]
    assert stream.least_waiting == 3
    ran[0] = 16
    stream.step(0)
    assert stream.least_waiting == 0


def nothing(*_):
    """Fills, without any job."""


def test_the_steps_of_a_stream_fill_its_time():
    stream = Stream(ran=count().__next__, fill=nothing, step_seconds=0.01)
    assert len(list(stream.steps(0.05))) == 5
    assert len(list(stream.steps(0.001))) == 1


def test_a_stream_is_watched_until_it_is_as_fast_as_before(monkeypatch):
    stream = Stream(ran=lambda: 0, fill=nothing)
    rates = chain([5.0, 8.9, 9.0], repeat(10.0))
    monkeypatch.setattr(stream, "step", lambda _: next(rates))
    assert list(stream.recovery(before=10.0, within=60)) == [5.0, 8.9, 9.0]


def test_figures_stand_in_the_tables_and_who_failed_is_told():
    measured, gone, slow = OURS, "huey", "pgqueuer"
    found = Hardships([measured, gone, slow], QUICK)
    found.growths[measured] = Growth(1_000, 500.0, 200_000, 250.0)
    found.holds[measured] = Hold(400.0, [300.0, 200.0], [380.0], 5.2, 19_000)
    found.holds[slow] = Hold(400.0, [100.0], [200.0], None, 0)
    growths, holds = found.tables()
    assert growths.rows[0] == ["django_jobs", "1,000", "500", "200,000", "250", "0.50"]
    assert growths.rows[1] == ["huey", "failed", "–", "–", "–", "–"]
    assert holds.rows[0] == ["django_jobs", "400", "200", "0.50", "5", "19,000"]
    assert holds.rows[2] == ["pgqueuer", "400", "100", "0.25", "not in 4: 0.50", "0"]
    assert "| django_jobs | 1,000 | 500 |" in growths.markdown()


def test_a_contestant_that_fails_keeps_nobody_from_being_measured(monkeypatch):
    class Named:
        def __init__(self, name):
            self.name = name

    def grow(contestant, way, extent):
        if contestant.name == "huey":
            raise ContestantFailed("no job ran")
        return Growth(1, 2.0, 3, 4.0)

    monkeypatch.setattr(hardships, "grow", grow)
    monkeypatch.setattr(hardships, "hold", lambda *_: Hold(1.0, [1.0], [1.0], 1.0, 1))
    found = Hardships(["huey", OURS], QUICK)
    found._contestants = {name: Named(name) for name in ("huey", OURS)}
    found.run()
    assert list(found.growths) == [OURS]
    assert list(found.holds) == ["huey", OURS]
    assert found.plain()["huey"]["failures"] == {"growth": "no job ran"}
