"""Enqueue on commit: a backend outside the transaction gets its jobs when that is committed."""

import pytest
from django.db import connections, transaction

from django_jobs import enqueue_many, job
from django_jobs.backends.registry import backends
from django_jobs.exceptions import DuplicateJob, NotSupported, PushFailed
from django_jobs.models import Job
from testproject.shop.models import Order

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@job(key="pushing.note")
def note(word):
    return word


def there():
    return Job.objects.using("other").count()


class Changed(Exception):
    """One's mind, in the middle of a transaction."""


@transaction.atomic
def undone(word):
    note.enqueue(word)
    raise Changed


@transaction.atomic
def done(*words):
    """Enqueue each in a savepoint of its own, so that each is a push of its own."""
    Order.objects.create(email="a@example.com", total=1)
    handles = []
    for word in words:
        with transaction.atomic():
            handles.append(note.enqueue(word))
    return handles


def lost(error):
    return [job.payload["args"] for job in error.prepared]


@pytest.fixture
def carrier(broker):
    return broker(ON_COMMIT="default")


def test_a_job_is_pushed_when_the_transaction_is_committed(carrier):
    with transaction.atomic():
        handle = note.enqueue("a")
        assert there() == 0
        assert handle.created
        assert handle.status == "unknown"
    assert carrier.find(handle.id)
    assert handle.status == "ready"


def test_a_rolled_back_transaction_pushes_nothing(carrier):
    with pytest.raises(Changed):
        undone("a")
    note.enqueue("b")
    assert there() == 1


def test_a_rolled_back_savepoint_takes_its_jobs_along(carrier):
    with transaction.atomic():
        first = note.enqueue("a")
        with pytest.raises(Changed):
            undone("b")
        last = note.enqueue("c")
    assert {str(pk) for pk in Job.objects.using("other").values_list("pk", flat=True)} == {
        first.id,
        last.id,
    }


def test_without_a_transaction_it_is_pushed_at_once(carrier):
    note.enqueue("a")
    assert there() == 1


def test_a_transaction_elsewhere_is_not_waited_for(carrier):
    with transaction.atomic(using="other"):
        note.enqueue("a")
        assert there() == 1


def test_on_commit_can_be_turned_off(broker):
    broker(ON_COMMIT=False)
    with transaction.atomic():
        note.enqueue("a")
        assert there() == 1


def test_a_database_backend_shares_the_transaction_unless_told_otherwise(broker):
    broker()
    with transaction.atomic():
        note.enqueue("a")
        assert there() == 1


def test_a_backend_outside_any_transaction_waits_by_itself(settings):
    settings.DJANGO_JOBS = {
        "BACKENDS": {"memory": {"BACKEND": "django_jobs.backends.memory.MemoryBackend"}},
        "DEFAULT_BACKEND": "memory",
    }
    memory = backends["memory"]
    with transaction.atomic():
        note.enqueue("a")
        assert not memory.jobs
    assert len(memory.jobs) == 1


def test_many_that_are_enqueued_one_by_one_are_pushed_in_their_order_and_together(carrier):
    with transaction.atomic():
        handles = [note.enqueue(str(number)) for number in range(50)]
        handles += enqueue_many(note.prepare(str(number)) for number in range(50))
        assert len(connections["default"].run_on_commit) == 1
    leases = carrier.fetch(["default"], 200, 30.0)
    assert [lease.id for lease in leases] == [handle.id for handle in handles]


class Broken(Exception):
    """The broker is away."""


@pytest.fixture
def away(carrier, monkeypatch):
    """Lets pushes fail while it holds something."""
    failures = []
    push = carrier.enqueue

    def enqueue(outgoing, **options):
        if failures and not failures.pop():
            raise Broken("no answer")
        return push(outgoing, **options)

    monkeypatch.setattr(carrier, "enqueue", enqueue)
    return failures


def test_a_push_that_fails_names_the_jobs_and_gives_them_back(away, caplog):
    away.append(False)
    with pytest.raises(PushFailed) as caught:
        done("a")
    (prepared,) = caught.value.prepared
    assert Order.objects.count() == 1
    assert prepared.id in str(caught.value)
    assert "OUTBOX" in str(caught.value)
    assert isinstance(caught.value.__cause__, Broken)
    assert [record.key for record in caplog.records] == ["push.lost"]
    assert prepared.id in caplog.records[0].getMessage()
    (again,) = enqueue_many(caught.value.prepared)
    assert again.id == prepared.id
    assert there() == 1


def test_what_comes_after_a_push_that_fails_is_pushed_all_the_same(away):
    away += [True, False]  # the first push fails, the second does not
    with pytest.raises(PushFailed) as caught:
        done("a", "b")
    assert lost(caught.value) == [["a"]]
    assert there() == 1


def test_all_that_failed_is_named_by_one_error(away):
    away += [False, False]
    with pytest.raises(PushFailed) as caught:
        done("a", "b")
    assert lost(caught.value) == [["a"], ["b"]]


def test_a_unique_key_is_refused_while_nobody_can_tell_who_holds_it(carrier):
    unique = note.using(unique_key="k")
    with transaction.atomic(), pytest.raises(NotSupported, match="after the transaction"):
        unique.enqueue("a")
    unique.enqueue("a")
    with pytest.raises(DuplicateJob):
        note.using(unique_key="k", on_conflict="raise").enqueue("b")
    assert there() == 1


@pytest.mark.django_db(transaction=False, databases=["default", "other"])
def test_the_transaction_around_a_test_is_none(carrier, django_capture_on_commit_callbacks):
    note.enqueue("a")
    assert there() == 1
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        note.enqueue("b")
        assert there() == 1
    assert there() == 2
