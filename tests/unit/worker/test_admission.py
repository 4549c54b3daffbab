"""Whether a message may run: what may not is never run and never lost."""

import json
from dataclasses import replace

import pytest

from django_jobs.backends.base import Evidence, KeepsBreakers
from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import SECOND, ManualClock
from django_jobs.conf import JobsSettings, QueueConfig
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import Registry
from django_jobs.testing.factories import make_opener, make_outgoing, make_signer
from django_jobs.wire.envelope import Outgoing, index_of
from django_jobs.worker.admission import LONGEST_SNOOZE, Gatekeeper, Policies
from django_jobs.worker.cycle import Cycle, Renewer
from django_jobs.worker.executor import Executor
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Asker, Outage


class Learns(MemoryBackend, KeepsBreakers):
    """Remembers what its breakers are to learn."""

    def __init__(self, *args):
        super().__init__(*args)
        self.learned = []

    def count_evidence(self, told):
        self.learned += told


class Works:
    """A whole pipeline on a memory store, with one handler that counts its calls."""

    def __init__(self, *, handlers=None, **settings):
        self.clock = ManualClock()
        self.backend = Learns("default", {"CLOCK": self.clock})
        self.calls = []
        registry = Registry()
        for key, function in (handlers or {"tests.noop": self.run}).items():
            registry.register(FunctionHandler(key, function, takes_context=False))
        self.settings = JobsSettings(**settings)
        settler = Settler(self.backend, self.settings)
        executor = Executor(
            backend=self.backend,
            settings=self.settings,
            gatekeeper=Gatekeeper(self.settings, make_opener(), registry),
            settler=settler,
            policies=Policies(self.settings, registry),
            worker="tests:1",
        )
        asker = Asker(settler, Outage("default"))
        self.cycle = Cycle(executor, asker, Renewer(self.backend))

    def run(self):
        self.calls.append(True)

    def enqueue(self, outgoing=None, **terms):
        outgoing = outgoing or make_outgoing(**terms)
        self.backend.enqueue([outgoing])
        return self.backend.jobs[outgoing.id]

    def once(self, queue="default"):
        return self.cycle.once([queue])

    @property
    def gatekeeper(self):
        return self.cycle.executor.gatekeeper

    def changed(self, **changes):
        """The cycle of a worker whose gatekeeper differs."""
        executor = self.cycle.executor
        gatekeeper = replace(executor.gatekeeper, **changes)
        return replace(self.cycle, executor=replace(executor, gatekeeper=gatekeeper))

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


def of_a_known_key_that_did_not_sign_it(outgoing):
    return of_another_key(outgoing)._replace(key_id=outgoing.key_id)


def of_no_key(outgoing):
    return outgoing._replace(key_id="")


def of_a_newer_version(outgoing):
    return resigned(outgoing, body_of(outgoing, v=2))


def of_an_unknown_handler(outgoing):
    return outgoing


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
    return resigned(outgoing, body_of(outgoing, payload="x" * 900_000))


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
        (of_a_known_key_that_did_not_sign_it, "rejected-signature"),
        (of_no_key, "rejected-signature"),
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


# -- what this process cannot judge, as happens during a rolling deploy --------------------------

NOT_JUDGED = {
    of_an_unknown_handler: "unknown-handler",
    of_a_newer_version: "unknown-version",
    of_another_key: "unknown-key",
    of_another_site: "other-site",
}
not_judged = pytest.mark.parametrize(
    ("made", "reason"), NOT_JUDGED.items(), ids=lambda value: getattr(value, "__name__", value)
)


def works_without_the_handler(**settings):
    return Works(handlers={"tests.other": lambda: 1}, **settings)


def works_for(made, **settings):
    """A pipeline that lacks just what the message needs."""
    lacks_handler = made is of_an_unknown_handler
    return works_without_the_handler(**settings) if lacks_handler else Works(**settings)


@not_judged
def test_what_cannot_be_judged_waits_longer_each_time_up_to_a_cap(made, reason):
    works = works_for(made, snooze_delay=5.0)
    job = works.enqueue(made(make_outgoing()))
    delays = []
    for _ in range(9):
        report = works.once()
        assert report.status == "snoozed"
        delays.append(report.delay)
        works.clock.advance(report.delay)
    assert delays == [5, 10, 20, 40, 80, 160, 300, 300, LONGEST_SNOOZE]
    assert (job.attempts, job.crashes, works.calls) == (0, 0, [])


@not_judged
def test_what_nobody_can_judge_is_dead_when_patience_ends(made, reason):
    works = works_for(made, unknown_patience=100.0)
    works.enqueue(made(make_outgoing(max_retries=5)))
    began = works.clock.now()
    while (report := works.once()).status == "snoozed":
        works.clock.advance(report.delay)
    assert report.status == "dead-lettered"
    assert works.clock.now() - began == 100 * SECOND
    assert works.only_dead().reason == reason


