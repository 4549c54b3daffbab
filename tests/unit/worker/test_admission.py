"""Whether a message may run: what may not is never run and never lost."""

import json

import pytest

from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import SECOND, ManualClock
from django_jobs.conf import JobsSettings, QueueConfig
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import Registry
from django_jobs.testing.factories import make_opener, make_outgoing, make_signer
from django_jobs.wire.envelope import Outgoing, index_of
from django_jobs.worker.admission import LONGEST_SNOOZE, UNKNOWN_DELIVERIES, Gatekeeper
from django_jobs.worker.asking import Asker
from django_jobs.worker.cycle import Cycle
from django_jobs.worker.policies import Policies
from django_jobs.worker.renewal import Renewer
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Outage


class Works:
    """A whole pipeline on a memory store, with one handler that counts its calls."""

    def __init__(self, *, handlers=None, **settings):
        self.clock = ManualClock()
        self.backend = MemoryBackend("default", {"CLOCK": self.clock})
        self.calls = []
        registry = Registry()
        for key, function in (handlers or {"tests.noop": self.run}).items():
            registry.register(FunctionHandler(key, function, takes_context=False))
        self.settings = JobsSettings(**settings)
        settler = Settler(self.backend, self.settings)
        self.cycle = Cycle(
            backend=self.backend,
            settings=self.settings,
            gatekeeper=Gatekeeper(self.settings, make_opener(), registry),
            settler=settler,
            asker=Asker(settler, Outage("default")),
            policies=Policies(self.settings, registry),
            renewer=Renewer(self.backend),
            worker="tests:1",
        )

    def run(self):
        self.calls.append(True)

    def enqueue(self, outgoing=None, **terms):
        outgoing = outgoing or make_outgoing(**terms)
        self.backend.enqueue([outgoing])
        return self.backend.jobs[outgoing.id]

    def once(self, queue="default"):
        return self.cycle.once([queue])

    def only_dead(self):
        (dead,) = self.backend.dead.values()
        assert not self.backend.jobs
        assert not self.backend.results
        assert self.calls == []
        return dead.failure


def body_of(outgoing, **changes):
    fields = {**json.loads(outgoing.body), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...})


def resigned(outgoing, body, signer=None):
    signer = signer or make_signer()
    return Outgoing(outgoing.id, body, signer.sign(body), signer.key_id, outgoing.terms)


@pytest.fixture
def works():
    return Works()


def test_a_sound_message_runs(works):
    works.enqueue()
    assert works.once().status == "acked"
    assert works.calls == [True]
    assert works.once().status == "empty"


def forged(outgoing):
    return outgoing._replace(body=body_of(outgoing, payload={"args": [666], "kwargs": {}}))


def unsigned(outgoing):
    return outgoing._replace(signature="")


def of_another_key(outgoing):
    return resigned(outgoing, outgoing.body, make_signer("another secret"))


def of_another_site(outgoing):
    return resigned(outgoing, body_of(outgoing, site="elsewhere"))


def of_another_backend(outgoing):
    return resigned(outgoing, body_of(outgoing, backend="elsewhere"))


def of_another_queue(outgoing):
    return resigned(outgoing, body_of(outgoing, queue="elsewhere"))


def no_json(outgoing):
    return resigned(outgoing, "[" + outgoing.body)


def too_deep(outgoing):
    return resigned(outgoing, outgoing.body.replace('"args":[]', '"args":' + "[" * 99 + "]" * 99))


def without_payload(outgoing):
    return resigned(outgoing, body_of(outgoing, payload=...))


def too_large(outgoing):
    return resigned(outgoing, body_of(outgoing, payload="x" * 400_000))


def of_another_priority(outgoing):
    return resigned(outgoing, body_of(outgoing, priority=7))


def of_another_handler(outgoing):
    return resigned(outgoing, body_of(outgoing, job="tests.other"))


