"""A module of an installed app that nobody imports before a task in it is due."""

from django_jobs.tasks import task
from tests.integration.tasks.chores.tasks import write


@task
def found(diary):
    write(diary, "found")


def plain(diary):
    """No task: a message that names it must not run it."""
    write(diary, "plain")
