"""Other processes: each is a Python of its own, waits for the word to go, and tells what it did.

    python -m tests.integration.children claim '{"limit": 20}'

Run by ``Crew``. A role gets its parameters as keywords and returns something JSON can say.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0


class Crew:
    """Processes that start their work together."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._children: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()
        self._stack.close()

    def add(self, role: str, **parameters: Any) -> None:
        """Start one more process. It gets ready and then waits."""
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.children", role, json.dumps(parameters)],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._children.append(self._stack.enter_context(child))

    def work(self) -> list[Any]:
        """Let all of them go at once; what each returned, in the order they were added."""
        self.start()
        answers = self.hear()
        assert [child.wait(PATIENCE_SECONDS) for child in self._children] == [0] * len(answers)
        return answers

    def start(self) -> None:
        """Give the word to go once every process is ready."""
        assert self.hear() == ["ready"] * len(self._children)
        self.tell()

    def hear(self) -> list[Any]:
        """The next thing that each process says."""
        return [json.loads(child.stdout.readline()) for child in self._children]

    def tell(self) -> None:
        """Let each process go on."""
        for child in self._children:
            child.stdin.write("go\n")
            child.stdin.flush()


def claim(*, limit: int, queues: list[str], expected: int, optimistic: bool = False) -> list[Any]:
    """Claim and ack, with a look at both queues in turn, until every job is accounted for."""
    from django_jobs.models import JobResult  # noqa: PLC0415 - Django is set up by now

    backend = _backend(optimistic=optimistic)
    claimed = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        leases = backend.fetch(queues, limit, 60.0)
        if leases:
            claimed += [(lease.id, lease.token) for lease in leases]
            answers = backend.ack(leases, {lease.id: _result() for lease in leases})
            assert {answer.value for answer in answers} == {"settled"}, answers
        elif _count(JobResult) == expected:
            break
        else:
            backend.wait(queues, 0.02)
    return claimed


def enqueue(*, queues: list[str], count: int) -> list[str]:
    """Enqueue one by one, and every tenth time a handful at once."""
    from django_jobs.testing.factories import make_outgoing  # noqa: PLC0415 - as above

    backend = _backend()
    stored = []
    while len(stored) < count:
        size = min(5 if len(stored) % 10 == 0 else 1, count - len(stored))
        queue = queues[len(stored) % len(queues)]
        batch = [make_outgoing(queue, backend="database") for _ in range(size)]
        stored += [one.id for one in backend.enqueue(batch) if one.created]
    return stored


def lose(*, queues: list[str], rounds: int) -> list[str]:
    """Claim with leases that are over at once, and settle none of them."""
    backend = _backend()
    return [lease.id for _ in range(rounds) for lease in backend.fetch(queues, 3, 0.0)]


def reap(*, expected: int) -> int:
    """Reap until every job is accounted for."""
    from django_jobs.models import JobResult  # noqa: PLC0415 - as above

    backend = _backend()
    reaped = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _count(JobResult) < expected and time.monotonic() < deadline:
        reaped += backend.reap_expired(limit=50)
    return reaped


def settle_late(*, queue: str) -> dict[str, str]:
    """Claim, wait until others have the job, and then try every way to settle it."""
    from django_jobs.backends.base import Failure  # noqa: PLC0415 - as above

    backend = _backend()
    (lease,) = backend.fetch([queue], 1, lease_seconds=0.0)
    say_and_wait(lease.token)
    answers = {
        "renew": backend.renew([lease], 600.0)[0],
        "nack": backend.nack(lease),
        "nack later": backend.nack(lease, 5.0),
        "abandon": backend.abandon(lease, Failure(reason="exhausted")),
        "ack": backend.ack([lease], {lease.id: _result()})[0],
    }
    return {verb: answer.value for verb, answer in answers.items()}


def settle_first(*, queue: str) -> str:
    """Claim in one process, so that the first a connection hears of is an ack."""
    from django.db import connections  # noqa: PLC0415 - as above

    backend = _backend()
    (lease,) = backend.fetch([queue], 1, 60.0)
    connections.close_all()
    del connections["default"]
    return backend.ack([lease])[0].value


def move_outbox(*, batch: int) -> int:
    """Push what is in the outbox of the default backend, in small batches; how many arrived.

    After the first of them, when others have begun to take jobs out as well.
    """
    from django_jobs.backends.registry import backends  # noqa: PLC0415 - as above
    from django_jobs.conf import get_settings  # noqa: PLC0415 - as above
    from django_jobs.models import JobResult, OutboxJob  # noqa: PLC0415 - as above
    from django_jobs.outbox import relay as module  # noqa: PLC0415 - as above
    from django_jobs.worker.build import build_relay  # noqa: PLC0415 - as above

    settings = get_settings()
    module.BATCH, module.BATCHES_PER_STEP = batch, 1
    relay = build_relay(backends[settings.default_backend], settings)
    assert relay is not None
    moved = relay.step().jobs
    _until(lambda: _count(JobResult) > 0)
    module.BATCHES_PER_STEP = 10
    while _count(OutboxJob):
        moved += relay.step().jobs
    return moved


def cancel_or_ask_to_stop(*, ids: list[str]) -> list[str]:
    """Cancel jobs, one after the other, when some of them have left; what became of each."""
    from django_jobs.models import OutboxJob  # noqa: PLC0415 - as above
    from django_jobs.operations.cancel import cancel_or_ask_to_stop  # noqa: PLC0415 - as above

    _until(lambda: _count(OutboxJob) < len(ids))
    return [cancel_or_ask_to_stop(job_id, by="racer").status for job_id in ids]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _backend(*, optimistic: bool = False) -> Any:
    from django.db import connection  # noqa: PLC0415 - as above

    from django_jobs.backends.database import DatabaseBackend  # noqa: PLC0415 - as above
    from django_jobs.backends.database.claim import Claim  # noqa: PLC0415 - as above

    backend = DatabaseBackend("database", {})
    if optimistic:
        connection.features.has_select_for_update_skip_locked = False
        backend.claim_class = type("Optimistic", (Claim,), {"keeps_what_it_read": lambda *_: False})
    return backend


def _count(model: Any) -> int:
    """Under SERIALIZABLE even a look can meet a conflict."""
    from django_jobs.db.transactions import in_reading  # noqa: PLC0415 - as above

    return in_reading("default", model.objects.count)


def _result() -> Any:
    from django_jobs.backends.base import ResultRecord  # noqa: PLC0415 - as above

    return ResultRecord(status="succeeded")


ROLES = {
    role.__name__: role
    for role in (
        *(claim, enqueue, lose, reap, settle_late, settle_first),
        *(move_outbox, cancel_or_ask_to_stop),
    )
}


def main() -> None:
    import django  # noqa: PLC0415 - only the child sets it up
    from django.conf import settings  # noqa: PLC0415 - as above

    role, parameters = ROLES[sys.argv[1]], json.loads(sys.argv[2])
    settings.DATABASES["default"].setdefault("OPTIONS", {}).update(parameters.pop("options", {}))
    django.setup()
    say_and_wait("ready")
    print(json.dumps(role(**parameters)), flush=True)


def say_and_wait(word: str) -> None:
    print(json.dumps(word), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
