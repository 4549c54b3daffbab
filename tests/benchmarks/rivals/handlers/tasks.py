"""For the backends of Django's own Tasks: django-ox, dj-queue and django-tasks-db."""

from django.tasks import task

from tests.benchmarks.rivals.marks import mark


@task
def noop(n: int) -> None:
    mark(n)
