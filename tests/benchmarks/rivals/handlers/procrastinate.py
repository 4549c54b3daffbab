"""For procrastinate: the app that its command runs; a coroutine needs no thread there."""

from procrastinate import App, PsycopgConnector

from tests.benchmarks.rivals.marks import mark

app = App(connector=PsycopgConnector())  # libpq's variables say where


@app.task
async def noop(n: int) -> None:
    mark(n)
