"""For procrastinate: a coroutine, which it runs without a thread."""

from procrastinate.contrib.django import app

from tests.benchmarks.rivals.marks import mark


@app.task
async def noop(n: int) -> None:
    mark(n)
