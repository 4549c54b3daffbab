"""``python -m testproject.demo``: exit code 0 when everything happened, 1 with what did not."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testproject.demo.telling import DidNotHappen, Teller

if TYPE_CHECKING:
    from types import FrameType


def main() -> int:
    began = time.monotonic()
    # The processes that are started below end with this one, also when it is told to go.
    signal.signal(signal.SIGTERM, _leave)
    tell = Teller()
    with tempfile.TemporaryDirectory(prefix="django_jobs-demo-") as folder:
        _use_database(Path(folder) / "demo.sqlite3")
        import django  # noqa: PLC0415 - the settings ask for the database

        django.setup()
        from testproject.demo.story import Story  # noqa: PLC0415 - needs loaded apps

        story = Story(Path(folder), tell)
        try:
            story.run()
        except DidNotHappen as missing:
            tell.failed(str(missing), story.last_words())
            return 1
        finally:
            story.clean_up()
    tell.summary(time.monotonic() - began)
    return 0


def _use_database(path: Path) -> None:
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "DJANGO_JOBS_TEST_DB": "sqlite",
        "DJANGO_JOBS_SQLITE_PATH": str(path),
    }


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