def early(outgoing):
    return resigned(outgoing, body_of(outgoing, schedule=2**52))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (forged, "rejected-signature"),
        (unsigned, "rejected-signature"),
        (of_another_key, "rejected-signature"),
        (of_another_site, "rejected-site"),
        (of_another_backend, "rejected-backend"),
        (of_another_queue, "rejected-queue"),
        (no_json, "rejected-malformed"),
        (too_deep, "rejected-malformed"),
        (without_payload, "rejected-malformed"),
        (too_large, "rejected-too-large"),
        (of_another_priority, "rejected-mismatch"),
        (of_another_handler, "rejected-mismatch"),
        (early, "rejected-mismatch"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_h4_what_is_not_believed_is_a_dead_letter_and_never_runs(works, spoil, reason):
    sound = make_outgoing(max_retries=5)
    works.enqueue(spoil(sound))
    report = works.once()
    assert (report.status, report.job_id, report.handler) == ("rejected", sound.id, "tests.noop")
    failure = works.only_dead()
    assert failure.reason == reason
    assert report.reason == f"{reason}: {failure.error_message}"
    assert works.backend.dead[sound.id].message.header.attempts == 0


def test_a_refusal_leaves_the_body_as_it_was(works):
    spoiled = forged(make_outgoing())
    works.enqueue(spoiled)
    works.once()
    assert works.backend.dead[spoiled.id].message.body == spoiled.body


# -- what has been decided before ---------------------------------------------------------------


def test_an_expired_job_is_dead_and_one_that_is_not_runs(works):
    moment = works.clock.now() + 10 * SECOND
    works.enqueue(expires_at=moment)
    works.clock.advance(9.9)
    assert works.once().status == "acked"
    works.calls.clear()
    works.enqueue(expires_at=moment)
    works.clock.advance(0.1)
    assert works.once().status == "dead-lettered"
    assert works.backend.dead.popitem()[1].failure.reason == "expired"
    assert works.calls == []


def test_a_job_whose_attempts_are_spent_is_never_run_again(works):
    works.enqueue(max_retries=2).attempts = 3
    assert works.once().status == "dead-lettered"
    assert works.only_dead().reason == "exhausted"


def test_h13_a_job_that_crashed_too_often_is_never_run_again(works):
    works.enqueue().crashes = 3
    assert works.once().status == "crashed"
    assert works.only_dead().reason == "crashed"


def test_h13_the_limit_of_the_job_itself_goes_before_the_sites():
    works = Works(max_crashes=1)
    works.enqueue(max_crashes=2).crashes = 1
    assert works.once().status == "acked"


# -- handlers that are not known, or not allowed -------------------------------------------------


@pytest.mark.parametrize("newer", [False, True])
def test_an_unknown_handler_waits_longer_each_time_up_to_a_cap(newer):
    works = Works(handlers={"tests.other": lambda: 1}, snooze_delay=5.0)
    outgoing = make_outgoing()
    if newer:
        works = Works(snooze_delay=5.0)
        outgoing = resigned(outgoing, body_of(outgoing, v=2))
    job = works.enqueue(outgoing)
    delays = []
    for _ in range(9):
        report = works.once()
        assert report.status == "snoozed"
        delays.append(report.delay)
        works.clock.advance(report.delay)
    assert delays == [5, 10, 20, 40, 80, 160, 300, 300, LONGEST_SNOOZE]
    assert (job.attempts, job.crashes, works.calls) == (0, 0, [])


def test_an_unknown_handler_does_not_wait_for_ever():
    works = Works(handlers={"tests.other": lambda: 1})
    works.enqueue().deliveries = UNKNOWN_DELIVERIES - 1
    assert works.once().status == "dead-lettered"
    assert works.only_dead().reason == "unknown-handler"


def test_an_unknown_handler_can_be_a_failure_with_retries():
    works = Works(handlers={"tests.other": lambda: 1}, unknown_handler="fail")
    job = works.enqueue(max_retries=1)
    assert works.once().status == "requeued"
    assert job.attempts == 1
    assert works.once().status == "dead-lettered"
    failure = works.only_dead()
    assert (failure.reason, failure.error_type) == ("exhausted", "UnknownHandler")


@pytest.mark.parametrize("newer", [False, True])
def test_an_unknown_handler_can_be_a_dead_letter_at_once(newer):
    works = Works(handlers={"tests.other": lambda: 1}, unknown_handler="dead-letter")
    outgoing = make_outgoing(max_retries=3)
    works.enqueue(resigned(outgoing, body_of(outgoing, v=2)) if newer else outgoing)
    assert works.once().status == "dead-lettered"
    assert works.only_dead().reason == "unknown-handler"


def test_a_newer_version_cannot_be_retried_by_its_terms_and_so_is_a_dead_letter():
    works = Works(unknown_handler="fail")
    outgoing = make_outgoing(max_retries=3)
    works.enqueue(resigned(outgoing, body_of(outgoing, v=99)))
    assert works.once().status == "dead-lettered"


def test_an_unknown_handler_can_be_discarded():
    works = Works(handlers={"tests.other": lambda: 1}, unknown_handler="discard")
    job = works.enqueue()
    assert works.once().status == "cancelled"
    assert works.backend.results[job.id].status == "cancelled"
    assert "no handler is registered as 'tests.noop'" in works.backend.results[job.id].output


@pytest.mark.parametrize("allowed", [(), ("tests.other",)])
def test_h16_a_handler_that_the_queue_no_longer_allows_is_refused_at_run(allowed):
    works = Works(queues={"default": QueueConfig("default", handlers=allowed)})
    works.enqueue(max_retries=5)
    assert works.once().status == "rejected"
    assert works.only_dead().reason == "rejected-handler"


def test_h16_a_built_in_handler_runs_only_where_it_is_named():
    calls = []
    handlers = {"shell": lambda: calls.append(True)}
    works = Works(handlers=handlers)
    works.enqueue(job="shell")
    assert works.once().status == "rejected"
    named = Works(
        handlers=handlers, queues={"default": QueueConfig("default", handlers=("shell",))}
    )
    named.enqueue(job="shell")
    assert named.once().status == "acked"
    assert calls == [True]


def test_a_handler_that_became_a_coroutine_is_not_run_atomically():
    async def noop():
        works.calls.append(True)

    works = Works(handlers={"tests.noop": noop})
    works.enqueue(atomic=True)
    assert works.once().status == "rejected"
    assert works.only_dead().reason == "rejected-atomic"


def test_an_index_that_is_no_text_is_shown_printably(works):
    outgoing = make_outgoing()
    job = works.enqueue(unsigned(outgoing))
    job.index = {**index_of(outgoing.id, outgoing.terms), "handler": "bad\x1b[2Jname"}
    assert works.once().handler == "bad\\u001b[2Jname"


def test_what_was_opened_before_is_not_opened_again():
    works = Works()
    works.enqueue()
    (lease,) = works.backend.fetch(["default"], 1, 30.0)
    gatekeeper = works.cycle.gatekeeper
    envelope = gatekeeper.believed(lease)
    later = Gatekeeper(works.settings, None, gatekeeper.registry)
    assert later.admit(lease, 0, envelope).envelope is envelope
