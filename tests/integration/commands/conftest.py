"""Commands called here and in processes of their own, and jobs for them to find."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from django_jobs.models import FailedJob
from django_jobs.worker.build import process_once
from testproject.shop.jobs import doomed

ROOT = Path(__file__).resolve().parents[3]
FORGED = "CRITICAL django_jobs"
HOSTILE = f"\x1b[31mred\x1b[0m\r\n{FORGED} all keys\u202erevoked\x00\x7f"


@pytest.fixture
def run():
    """Call a command in this process: its code, and what it wrote."""

    def call(*arguments, **options):
        out, err = StringIO(), StringIO()
        try:
            call_command(*map(str, arguments), stdout=out, stderr=err, **options)
            code = 0
        except SystemExit as exit_:
            code = exit_.code
        except CommandError as error:
            code = error.returncode
            err.write(str(error))
        return SimpleNamespace(
            code=code,
            out=out.getvalue(),
            err=err.getvalue(),
            json=lambda: json.loads(out.getvalue()),
        )

    return call


@pytest.fixture
def manage(site_environment):
    """Run manage.py in a process of its own."""

    def start(*arguments, stdin="", **environment):
        return subprocess.run(
            [sys.executable, str(ROOT / "testproject/manage.py"), *map(str, arguments)],
            env={**site_environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return start


@pytest.fixture
def die():
    """Make dead letters, the real way."""

    def make(count=1, **options):
        for _ in range(count):
            doomed.using(**options).enqueue()
            assert process_once(options.get("queue", "default")).status == "dead-lettered"
        return list(FailedJob.objects.order_by("pk"))[-count:]

    return make


@pytest.fixture
def hostile_letter(die):
    """A dead letter whose every text is out to trick a terminal."""
    (failed,) = die()
    FailedJob.objects.update(
        error_type=HOSTILE.replace("\x00", ""),
        error_message=HOSTILE.replace("\x00", ""),
        traceback=HOSTILE.replace("\x00", ""),
        output=HOSTILE.replace("\x00", ""),
        reason="\x1b]0;title\x07",
        name="\x1b[2J",
    )
    failed.refresh_from_db()
    return failed


def assert_harmless(text):
    """No control character but the ends of lines, and no line that a name began."""
    assert not [c for c in text if c != "\n" and not c.isprintable()]
    assert not [line for line in text.splitlines() if line.startswith(FORGED)]
