"""A batch that is sealed and stored part after part, and yet one step."""

import pytest
from django.db import OperationalError, connection, transaction

from django_jobs import enqueue, enqueue_many, job
from django_jobs.backends.registry import backends
from django_jobs.exceptions import DuplicateJob, EnqueueOutcomeUnknown, InvalidPayload
from django_jobs.models import Job
from django_jobs.worker import process_once

PARTS = 3
JOBS = PARTS * enqueue.SEALED_AT_ONCE


@job(key="many.note")
def note(what):
    return what


@pytest.fixture
def parts(monkeypatch):
    """What each enqueue of the backend was given."""
    given, backend = [], backends["database"]
    own = backend.enqueue

    def counted(outgoing, **how):
        given.append(len(outgoing))
        return own(outgoing, **how)

    monkeypatch.setattr(backend, "enqueue", counted)
    return given


@pytest.mark.django_db(transaction=True)
def test_a_large_batch_is_stored_in_parts_and_answered_in_its_order(parts):
    handles = enqueue_many(note.prepare(n) for n in range(JOBS + 1))
    assert parts == [*[enqueue.SEALED_AT_ONCE] * PARTS, 1]
    assert [handle.id for handle in handles] == [
        str(pk) for pk in Job.objects.order_by("due", "id").values_list("pk", flat=True)
    ]
    assert all(handle.created for handle in handles)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("last", "refusal"),
    [
        (lambda: note.prepare({1, 2}), InvalidPayload),
        (lambda: note.prepare("x" * 300_000), InvalidPayload),
    ],
    ids=["no JSON", "too long"],
)
def test_what_is_refused_late_leaves_none_of_the_parts_before(last, refusal):
    with pytest.raises(refusal):
        enqueue_many([*(note.prepare(n) for n in range(JOBS)), last()])
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_conflict_in_the_last_part_leaves_none_of_the_parts_before():
    unique = note.using(unique_key="one", on_conflict="raise")
    holder = unique.enqueue("holder")
    with pytest.raises(DuplicateJob):
        enqueue_many([*(note.prepare(n) for n in range(JOBS)), unique.prepare("late")])
    assert [str(pk) for pk in Job.objects.values_list("pk", flat=True)] == [holder.id]


@pytest.mark.django_db(transaction=True)
def test_a_conflict_of_one_job_leaves_none_of_those_that_ask_for_another_answer():
    unique = note.using(unique_key="one", on_conflict="raise")
    holder = unique.enqueue("holder")
    with pytest.raises(DuplicateJob):
        enqueue_many([note.prepare("early"), unique.prepare("late")])
    assert [str(pk) for pk in Job.objects.values_list("pk", flat=True)] == [holder.id]


@pytest.mark.django_db(transaction=True)
def test_jobs_with_options_of_their_own_are_stored_in_parts_too(parts):
    batch = [note.using(unique_key=f"{n}").prepare(n) for n in range(JOBS)]
    assert all(handle.created for handle in enqueue_many(batch))
    assert parts == [enqueue.SEALED_AT_ONCE] * PARTS


@pytest.mark.django_db(transaction=True)
def test_a_large_batch_that_is_enqueued_again_makes_none_twice():
    batch = [note.prepare(n) for n in range(JOBS)]
    batch.append(batch[0])
    assert [one.created for one in enqueue_many(batch)] == [*[True] * JOBS, False]
    assert process_once().status == "acked"
    assert not any(one.created for one in enqueue_many(batch))
    assert Job.objects.count() == JOBS - 1


@pytest.mark.django_db
def test_a_large_batch_belongs_to_the_transaction_of_the_caller():
    with transaction.atomic():
        enqueue_many(note.prepare(n) for n in range(JOBS))
        assert Job.objects.count() == JOBS
        transaction.set_rollback(True)
    assert not Job.objects.exists()


@pytest.mark.only_on("postgres")
@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_between_two_parts_leaves_all_jobs_to_be_enqueued_again():
    def breaking():
        for n in range(JOBS):
            yield note.prepare(Breaking() if n == JOBS - 1 else n)

    class Breaking(dict):
        """Sealed with the last part, when those before are stored."""

        def items(self):
            with connection.cursor() as cursor, pytest.raises(OperationalError):
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            return super().items()

    batch = list(breaking())
    with pytest.raises(EnqueueOutcomeUnknown) as caught:
        enqueue_many(batch)
    assert list(caught.value.prepared) == batch
    assert not Job.objects.exists()
    batch[-1].payload["args"][0] = 1
    assert all(handle.created for handle in enqueue_many(caught.value.prepared))
