"""Processes that are killed by a real signal at an exact point, one after the other.

    python -m tests.integration.outbox.dying ROLE COUNT

Prints the ids of those that SIGKILL has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback


def main() -> int:
    import django  # noqa: PLC0415 - the environment chooses its settings

    django.setup()
    role, count = {"commit": commit, "relay": relay, "run": run}[sys.argv[1]], int(sys.argv[2])
    print(json.dumps([pid for number in range(count) if (pid := _killed(role, number))]))
    return 0


def _killed(role, number: int) -> int:
    """Run a role in a process of its own; its id if SIGKILL was its end."""
    pid = os.fork()
    if not pid:
        try:
            role(number)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the end of a process
            traceback.print_exc()
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0, status
    return pid if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else 0


def die(*_args: object, **_options: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def commit(number: int) -> None:
    """Enqueue in a transaction, and die when it is committed, before anything else happens."""
    from django.db import transaction  # noqa: PLC0415 - Django is set up by now

    from django_jobs.backends.registry import backends  # noqa: PLC0415 - as above
    from django_jobs.conf import get_settings  # noqa: PLC0415 - as above
    from testproject.shop.models import Order  # noqa: PLC0415 - as above
    from tests.integration.outbox.depot.jobs import deliver  # noqa: PLC0415 - as above

    # Without an outbox the push comes before all other hooks.
    backends[get_settings().default_backend].enqueue = die
    with transaction.atomic():
        Order.objects.create(email=f"{number}@placed.example", total=1)
        transaction.on_commit(die)
        deliver.using(queue=f"q{number % 25}").enqueue(str(number))


def relay(number: int) -> None:
    """Push what a queue has in the outbox, and die before it is noted."""
    from django_jobs.backends.registry import backends  # noqa: PLC0415 - as above
    from django_jobs.conf import get_settings  # noqa: PLC0415 - as above
    from django_jobs.outbox.relay import Relay  # noqa: PLC0415 - as above
    from django_jobs.worker.build import build_relay  # noqa: PLC0415 - as above

    settings = get_settings()
    made = build_relay(backends[settings.default_backend], settings)
    mine = Relay(made.backend, made.home, made._opener, lease_seconds=0.5)
    mine._queues = lambda: [f"q{number % 25}"]
    push = mine.backend.push

    def push_and_die(outgoing, **how):
        push(outgoing, **how)
        die()

    mine.backend.push = push_and_die
    mine.step()


def run(_number: int) -> None:
    """Run every job that has arrived, and move nothing."""
    from django_jobs.backends.registry import backends  # noqa: PLC0415 - as above
    from django_jobs.conf import get_settings  # noqa: PLC0415 - as above
    from django_jobs.worker.build import build_cycle  # noqa: PLC0415 - as above

    settings = get_settings()
    cycle = build_cycle(backends[settings.default_backend], settings)
    while cycle.once(cycle.backend.queues() or ["default"]):
        pass


if __name__ == "__main__":
    sys.exit(main())
