"""The suite's hooks for MemoryBackend and whatever is derived from it."""

from dataclasses import replace

from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import ManualClock
from django_jobs.testing.conformance import DeadLetter


class MemoryHooks:
    backend_class = MemoryBackend

    def make_backend(self):
        self.clock = ManualClock()
        return self.backend_class("memory", {"CLOCK": self.clock})

    def advance(self, seconds):
        self.clock.advance(seconds)

    def now(self):
        return self.clock.now()

    def attempts_of(self, job_id):
        return self.backend.attempts.get(job_id, [])

    def result_of(self, job_id):
        return self.backend.results.get(job_id)

    def dead_letter(self, job_id):
        dead = self.backend.dead.get(job_id)
        if dead is None:
            return None
        message, failure = dead
        return DeadLetter(
            job_id=message.index["id"],
            queue=message.index["queue"],
            body=message.body,
            signature=message.signature,
            key_id=message.key_id,
            reason=failure.reason,
            attempts=message.header.attempts,
            crashes=message.header.crashes,
            error_type=failure.error_type,
            error_message=failure.error_message,
        )

    def tamper(self, job_id, **columns):
        job = self.backend.jobs[job_id]
        own = {
            name: columns.pop(name) for name in tuple(columns) if name in job.__dataclass_fields__
        }
        self.backend.jobs[job_id] = replace(job, **own, index={**job.index, **columns})
