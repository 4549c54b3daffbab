"""The collector for OpenTelemetry: metrics as instruments, enqueues and runs as spans.

It needs the extra ``otel``, which installs the API only. Unless the site sets up an SDK, all of it
does nothing, as the API promises.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace
from opentelemetry.metrics import Observation
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from django_jobs.outcome import Failed
from django_jobs.telemetry.metrics import COUNTERS, GAUGES, HISTOGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.outcome import Outcome
    from django_jobs.telemetry.metrics import Gauges
    from django_jobs.telemetry.tracing import Traced

SCOPE = "django_jobs"
SYSTEM = {"messaging.system": "django_jobs"}
_propagator = TraceContextTextMapPropagator()


class OpenTelemetry:
    """Looks up the providers at each use, because a site may set them later."""

    def __init__(self) -> None:
        self._instruments: dict[str, Any] = {}

    def increment(self, name: str, queue: str, by: int = 1) -> None:
        instrument = self._instruments.get(name)
        if instrument is None:
            made = metrics.get_meter(SCOPE).create_counter(
                f"django_jobs.{name}", description=COUNTERS.get(name, "")
            )
            instrument = self._instruments.setdefault(name, made)
        instrument.add(by, {"queue": queue} if queue else {})

    def observe(self, name: str, queue: str, seconds: float) -> None:
        instrument = self._instruments.get(name)
        if instrument is None:
            made = metrics.get_meter(SCOPE).create_histogram(
                f"django_jobs.{name}", unit="s", description=HISTOGRAMS.get(name, "")
            )
            instrument = self._instruments.setdefault(name, made)
        instrument.record(seconds, {"queue": queue})

    def watch(self, gauges: Gauges) -> None:
        """Register instruments that read the gauges when the SDK exports, in the SDK's thread."""
        meter = metrics.get_meter(SCOPE)
        for name, kind in GAUGES.items():
            meter.create_observable_gauge(
                f"django_jobs.{name}",
                [partial(_observed, gauges, name)],
                unit=kind.unit,
                description=kind.description,
            )

    def enqueued(self, handler: str, queue: str, job_id: str) -> str:
        """Make a span of the enqueue; its context travels with the job."""
        attributes = {
            **SYSTEM,
            "messaging.operation.type": "send",
            "messaging.destination.name": queue,
            "messaging.message.id": job_id,
        }
        carrier: dict[str, str] = {}
        with trace.get_tracer(SCOPE).start_as_current_span(
            f"send {handler}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            _propagator.inject(carrier)
        return carrier.get("traceparent", "")

    @contextmanager
    def running(self, run: Traced, parent: str | None) -> Iterator[Callable[[Outcome], None]]:
        """A span of a run, in the trace of the enqueue and linked to its span."""
        within = _propagator.extract({"traceparent": parent} if parent else {})
        origin = trace.get_current_span(within).get_span_context()
        attributes: dict[str, str | int] = {
            **SYSTEM,
            "messaging.operation.type": "process",
            "messaging.destination.name": run.queue,
            "messaging.message.id": run.id,
            "django_jobs.handler": run.name,
            "django_jobs.attempt": run.attempt,
        }
        with trace.get_tracer(SCOPE).start_as_current_span(
            f"process {run.name}",
            context=within,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(origin)] if origin.is_valid else None,
        ) as span:

            def ended(outcome: Outcome) -> None:
                span.set_attribute("django_jobs.outcome", type(outcome).__name__.lower())
                if isinstance(outcome, Failed):
                    span.set_attribute("error.type", outcome.error.type)
                    span.set_status(Status(StatusCode.ERROR, outcome.error.message))

            yield ended


def _observed(gauges: Gauges, name: str, _options: Any) -> list[Observation]:
    # Every process has an exporter. If all of them exported, a sum would count jobs many times.
    return [
        Observation(gauge.value, gauge.labels) for gauge in gauges.in_turn() if gauge.name == name
    ]
