"""A backend of a site's own gets what the shipped ones get, by what it declares."""

import pytest

from django_jobs.backends.base import Backend
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.registry import backends
from django_jobs.cron.enqueue import is_joined
from django_jobs.enqueue import Handle
from django_jobs.exceptions import InvalidBackend, NotSupported
from django_jobs.models import QueueMinute, Worker
from django_jobs.operations.brokers import peeked, queues_of_brokers
from django_jobs.worker.duties import Housekeeping, Presence, Tally
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db


class AtHome(MemoryBackend):
    """Says that its jobs live in the default database."""

    home = "default"
    ends_with_process = False
    capabilities = MemoryBackend.capabilities._replace(transactional_enqueue=True)


class AtOnce(AtHome):
    runs_at_enqueue = True


class Bare(Backend):
    """The verbs, and nothing beside them."""

    enqueue = fetch = ack = nack = abandon = renew = None
    reaped = 0

    def reap_expired(self, queue=None, limit=1000):
        self.reaped += 1
        return 0

    def stats(self, queue):
        raise NotImplementedError


class Tidying(Bare):
    """Has housekeeping that no worker would do."""

    def clean_up(self, limit=1000):
        return 0


class Boastful(Bare):
    capabilities = Bare.capabilities._replace(cancel=True)


@pytest.fixture
def own(settings):
    def configured(kind):
        settings.DJANGO_JOBS = {
            "BACKENDS": {"own": {"BACKEND": f"{__name__}.{kind.__name__}"}},
            "DEFAULT_BACKEND": "own",
        }
        return backends["own"]

    return configured


def test_its_jobs_are_counted_by_the_minute_where_it_is_at_home(own):
    tally = Tally(own(AtHome))
    tally.ended("mail", "acked", 1.0)
    tally.write()
    minute = QueueMinute.objects.get()
    assert (minute.backend, minute.queue, minute.claimed) == ("own", "mail", 1)


def test_its_workers_show_themselves_where_it_is_at_home(own):
    Presence(own(AtHome), "mail").write()
    assert Worker.objects.get().backend == "own"


@pytest.mark.parametrize(("kind", "joined"), [(AtHome, True), (AtOnce, False)])
def test_a_tick_and_its_job_are_committed_together_where_it_joins(own, kind, joined):
    own(kind)
    job = doomed.prepare()
    assert is_joined(job, "default") is joined
    assert not is_joined(job, "other")


def test_nothing_is_asked_of_it_that_it_is_not(own):
    backend = own(Bare)
    assert Housekeeping(backend, 30.0).step() is False
    assert backend.reaped == 1
    assert list(queues_of_brokers()) == []
    assert "cannot tell of its jobs" in peeked("own", "mail", 5)


def test_what_only_an_inspecting_backend_can_answer_is_refused_by_its_name(own):
    own(Bare)
    with pytest.raises(NotSupported, match=r"'own' \(Bare\) cannot"):
        Handle("0190a0c0-0000-7000-8000-000000000000", "own").status  # noqa: B018 - it asks


def test_a_claim_without_the_class_that_can_do_it_is_refused(own):
    with pytest.raises(InvalidBackend, match=r"claims 'cancel'.*backends\.base\.Cancels"):
        own(Boastful)


def test_a_method_of_a_part_that_it_does_not_derive_from_is_refused(own):
    with pytest.raises(
        InvalidBackend, match=r"has clean_up\(\).*HasHousekeeping; derive it from that too"
    ):
        own(Tidying)
