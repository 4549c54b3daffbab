"""One trace from the enqueue to the run, by what the signed body carries."""

import json
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags

from django_jobs import Snooze, job
from django_jobs.models import FailedJob, Job
from django_jobs.telemetry import metrics, tracing
from django_jobs.wire import envelope
from django_jobs.worker.build import process_once

pytestmark = pytest.mark.django_db

OTEL = "django_jobs.telemetry.opentelemetry.OpenTelemetry"
seen = []


@job(key="tracing.look", takes_context=True)
def look(context, how=""):
    span = trace.get_current_span().get_span_context()
    seen.append((context.trace_id, span.trace_id, span.span_id))
    if how == "snooze":
        raise Snooze(0)
    if how:
        raise ValueError(how)


class Span(NonRecordingSpan):
    def __init__(self, context, **told):
        super().__init__(context)
        self.told, self.attributes, self.status = told, dict(told["attributes"]), None

    def set_attribute(self, key, value):
        self.attributes[key] = value

    def set_status(self, status, description=None):
        self.status = status


class Tracer:
    """What an SDK would set up: spans with numbers, in the trace of their parent."""

    def __init__(self):
        self.spans = []

    @contextmanager
    def start_as_current_span(self, name, context=None, **told):
        parent = trace.get_current_span(context).get_span_context()
        number = len(self.spans) + 1
        trace_id = parent.trace_id if parent.is_valid else 0xABC0 + number
        sampled = TraceFlags(TraceFlags.SAMPLED)
        own = SpanContext(trace_id, number, is_remote=False, trace_flags=sampled)
        span = Span(own, name=name, parent=parent, **told)
        self.spans.append(span)
        with trace.use_span(span):
            yield span


@pytest.fixture
def tracer(settings, monkeypatch):
    settings.DJANGO_JOBS = {"METRICS": OTEL}
    assert [type(one).__name__ for one in metrics.collectors()] == ["OpenTelemetry"]
    made = Tracer()
    monkeypatch.setattr(trace, "get_tracer", lambda _scope: made)
    seen.clear()
    return made


def test_a_run_belongs_to_the_trace_of_its_enqueue_and_is_linked_to_it(tracer):
    handle = look.enqueue()
    assert process_once().status == "acked"
    sent, ran = tracer.spans
    assert (sent.told["name"], ran.told["name"]) == ("send tracing.look", "process tracing.look")
    there = sent.get_span_context()
    assert ran.get_span_context().trace_id == there.trace_id
    assert [link.context.span_id for link in ran.told["links"]] == [there.span_id]
    assert ran.told["parent"].span_id == there.span_id
    assert ran.attributes["messaging.message.id"] == handle.id
    assert ran.attributes["django_jobs.outcome"] == "succeeded"
    ((told, running_trace, running_span),) = seen
    assert told == f"{there.trace_id:032x}", "the handler's trace id is another one"
    assert (running_trace, running_span) == (there.trace_id, ran.get_span_context().span_id)


def test_an_enqueue_belongs_to_the_trace_of_its_caller(tracer):
    with tracer.start_as_current_span("request", attributes={}) as request:
        look.enqueue()
    process_once()
    traces = {span.get_span_context().trace_id for span in tracer.spans}
    assert traces == {request.get_span_context().trace_id}
    assert len(tracer.spans) == 3


def test_the_trace_is_in_the_log_of_the_job_too(tracer, caplog):
    look.enqueue("it broke")
    process_once()
    (record,) = [one for one in caplog.records if getattr(one, "key", "") == "job.dead"]
    assert record.trace_id == f"{tracer.spans[0].get_span_context().trace_id:032x}"
    assert tracer.spans[1].status.status_code is StatusCode.ERROR
    assert tracer.spans[1].attributes["error.type"].endswith("ValueError")


def test_every_run_of_a_job_has_a_span_of_its_own(tracer):
    look.using(max_retries=1, retry="none").enqueue("again")
    look.enqueue("snooze")
    for _ in range(3):
        process_once()
    outcomes = [span.attributes.get("django_jobs.outcome") for span in tracer.spans]
    assert outcomes[:2] == [None, None]
    assert sorted(outcomes[2:]) == ["failed", "failed", "snoozed"]


@pytest.mark.parametrize("wrong", ["", "00-zz-1-01", 5, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_parent_that_is_none_decides_nothing(tracer, monkeypatch, wrong):
    sealed = envelope.Seal.outgoing

    def outgoing(self, identifier, payload, at, _parent):
        made = sealed(self, identifier, payload, at)
        body = made.body.replace('"enqueuedAt"', f'"traceParent":{json.dumps(wrong)},"enqueuedAt"')
        return made._replace(body=body, signature=self._signer.sign(body))

    monkeypatch.setattr(envelope.Seal, "outgoing", outgoing)
    look.enqueue()
    assert process_once().status == "acked"
    assert not FailedJob.objects.exists()


def test_without_a_tracer_nothing_is_added(settings):
    settings.DJANGO_JOBS = {}
    assert tracing.parent_for("a", "b", "c") == ""
    handle = look.enqueue()
    assert "traceParent" not in json.loads(Job.objects.get().body)
    seen.clear()
    process_once()
    assert seen[0][0] == handle.id.replace("-", "")


def test_without_an_sdk_nothing_is_added_either(settings):
    settings.DJANGO_JOBS = {"METRICS": OTEL}
    look.enqueue()
    assert "traceParent" not in json.loads(Job.objects.get().body)
    assert process_once().status == "acked"
