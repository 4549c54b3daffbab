"""Typed payloads: a dataclass as a handler sees it, and as the JSON that travels.

A type is looked at once, when its handler is registered, and becomes a shape. Checking
what has travelled runs no code of the user's; reading makes the dataclasses, and so does.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Union
from uuid import UUID

from django_jobs.exceptions import InvalidJob, InvalidPayload
from django_jobs.handlers import shapes

if TYPE_CHECKING:
    from django_jobs.handlers.shapes import Shape

SUPPORTED = (
    "str, int, float, bool, None, Any, datetime, date, time, Decimal, UUID, enums of texts or "
    "numbers, Literal, list, tuple, dict with texts as keys, dataclasses, and unions of those "
    "that JSON can tell apart"
)
_PLAIN = (str, int, float, bool, types.NoneType)
_TEXTS: dict[type, tuple[Any, Any]] = {
    datetime: (datetime.fromisoformat, datetime.isoformat),
    date: (date.fromisoformat, date.isoformat),
    time: (time.fromisoformat, time.isoformat),
    Decimal: (Decimal, str),
    UUID: (UUID, str),
}


class Payload:
    """The payloads of one handler."""

    def __init__(self, key: str, annotation: Any) -> None:
        self._key = key
        try:
            self._shape = _Types().shape(annotation)
        except InvalidJob as refused:
            raise InvalidJob(f"the payload of {key} cannot travel: {refused}") from None

    def written(self, payload: Any) -> Any:
        """A payload, or the plain form of one, as it travels; raises InvalidPayload."""
        try:
            if isinstance(payload, dict) and isinstance(self._shape, Record):
                self._shape.check(payload, "payload")
                payload = self._made(payload)
            return self._shape.write(payload, "payload")
        except InvalidPayload as refused:
            raise InvalidPayload(f"{self._key}: {refused}") from refused.__cause__
        except RecursionError:
            raise InvalidPayload(f"{self._key}: payload is nested too deeply") from None

    def check(self, payload: Any) -> None:
        """Raise InvalidPayload unless the payload can be read."""
        try:
            self._shape.check(payload, "payload")
        except InvalidPayload as refused:
            raise InvalidPayload(f"{self._key}: {refused}") from None

    def read(self, payload: Any) -> Any:
        """The payload as the handler sees it; raises InvalidPayload."""
        self.check(payload)
        return self._shape.read(payload)

    def _made(self, payload: dict[str, Any]) -> Any:
        """The dataclass that a plain form stands for, which may have an opinion of its own."""
        try:
            return self._shape.read(payload)
        except (TypeError, ValueError) as error:
            raise InvalidPayload(f"payload was refused: {error}") from error


class Record:
    """A dataclass. It travels with all its fields; those with a default may be missing."""

    kinds: frozenset[type] = frozenset({dict})

    def __init__(self, made: type[Any]) -> None:
        self._made = made
        self._shapes: dict[str, Shape] = {}
        self._required: set[str] = set()

    def learn(self, types_seen: _Types) -> None:
        """Look at the fields, which may be of this very class again."""
        hints = _hints(self._made)
        if any(isinstance(hint, dataclasses.InitVar) for hint in hints.values()):
            raise InvalidJob(f"{self._made.__name__} has an InitVar, whose value is not kept")
        for field in dataclasses.fields(self._made):
            if not field.init:
                continue
            try:
                self._shapes[field.name] = types_seen.shape(hints[field.name])
            except InvalidJob as refused:
                raise InvalidJob(f"{self._made.__name__}.{field.name}: {refused}") from None
            if field.default is field.default_factory is dataclasses.MISSING:
                self._required.add(field.name)

    def write(self, value: Any, where: str) -> dict[str, Any]:
        if type(value) is not self._made:
            raise shapes.wrong(where, value, self._made.__name__)
        return {
            name: shape.write(getattr(value, name), f"{where}.{name}")
            for name, shape in self._shapes.items()
        }

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise shapes.wrong(where, value, f"the fields of {self._made.__name__}")
        if unknown := value.keys() - self._shapes.keys():
            raise InvalidPayload(f"{where} has the unknown field {min(map(repr, unknown))[:80]}")
        if missing := self._required - value.keys():
            raise InvalidPayload(f"{where} has no {min(missing)}")
        for name, one in value.items():
            self._shapes[name].check(one, f"{where}.{name}")

    def read(self, value: Any) -> Any:
        return self._made(**{name: self._shapes[name].read(one) for name, one in value.items()})


class _Types:
    """From annotations to shapes, each dataclass once."""

    def __init__(self) -> None:
        self._records: dict[type, Record] = {}

    def shape(self, annotation: Any) -> Shape:
        """The shape of a type; raises InvalidJob naming one that cannot travel."""
        annotation = getattr(annotation, "__supertype__", annotation)  # of a NewType
        if annotation is None:
            annotation = types.NoneType
        if annotation is Any:
            return shapes.Anything()
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is None and isinstance(annotation, type):
            return self._of_class(annotation)
        if origin in {Union, types.UnionType}:
            return shapes.Either([self.shape(argument) for argument in arguments])
        if origin is Literal:
            return _literal(arguments)
        return self._of_container(origin, arguments, annotation)

    def _of_class(self, kind: type) -> Shape:
        if kind in _PLAIN:
            return shapes.Plain(kind)
        if kind in _TEXTS:
            return shapes.Text(kind, *_TEXTS[kind])
        if issubclass(kind, Enum):
            return _enum(kind)
        if dataclasses.is_dataclass(kind):
            return self._of_dataclass(kind)
        return self._of_container(kind, (), kind)

    def _of_dataclass(self, kind: type) -> Record:
        record = self._records.get(kind)
        if record is None:
            record = self._records[kind] = Record(kind)
            record.learn(self)
        return record

    def _of_container(self, origin: Any, arguments: tuple[Any, ...], annotation: Any) -> Shape:
        items = [self.shape(one) for one in arguments if one is not Ellipsis and one != ()]
        if origin is list:
            return shapes.Sequence(list, items[0] if items else shapes.Anything())
        if origin is dict and (not arguments or arguments[0] is str):
            return shapes.Table(items[1] if items else shapes.Anything())
        if origin is tuple:
            if not arguments or arguments[-1] is Ellipsis:
                return shapes.Sequence(tuple, items[0] if items else shapes.Anything())
            return shapes.Row(tuple(items))
        raise InvalidJob(f"{annotation!r} is none of {SUPPORTED}")


def _hints(made: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(made)
    except NameError as error:
        raise InvalidJob(
            f"the annotations of {made.__name__} cannot be resolved ({error}); import what they "
            "name outside of TYPE_CHECKING, and define the class at module level"
        ) from error


def _literal(values: tuple[Any, ...]) -> Shape:
    if not all(type(value) in _PLAIN for value in values):
        raise InvalidJob(f"{values!r} are not all plain values")
    return shapes.Choice("allowed value", {(type(value), value): value for value in values})


def _enum(kind: type[Enum]) -> Shape:
    members = {(type(member.value), member.value): member for member in kind}
    if not members or not all(value_kind in _PLAIN for value_kind, _ in members):
        raise InvalidJob(f"the values of {kind.__name__} are not all texts or numbers")
    return shapes.Choice(kind.__name__, members)
