"""Enqueue on commit: a backend outside the transaction gets its jobs when that is committed."""

import socket
from contextlib import closing, contextmanager

import pytest
from django.db import connections, transaction

from django_jobs import enqueue_many, job
from django_jobs.backends.registry import backends
from django_jobs.exceptions import DuplicateJob, NotSupported, PushFailed
from django_jobs.handlers.base import JobTimeout
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
        assert len(connections["default"].run_on_commit) == 2  # the push, and its error
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


@contextmanager
def committed(using="default", error=PushFailed, match=None):
    """A transaction whose commit is followed by an error."""
    with pytest.raises(error, match=match) as caught, transaction.atomic(using=using):
        yield caught


def rolled_back(*words):
    """Enqueue in a savepoint, and in others within, all of which are rolled back."""
    with transaction.atomic():
        for word in words:
            with transaction.atomic():
                note.enqueue(word)
        transaction.set_rollback(True)


@pytest.mark.parametrize("later", [["b"], ["b", "c", "d"]])
def test_a_push_that_fails_is_raised_though_a_later_savepoint_was_rolled_back(away, later):
    away.append(False)
    with committed() as caught:
        note.enqueue("a")
        rolled_back(*later)
    assert lost(caught.value) == [["a"]]
    assert there() == 0


def test_a_push_that_fails_is_raised_though_an_earlier_savepoint_was_rolled_back(away):
    away.append(False)
    with committed() as caught:
        rolled_back("a")
        note.enqueue("b")
        rolled_back("c")
    assert lost(caught.value) == [["b"]]


def test_only_failures_of_jobs_that_were_committed_are_raised(away):
    away += [False, False]
    with committed() as caught:
        with transaction.atomic():
            note.enqueue("a")
            rolled_back("b")
        with transaction.atomic():
            note.enqueue("c")
        rolled_back("d")
    assert lost(caught.value) == [["a"], ["c"]]


def test_jobs_are_pushed_in_their_order_whatever_savepoints_they_are_in(carrier):
    with transaction.atomic():
        handles = [note.enqueue("a")]
        rolled_back("no")
        with transaction.atomic():
            handles.append(note.enqueue("b"))
            with transaction.atomic():
                handles.append(note.enqueue("c"))
            handles.append(note.enqueue("d"))
        handles.append(note.enqueue("e"))
    leases = carrier.fetch(["default"], 200, 30.0)
    assert [lease.id for lease in leases] == [handle.id for handle in handles]


def raise_changed():
    raise Changed


@pytest.mark.parametrize("robust", [False, True])
def test_a_hook_that_raises_keeps_no_job_from_being_pushed(carrier, robust):
    caught = None
    try:
        with transaction.atomic():
            transaction.on_commit(raise_changed, robust=robust)
            note.enqueue("a")
            transaction.on_commit(raise_changed, robust=robust)
            with transaction.atomic():
                note.enqueue("b")
    except Changed as error:
        caught = error
    assert (caught is None) is robust
    assert there() == 2


@pytest.mark.parametrize("robust", [False, True])
def test_a_push_that_fails_is_raised_before_a_later_hook_raises(away, robust):
    away += [False, False]
    called = []
    with committed() as caught:
        transaction.on_commit(lambda: called.append("before"))
        with transaction.atomic():
            note.enqueue("a")
        transaction.on_commit(raise_changed, robust=robust)
        with transaction.atomic():
            note.enqueue("b")
    assert lost(caught.value) == [["a"], ["b"]]
    assert called == ["before"]


def test_what_was_not_pushed_when_the_handlers_time_was_up_is_logged(carrier, monkeypatch, caplog):
    def out_of_time(_outgoing, **_options):
        monkeypatch.undo()
        raise JobTimeout(1.0)

    monkeypatch.setattr(carrier, "enqueue", out_of_time)
    handles = []
    with committed(error=JobTimeout):
        for word in "ab":
            with transaction.atomic():
                handles.append(note.enqueue(word))
    assert [record.key for record in caplog.records] == ["push.lost"] * 2
    for handle, record in zip(handles, caplog.records, strict=True):
        assert handle.id in record.getMessage()
    assert there() == 0


def test_jobs_that_a_hook_enqueues_hinder_no_others(away):
    away += [False, True]  # from the end: the push of the transaction, and that of the hook
    with committed(error=Broken):
        transaction.on_commit(lambda: note.enqueue("of a hook"))
        note.enqueue("of the transaction")
    assert there() == 1


@pytest.fixture
def unreachable(settings):
    """Two brokers on a port that refuses connections, which wait for what they are told to."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{held.getsockname()[1]}/0"

        def configure(**waits):
            settings.DJANGO_JOBS = {
                "BACKENDS": {
                    alias: {
                        "BACKEND": "django_jobs.backends.redis.RedisBackend",
                        "OPTIONS": {"URL": url},
                        "ON_COMMIT": database,
                    }
                    for alias, database in waits.items()
                },
                "DEFAULT_BACKEND": next(iter(waits)),
            }

        yield configure


def test_every_database_raises_for_its_own_transaction(unreachable):
    unreachable(one="default", two="other")
    with committed() as outer:
        note.enqueue("a")
        with committed(using="other") as inner:
            note.using(backend="two").enqueue("b")
            note.enqueue("c")
    assert (inner.value.backend, lost(inner.value)) == ("two", [["b"]])
    assert (outer.value.backend, lost(outer.value)) == ("one", [["a"], ["c"]])


def test_all_backends_that_failed_are_named_by_one_error(unreachable):
    unreachable(one="default", two="default")
    with committed(match="'one, two'") as caught:
        note.enqueue("a")
        note.using(backend="two").enqueue("b")
        note.enqueue("c")
    assert lost(caught.value) == [["a"], ["b"], ["c"]]


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


@pytest.mark.django_db(transaction=False, databases=["default", "other"])
def test_what_a_test_captures_is_pushed_once_and_raises_its_failures(
    away, django_capture_on_commit_callbacks
):
    capture = django_capture_on_commit_callbacks
    with transaction.atomic():
        transaction.on_commit(raise_changed)  # before anything is captured
        with capture(execute=True):
            first = note.enqueue("a")
        with capture(execute=True):
            second = note.enqueue("b")
        assert there() == 2
        away += [False]
        captured = capture(execute=True)
        captured.__enter__()
        note.enqueue("c")
        rolled_back("d")
        with pytest.raises(PushFailed) as caught:
            captured.__exit__(None, None, None)
        with capture(execute=True):
            note.enqueue("e")
    assert lost(caught.value) == [["c"]]
    assert first.status == second.status == "ready"
    assert there() == 3
