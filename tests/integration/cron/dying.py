"""A scheduler that is killed by a real signal right after it has committed a tick with a job.

python -m tests.integration.cron.dying
"""

import os
import signal

import django

django.setup()

from django.db import connection  # noqa: E402 - Django has to be set up
from django.db.models.signals import post_save  # noqa: E402 - as above

from django_jobs.cron.loop import tick_once  # noqa: E402 - as above
from django_jobs.models import ScheduleTick  # noqa: E402 - as above

written: list[int] = []


def note(instance: ScheduleTick, **_: object) -> None:
    if instance.job_id:
        written.append(instance.pk)


def main() -> None:
    post_save.connect(note, sender=ScheduleTick)
    connection.ensure_connection()
    commit = connection._commit  # type: ignore[attr-defined] # what says COMMIT, and no more

    def commit_and_die() -> None:
        commit()
        if written:
            os.kill(os.getpid(), signal.SIGKILL)

    connection._commit = commit_and_die  # type: ignore[attr-defined] # as above
    tick_once()


if __name__ == "__main__":
    main()
