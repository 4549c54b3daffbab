"""For celery: the app that its workers run, with late acks and without results."""

from celery import Celery

from tests.benchmarks.rivals.marks import mark
from tests.benchmarks.rivals.surroundings import Surroundings

app = Celery("rivals", broker=Surroundings.here().database, fixups=set())  # no Django here
app.conf.update(
    task_acks_late=True, task_ignore_result=True, broker_connection_retry_on_startup=True
)


@app.task(name="noop")
def noop(n: int) -> None:
    mark(n)
