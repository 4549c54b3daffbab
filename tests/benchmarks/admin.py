"""The dead-letter page among a million dead letters: how long it takes, and how many queries.

    make bench-admin BENCH_ARGS="--letters 1000000 --samples 30"

A page is asked for as a browser would ask, through the whole of Django, by somebody logged
in. What two filters leave together may be nothing at all, however much each of them leaves.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from tests.benchmarks.harness import throwaway_database, write_json

LIST = "/admin/django_jobs/failedjob/"
LONG_AGO = "2020-01-01 00:00:00+00:00"
LIMIT_MS, MOST_QUERIES = 300.0, 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    with throwaway_database():
        figures = {}
        for mostly_open in (False, True):
            prepare(options.letters, mostly_open=mostly_open)
            name = "nine tenths open" if mostly_open else "a tenth open"
            print(f"\n{options.letters:,} dead letters, {name}; milliseconds")
            figures[name] = measured(options.samples, options.letters)
        write_json(options.json, figures)


def prepare(letters: int, *, mostly_open: bool) -> None:
    from django.db import connection

    from django_jobs.operations.dead_letters import recount_groups
    from tests.plans import dead

    began = time.perf_counter()
    dead.empty(connection)
    dead.fill(connection, letters, mostly_open=mostly_open)
    recount_groups()
    dead.analyze(connection)
    print(f"filled in {time.perf_counter() - began:.0f} s")


def measured(samples: int, letters: int) -> dict[str, Any]:
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    user = User.objects.filter(username="bench").first() or User.objects.create_superuser("bench")
    client = Client()
    client.force_login(user)
    figures = {}
    for name, queries in pages(letters).items():
        taken, most = [], 0
        for number in range(samples + 2):
            query = queries[number % len(queries)]
            connection.queries_log.clear()  # it has a limit, and then counts no more
            with CaptureQueriesContext(connection) as sent:
                began = time.perf_counter()
                answer = client.get(LIST, query)
                taken.append((time.perf_counter() - began) * 1e3)
            assert answer.status_code == 200, answer
            most = max(most, len(sent))
        figures[name] = told(name, sorted(taken[2:]), most)
    return figures


def told(name: str, ranked: list[float], queries: int) -> dict[str, float]:
    p50, p95 = statistics.median(ranked), ranked[int(len(ranked) * 0.95)]
    good = p95 < LIMIT_MS and queries <= MOST_QUERIES
    print(f"  {name:<44}p50 {p50:7.1f}  p95 {p95:7.1f}  queries {queries:3}{'' if good else '  !'}")
    return {"p50_ms": p50, "p95_ms": p95, "queries": queries}


def pages(letters: int) -> dict[str, list[dict[str, str]]]:
    """What is asked for, in turns."""
    from django_jobs.models import FailedJob

    some = list(FailedJob.objects.filter(pk__gte=FailedJob.objects.first().pk + letters // 3)[:7])
    queues = [f"queue-{number}" for number in range(5)]
    return {
        "the list": [{}],
        "next pages": [{"p": str(number)} for number in (2, 3, 20, 100, 200)],
        "of each resolution": [{"resolution": word} for word in ("open", "replayed", "discarded")],
        "all resolutions": [{"resolution": "all"}],
        "no such resolution": [{"resolution": "nobody"}],
        "of a queue": [{"queue": queue} for queue in queues],
        "of a queue, all resolutions": [{"queue": q, "resolution": "all"} for q in queues],
        "of no such queue": [{"queue": "nobody"}, {"queue": "nobody", "resolution": "all"}],
        "of a handler": [{"handler": f"shop.jobs.handler_{n}"} for n in (0, 4, 7, 19)],
        "of a reason": [{"reason": r} for r in ("timed-out", "exhausted", "rejected-signature")],
        "of a queue, a handler and a reason": [
            {"queue": q, "reason": "timed-out", "handler": "shop.jobs.handler_3"} for q in queues
        ],
        "of a queue and a reason": [{"queue": q, "reason": "rejected-signature"} for q in queues],
        "the same, all resolutions": [
            {"queue": q, "reason": "rejected-signature", "resolution": "all"} for q in queues
        ],
        "of an error group": [{"fingerprint": letter.fingerprint} for letter in some],
        "of a day": [{"failed_at__gte": LONG_AGO, "queue": q} for q in queues],
        "before a day": [
            {"failed_at__lt": "2020-01-01 00:00:00+00:00", "queue": q} for q in queues
        ],
        "search: an id": [{"q": str(letter.job_id)} for letter in some],
        "search: how an id begins": [{"q": str(letter.job_id)[:13]} for letter in some],
        "search: a trace id": [{"q": str(letter.trace_id)} for letter in some],
        "search: how a trace id begins": [{"q": str(letter.trace_id)[:6]} for letter in some],
        "search: one digit": [{"q": digit} for digit in "0a5"],
        "search: a fingerprint": [{"q": letter.fingerprint} for letter in some],
        "search: how a fingerprint begins": [{"q": letter.fingerprint[:5]} for letter in some],
        "search: text": [{"q": text} for text in ("gateway answer", "request 99", "payload")],
        "search: text that is not there": [{"q": "elephant"}, {"q": "no such words"}],
        "search: text in a queue": [{"q": "elephant", "queue": q} for q in queues],
    }


if __name__ == "__main__":
    main()
