"""A crowd of processes, and what its handlers wrote."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CROWD = 50
SECONDS = 100


class Diary:
    """The lines that handlers wrote, in the order in which they did."""

    def __init__(self, path):
        self.path = path

    def __str__(self):
        return str(self.path)

    @property
    def lines(self):
        return [line.split() for line in self.path.read_text().splitlines()]

    def of(self, word):
        """Of each line with a word: the name and the fence."""
        return [(name, fence) for _, found, name, fence, _ in self.lines if found == word]

    def most_at_once(self):
        running = most = 0
        for _, word, *_ in self.lines:
            running += {"begin": 1, "end": -1}.get(word, 0)
            most = max(most, running)
        return most


@pytest.fixture
def diary(tmp_path):
    return Diary(tmp_path / "diary")


@pytest.fixture
def crowd(site_environment):
    """Let a crowd process all there is."""

    def crowd(count=CROWD, **settings):
        environment = {
            **site_environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.guards.crowd.settings",
            "CROWD_JOBS": json.dumps(settings),
        }
        command = [sys.executable, "-m", "tests.integration.guards.crowding"]
        done = subprocess.run(
            [*command, str(count), str(SECONDS)],
            cwd=ROOT,
            env=environment,
            timeout=SECONDS + 20,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    return crowd
