"""For django-q2, which calls any function by its path."""

from tests.benchmarks.rivals.marks import mark


def noop(n: int) -> None:
    mark(n)
