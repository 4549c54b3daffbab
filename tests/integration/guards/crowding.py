"""Fifty processes that contend: forked by one that set Django up, and let go together.

    python -m tests.integration.guards.crowding COUNT DEADLINE_SECONDS

Each processes jobs, one at a time, until no live job is left. Exit code 0: all of them did.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback


def main() -> int:
    import django  # noqa: PLC0415 - the environment chooses its settings

    django.setup()
    count, deadline = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    reads, writes = os.pipe()
    pids = [_fork(reads, writes, deadline) for _ in range(count)]
    os.close(reads)
    os.write(writes, b"!" * count)
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return int(any(statuses))


def _fork(reads: int, writes: int, deadline: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.close(writes)
        os.read(reads, 1)
        code = 0 if _work(deadline) else 1
    except BaseException:  # noqa: BLE001 - the end of a process
        traceback.print_exc()
    os._exit(code)


def _work(deadline: float) -> bool:
    from django_jobs.db.transactions import in_reading  # noqa: PLC0415 - as above
    from django_jobs.models import Job  # noqa: PLC0415 - as above
    from django_jobs.worker import process_once  # noqa: PLC0415 - as above

    pause = 0.01
    while time.monotonic() < deadline:
        if process_once("default"):
            pause = 0.01
            continue
        if not in_reading("default", Job.objects.exists):
            return True
        # So many on a few cores: those with nothing to do must leave some of it to the rest.
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(pause * 2, 1.0)
    return False


if __name__ == "__main__":
    sys.exit(main())
