"""For procrastinate: the app that its command runs, and a coroutine, for which it needs no thread."""

from procrastinate import App, PsycopgConnector

from tests.benchmarks.rivals.marks import mark

app = App(connector=PsycopgConnector())  # libpq's variables say where


@app.task
async def noop(n: int) -> None:
    mark(n)
