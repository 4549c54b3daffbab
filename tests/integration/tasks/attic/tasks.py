"""Tasks of a package that is no installed app."""

from pathlib import Path

from django_jobs.tasks import task


@task
def dusty(marker):
    Path(marker).touch()
