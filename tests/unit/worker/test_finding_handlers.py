"""When a handler that is not registered may be looked for elsewhere: only if it is believed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from django_jobs.backends.base import Lease
from django_jobs.conf import JobsSettings, QueueConfig
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import Registry
from django_jobs.outcome import Failed
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.wire.envelope import Header, Message, index_of
from django_jobs.worker.admission import Admitted, Gatekeeper, Refused

KEY = "shop.tasks.found"


@pytest.fixture
def asked():
    return []


def admit(asked, *, handlers=None, opener=None, outgoing=None):
    registry = Registry()

    def finder(key):
        asked.append(key)
        registry.register(FunctionHandler(key, print, takes_context=False))
        return registry.get(key)

    registry.finder = finder
    outgoing = outgoing or make_outgoing(job=KEY)
    message = Message(
        outgoing.body,
        outgoing.signature,
        outgoing.key_id,
        Header(),
        index_of(outgoing.id, outgoing.terms),
    )
    settings = JobsSettings(queues={"default": QueueConfig("default", handlers=handlers)})
    gatekeeper = Gatekeeper(settings, opener or make_opener(), registry)
    return gatekeeper.admit(Lease(outgoing.id, "default", "t", 0, message), 0)


def test_a_verified_key_is_looked_for(asked):
    assert isinstance(admit(asked), Admitted)
    assert asked == [KEY]


def test_a_key_that_the_queue_allows_is_looked_for(asked):
    assert isinstance(admit(asked, handlers=(KEY,)), Admitted)


@pytest.mark.parametrize("handlers", [(), ("shop.tasks.another",)])
def test_a_key_that_the_queue_does_not_allow_is_not(asked, handlers):
    assert isinstance(admit(asked, handlers=handlers), Refused)
    assert asked == []


def test_a_forged_message_leads_nowhere(asked):
    outgoing = make_outgoing(job=KEY)._replace(signature="0" * 64)
    assert isinstance(admit(asked, outgoing=outgoing), Refused)
    assert asked == []


def test_without_verification_nothing_is_looked_for(asked):
    assert isinstance(admit(asked, opener=replace(make_opener(), verify_signatures=False)), Refused)
    assert asked == []


def test_the_import_that_finds_it_has_the_time_of_the_job():
    def never_ends(_key):
        threading.Event().wait(20)  # far longer than it has; an end, should nothing stop it

    registry, told = Registry(), []
    registry.finder = never_ends
    outgoing = make_outgoing(job=KEY, timeout=0.05)
    index = index_of(outgoing.id, outgoing.terms)
    message = Message(outgoing.body, outgoing.signature, outgoing.key_id, Header(), index)
    gatekeeper = Gatekeeper(JobsSettings(), make_opener(), registry, starting=told.append)
    refused = gatekeeper.admit(Lease(outgoing.id, "default", "t", 0, message), 0)
    assert isinstance(refused.outcome, Failed)
    assert refused.outcome.timed_out
    assert refused.outcome.error.type == "JobTimeout"
    assert f"importing the module of '{KEY}'" in refused.outcome.error.message
    assert told == [0.05]  # for whoever kills what cannot be interrupted


@pytest.mark.parametrize(
    ("own", "queues", "has"),
    [(3, 7.0, 3), (None, 7.0, 7.0), (None, None, None), (0, 7.0, None)],
    ids=["its own", "its queue's", "none", "its own, which is none"],
)
def test_without_a_time_of_the_job_the_import_has_the_queues(own, queues, has):
    registry, told = Registry(), []
    registry.finder = lambda key: FunctionHandler(key, print, takes_context=False)
    outgoing = make_outgoing(job=KEY, timeout=own)
    index = index_of(outgoing.id, outgoing.terms)
    message = Message(outgoing.body, outgoing.signature, outgoing.key_id, Header(), index)
    settings = JobsSettings(queues={"default": QueueConfig("default", timeout=queues)})
    gatekeeper = Gatekeeper(settings, make_opener(), registry, starting=told.append)
    lease = Lease(outgoing.id, "default", "t", 0, message)
    with ThreadPoolExecutor(1) as beside:  # there, a time is looked at when it is over
        assert isinstance(beside.submit(gatekeeper.admit, lease, 0).result(), Admitted)
    assert told == [has]
