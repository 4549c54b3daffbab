"""For django_jobs, which finds the module by its name."""

from django_jobs import job
from tests.benchmarks.rivals.marks import mark


@job(key="rivals.noop")
def noop(n: int) -> None:
    mark(n)
