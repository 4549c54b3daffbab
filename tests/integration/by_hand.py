"""Jobs put into a store by hand, for tests of its statements."""

from django_jobs.testing.factories import make_outgoing


def put(store, count=1, queue="default", **terms):
    terms = {"backend": "database", **terms}
    return [
        stored.id for stored in store.enqueue([make_outgoing(queue, **terms) for _ in range(count)])
    ]
