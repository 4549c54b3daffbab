"""Another process that reaps and claims until a file is there: ``python -m … STOP_FILE``."""

import sys
import time
from pathlib import Path

import django


def main(stop):
    from django_jobs.backends.database import DatabaseBackend  # noqa: PLC0415 - Django is set up now

    backend = DatabaseBackend("database", {})
    backend.stats("default")
    print("ready", flush=True)
    sys.stdin.readline()
    rounds = reaped = claimed = 0
    while not stop.exists():
        reaped += backend.reap_expired()
        claimed += len(backend.fetch(["default"], 1, 60.0))
        rounds += 1
        time.sleep(0.01)
    print(rounds, reaped, claimed, flush=True)


if __name__ == "__main__":
    django.setup()
    main(Path(sys.argv[1]))
