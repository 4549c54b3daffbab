"""Jobs for ``jobs_enqueue``, from the command line or from the lines of a file."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from django_jobs.conf import get_settings
from django_jobs.enqueue import (
    Plan,
    PreparedJob,
    enqueue_many,
    payload_text,
)
from django_jobs.exceptions import (
    DuplicateJob,
    EnqueueOutcomeUnknown,
    InvalidJob,
    InvalidOption,
    InvalidPayload,
    UnknownHandler,
)
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import registry
from django_jobs.ids import new_id
from django_jobs.management import arguments
from django_jobs.management.base import FAILED
from django_jobs.management.output import escaped
from django_jobs.wire import strict_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from django_jobs.handlers.base import Handler

BATCH = 1000
_LAST_ASCII = 127
_ARGUMENTS = {"args", "kwargs"}
_NOTHING: Any = object()
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "delay": arguments.seconds,
    "run_at": arguments.moment,
    "expires": arguments.expiry,
    "timeout": arguments.time_limit,
    "result_ttl": arguments.seconds,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an enqueue. Not ``created``: a live job holds the unique key."""

    line: int
    id: str
    backend: str
    created: bool


class Preparer:
    """Prepares jobs with the options of the handler's ``@job``, overridden by ``options``."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._plans: dict[tuple[str, str], Plan] = {}

    def prepare(
        self, key: str, payload: Any = _NOTHING, own: Mapping[str, Any] | None = None
    ) -> PreparedJob[Any]:
        """A job that can be enqueued; raises InvalidJob if it cannot."""
        handler = find_handler(key)
        own = own or {}
        remembered = (key, json.dumps(own, sort_keys=True))
        plan = self._plans.get(remembered)
        if plan is None:
            options = registry.options_of(key).using(**self._options).using(**_read_texts(own))
            plan = self._plans[remembered] = Plan(key, options)
            plan.resolve()
        shaped = shape(handler, payload)
        handler.validate(shaped)
        # Check the payload here: an error of the enqueue itself could not name the line.
        payload_text(key, shaped, get_settings())
        return PreparedJob(new_id(), plan, shaped)

    def batches(self, lines: Iterable[str]) -> Iterator[dict[int, PreparedJob[Any]]]:
        """Jobs by line number, a thousand at a time; raises InvalidJob with the line."""
        batch: dict[int, PreparedJob[Any]] = {}
        first = number = 1
        try:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                batch[number] = self._of_line(line)
                if len(batch) == BATCH:
                    yield batch
                    batch, first = {}, number + 1
        except (InvalidJob, UnicodeDecodeError) as error:
            done = f"lines 1 to {first - 1} are enqueued, none from line {first} on"
            what = error if isinstance(error, InvalidJob) else f"the text is not UTF-8: {error}"
            raise InvalidJob(
                f"line {number}: {what}\n{'nothing was enqueued' if first == 1 else done}"
            ) from error
        if batch:
            yield batch

    def _of_line(self, line: str) -> PreparedJob[Any]:
        fields = parsed(line, "the line")
        if not isinstance(fields, dict):
            raise InvalidPayload('it is no object; write {"handler": "…", "payload": …}')
        key = fields.pop("handler", None)
        if not isinstance(key, str):
            raise InvalidPayload('it names no handler; write {"handler": "…", "payload": …}')
        payload = fields.pop("payload", _NOTHING)
        return self.prepare(key, payload, fields)


def store(jobs: Mapping[int, PreparedJob[Any]]) -> list[Outcome]:
    """Enqueue all of the jobs, or none."""
    prepared = list(jobs.values())
    try:
        handles = enqueue_many(prepared)
    except DuplicateJob as error:
        if len(prepared) > 1:
            message = f"lines {min(jobs)} to {max(jobs)} are not enqueued: {error}"
            raise CommandError(escaped(message), returncode=FAILED) from error
        plan = prepared[0].plan
        backend = plan.resolve()[0].alias
        return [Outcome(line=1, id=error.existing_id, backend=backend, created=False)]
    except EnqueueOutcomeUnknown:
        # The ids are fixed, so a second attempt creates no second job.
        handles = enqueue_many(prepared)
    return [
        Outcome(line=line, id=handle.id, backend=handle.backend, created=handle.id == job.id)
        for (line, job), handle in zip(jobs.items(), handles, strict=True)
    ]


def find_handler(key: str) -> Handler:
    """The handler of a key; raises UnknownHandler, with suggestions for a key's last part."""
    try:
        return registry.find(key)
    except UnknownHandler as error:
        same_end = sorted(name for name in registry if name.endswith(f".{key}"))
        if not same_end or error.nearest:
            raise
        raise UnknownHandler(f"{error}; did you mean {' or '.join(same_end)}?") from None


def shape(handler: Handler, payload: Any) -> Any:
    """The payload in the form of the handler: functions take a list or an object of arguments."""
    if not isinstance(handler, FunctionHandler):
        return None if payload is _NOTHING else payload
    if payload is _NOTHING:
        return {"args": [], "kwargs": {}}
    if isinstance(payload, list):
        return {"args": payload, "kwargs": {}}
    if isinstance(payload, dict):
        return payload if payload.keys() == _ARGUMENTS else {"args": [], "kwargs": payload}
    raise InvalidPayload(
        f"{handler.key} takes a JSON list of arguments or an object of named ones; "
        f"for a single argument write [{json.dumps(payload, ensure_ascii=False)}]"
    )


def parsed(text: str, where: str) -> Any:
    """The value of strict JSON with any characters; raises InvalidPayload."""
    try:
        json.loads(text)
        return strict_json.loads("".join(map(_as_ascii, text)))
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"{where} is not strict JSON: {error}") from None


def payload_argument(text: str | None) -> Any:
    """The payload from the command line."""
    if text is None:
        return _NOTHING
    try:
        return parsed(text, "PAYLOAD")
    except InvalidPayload as error:
        raise InvalidPayload(f"""{error}; write texts as '["text"]'""") from None


def _as_ascii(character: str) -> str:
    return character if ord(character) <= _LAST_ASCII else json.dumps(character)[1:-1]


def _read_texts(own: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a line, with times converted; null means unset, except for timeout."""
    read = {name: value for name, value in own.items() if value is not None or name == "timeout"}
    for name, of_text in _FROM_TEXT.items():
        if isinstance(read.get(name), str):
            try:
                read[name] = of_text(read[name])
            except ArgumentTypeError as error:
                raise InvalidOption(f"{name}: {error}") from None
    return read


def count_words(outcomes: Sequence[Outcome]) -> str:
    """The numbers of jobs that were enqueued and that existed before, as a sentence."""
    new = sum(outcome.created for outcome in outcomes)
    there = len(outcomes) - new
    return f"{new} enqueued" + (f", {there} were there before" if there else "")
