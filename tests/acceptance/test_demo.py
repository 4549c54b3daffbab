"""The demo shows what it says, says what it did not show, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "testproject.demo"]
BREAK_THE_REPLAY = """
import sys
from testproject.demo import __main__ as demo, browser

def submit_but_forget_to_confirm(self, page, form, values):
    return page if "confirmed" in form.names else real(self, page, form, values)

real, browser.Browser.submit = browser.Browser.submit, submit_but_forget_to_confirm
sys.exit(demo.main())
"""

pytestmark = pytest.mark.only_on("sqlite")  # it brings its own database, and that is SQLite


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}


def run(command, environment):
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout + done.stderr


def processes_of(output):
    return [int(pid) for pid in re.findall(r"process (\d+)", output)]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_demo_shows_the_whole_way_of_a_job(environment, tmp_path):
    began = time.monotonic()
    code, output = run(DEMO, environment)
    assert code == 0, output
    assert time.monotonic() - began < 60
    for told in (
        "failed twice, was retried after",
        "became a dead letter",
        "the dead-letters page lists it",
        "replayed over HTTP as",
        "the replayed job succeeded",
        "All of it happened",
    ):
        assert told in output
    assert "\033[" not in output  # colours are for terminals
    assert len(processes_of(output)) == 2
    assert all(map(is_gone, processes_of(output)))
    assert not list(tmp_path.iterdir())


def test_the_demo_says_what_did_not_happen_and_cleans_up(environment, tmp_path):
    code, output = run([sys.executable, "-c", BREAK_THE_REPLAY], environment)
    assert code == 1, output
    assert output.splitlines()[-1].startswith("Did not happen: the admin says that the job was")
    assert "All of it happened" not in output
    assert all(map(is_gone, processes_of(output)))
    assert not list(tmp_path.iterdir())


def test_a_demo_that_is_told_to_go_takes_its_processes_along(environment, tmp_path):
    with subprocess.Popen(
        DEMO, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as demo:
        for line in demo.stdout:
            if processes_of(line):
                worker = processes_of(line)[0]
                break
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(30) == 128 + signal.SIGTERM
    assert is_gone(worker)
    assert Path(tempfile.gettempdir()) != tmp_path
    assert not list(tmp_path.iterdir())
