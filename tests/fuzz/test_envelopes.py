"""Thousands of hostile messages through the whole admission: none runs, none is lost.

Every one is stored, fetched, judged and settled as a worker does it. The tests print how
many reached each check; ``-rP`` shows it.
"""

import logging
from collections import Counter

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples

from django_jobs.backends.memory import MemoryBackend
from django_jobs.conf import get_settings
from django_jobs.handlers.registry import Registry
from django_jobs.testing.factories import make_opener
from django_jobs.worker.admission import Gatekeeper, Policies
from django_jobs.worker.cycle import Cycle, Renewer
from django_jobs.worker.executor import Executor
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Asker, Outage
from tests.fuzz import hostile
from tests.fuzz.hostile import Place
from tests.fuzz.targets import ALLOWED, Targets

MESSAGES = 5200
PLACE = Place()
REASONS = {
    "rejected-too-large", "rejected-signature", "rejected-malformed", "rejected-backend",
    "rejected-queue", "rejected-mismatch", "rejected-payload", "rejected-target",
    "unknown-key", "other-site",
}  # fmt: skip
UNSIGNED = {"rejected-signature", "unknown-key"}
AT_ONCE = {"UNKNOWN_HANDLER": "dead-letter"}  # and not when patience is over


class Pipeline:
    """All that a worker does with a message, on a store in memory."""

    def __init__(self):
        self.targets = Targets()
        self.backend = MemoryBackend("default", {})
        registry = Registry()
        for handler in self.targets.handlers():
            registry.register(handler)
        settings = get_settings()
        settler = Settler(self.backend, settings)
        executor = Executor(
            backend=self.backend,
            settings=settings,
            gatekeeper=Gatekeeper(settings, make_opener(), registry),
            settler=settler,
            policies=Policies(settings, registry),
            worker="tests:1",
        )
        asker = Asker(settler, Outage("default"))
        self.cycle = Cycle(executor, asker, Renewer(self.backend))

    def run(self, message):
        self.backend.enqueue([message])
        return self.cycle.once(["default"])


@pytest.fixture
def pipeline(settings):
    settings.DJANGO_JOBS = {**ALLOWED, **AT_ONCE}
    logger = logging.getLogger("django_jobs")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # a line for each of thousands tells nobody anything
    yield Pipeline()
    logger.setLevel(level)


@pytest.mark.timeout(300)
def test_none_of_thousands_runs_and_each_is_dead_with_its_reason(pipeline):
    reasons, hows, signed = Counter(), Counter(), Counter()

    def judge(one):
        report = pipeline.run(one.message)
        dead = pipeline.backend.dead.pop(one.message.id)
        assert dead.failure.reason in REASONS
        status = "rejected" if dead.failure.reason.startswith("rejected-") else "dead-lettered"
        assert (report.status, report.job_id) == (status, one.message.id)
        assert dead.failure.error_message
        assert dead.message.body == one.message.body
        assert dead.message.header.attempts == 0
        assert not pipeline.backend.jobs
        assert not pipeline.backend.results
        assert pipeline.targets.calls == []
        # A signature that does not fit is found before anything else is looked at.
        assert one.signed == (dead.failure.reason not in UNSIGNED)
        reasons[dead.failure.reason] += 1
        hows[one.how.partition(" ")[0]] += 1
        signed[one.signed] += 1

    for _ in range(3):
        judge(hostile.too_large(PLACE))
    run_examples(judge)

    total = reasons.total()
    print(f"{total} hostile messages, {signed[True]} of them signed correctly; 0 handler calls")
    for reason, count in reasons.most_common():
        print(f"{count:6} {reason}")
    print("made by: " + ", ".join(f"{how} {count}" for how, count in hows.most_common()))
    assert total >= 5000
    assert signed[True] >= total / 2
    assert reasons.keys() == REASONS
    assert min(reasons.values()) >= 3


def run_examples(judge):
    @examples(
        max_examples=MESSAGES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(hostile.hostile(PLACE))
    def each(one):
        judge(one)

    each()


@pytest.mark.django_db
@pytest.mark.parametrize("job", hostile.JOBS)
def test_a_sound_message_of_each_kind_runs(pipeline, job):
    assert pipeline.run(PLACE.sound(job)).status == "acked"
    assert pipeline.targets.calls == [job]
    sound = PLACE.sound(job)
    assert pipeline.run(PLACE.signed(sound, sound.body)).status == "acked"


@pytest.mark.django_db
def test_what_is_only_unusual_runs(pipeline):
    """Positive controls: near to what is refused, and sound."""
    for terms in (
        {"priority": -100, "name": "x" * 255, "timeout": 0, "meta": {}},
        {"retry": [0], "result_ttl": 0.5, "max_crashes": 1, "tenant": "é", "trace_id": "t" * 64},
        {"schedule": 0, "delay": 0, "expires_at": 2**53 - 1, "atomic": False},
    ):
        assert pipeline.run(PLACE.sound(**terms)).status == "acked"
    sound = PLACE.sound()
    spaced = sound.body.replace('{"v":1', '{ "v" : 1, "unheard": [null, {"of": 1e3}]', 1)
    assert pipeline.run(PLACE.signed(sound, spaced)).status == "acked"
    assert len(pipeline.targets.calls) == 4