@not_judged
def test_a_day_of_many_deliveries_is_waited_through(made, reason):
    works = works_for(made)
    works.enqueue(made(make_outgoing())).deliveries = 100_000
    assert works.once().status == "snoozed"
    works.clock.advance(86_399)
    assert works.once().status == "snoozed"
    works.clock.advance(1)
    assert works.once().status == "dead-lettered"


@pytest.mark.parametrize(
    ("made", "deployed"),
    [
        (of_another_key, {"signer": make_signer("another secret")}),
        (of_another_site, {"site": "elsewhere"}),
    ],
    ids=["key", "site"],
)
def test_what_was_put_off_runs_where_it_can_be_judged(works, made, deployed):
    works.enqueue(made(make_outgoing()))
    assert works.once().status == "snoozed"
    works.clock.advance(5)
    cycle = works.changed(opener=make_opener(**deployed))
    assert cycle.once(["default"]).status == "acked"
    assert works.calls == [True]


def test_patience_begins_anew_with_the_next_deploy_after_a_run():
    works = Works(handlers={"tests.noop": lambda: 1 / 0}, unknown_patience=100.0)
    job = works.enqueue(max_retries=9)
    old = works.changed(registry=Registry())
    assert old.once(["default"]).status == "snoozed"
    works.clock.advance(60)
    assert works.once().status == "requeued"
    assert job.put_off_since is None
    works.clock.advance(60)
    assert old.once(["default"]).status == "snoozed"


def test_breakers_learn_nothing_of_messages_that_are_put_off(works):
    learned = works.backend.learned
    works.enqueue(of_another_key(make_outgoing()))
    works.enqueue(of_another_site(make_outgoing()))
    works.once()
    works.once()
    assert {evidence for _, evidence in learned} == {Evidence.NOTHING}
    works.enqueue(forged(make_outgoing()))
    works.once()
    assert learned[-1][1] is Evidence.REFUSED


def test_of_an_unknown_key_no_envelope_is_believed(works):
    works.enqueue(of_another_key(make_outgoing()))
    (lease,) = works.backend.fetch(["default"], 1, 30.0)
    refused = works.gatekeeper.admit(lease, works.clock.now())
    assert refused.envelope is None


@pytest.mark.parametrize("made", [of_another_site, of_a_newer_version])
def test_without_verification_the_rest_is_put_off_all_the_same(works, made):
    opener = replace(make_opener(), verify_signatures=False)
    cycle = works.changed(opener=opener)
    works.enqueue(made(unsigned(make_outgoing())))
    assert cycle.once(["default"]).status == "snoozed"


def test_an_unknown_handler_can_be_a_failure_with_retries():
    works = Works(handlers={"tests.other": lambda: 1}, unknown_handler="fail")
    job = works.enqueue(max_retries=1, retry="none")
    assert works.once().status == "requeued"
    assert job.attempts == 1
    assert works.once().status == "dead-lettered"
    failure = works.only_dead()
    assert (failure.reason, failure.error_type) == ("exhausted", "UnknownHandler")


@not_judged
def test_what_cannot_be_judged_can_be_a_dead_letter_at_once(made, reason):
    works = works_for(made, unknown_handler="dead-letter")
    works.enqueue(made(make_outgoing(max_retries=3)))
    assert works.once().status == "dead-lettered"
    assert works.only_dead().reason == reason


@pytest.mark.parametrize("made", [of_a_newer_version, of_another_key, of_another_site])
def test_what_was_not_opened_cannot_be_retried_by_its_terms_and_so_is_a_dead_letter(made):
    works = Works(unknown_handler="fail")
    works.enqueue(made(make_outgoing(max_retries=3)))
    assert works.once().status == "dead-lettered"


@not_judged
def test_what_cannot_be_judged_can_be_discarded(made, reason):
    works = works_for(made, unknown_handler="discard")
    job = works.enqueue(made(make_outgoing()))
    assert works.once().status == "cancelled"
    assert works.backend.results[job.id].status == "cancelled"
    assert works.backend.results[job.id].output.startswith("discarded: ")


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
    assert works.once().handler == "bad\\x1b[2Jname"


def test_what_was_opened_before_is_not_opened_again():
    works = Works()
    works.enqueue()
    (lease,) = works.backend.fetch(["default"], 1, 30.0)
    gatekeeper = works.gatekeeper
    envelope = gatekeeper.believed(lease)
    later = Gatekeeper(works.settings, None, gatekeeper.registry)
    assert later.admit(lease, 0, envelope).envelope is envelope
