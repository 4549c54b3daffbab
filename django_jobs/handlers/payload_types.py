"""Typed payloads: values of annotated types, such as dataclasses, as JSON and back.

A type is inspected once, when its handler is registered, and becomes a shape. Checking a received
payload runs no user code; reading it does, because it makes the dataclasses.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Protocol, Union
from uuid import UUID

from django_jobs.exceptions import InvalidJob, InvalidPayload

if TYPE_CHECKING:
    from collections.abc import Callable


class Shape(Protocol):
    """Writes, checks and reads values of one type. ``kinds`` are the JSON types they become.

    A value that is not exactly of this type is refused; errors name the place and the type, and
    never show the value.
    """

    kinds: frozenset[type]

    def write(self, value: Any, where: str) -> Any:
        """The value as plain JSON; raises InvalidPayload."""

    def check(self, value: Any, where: str) -> None:
        """Raise InvalidPayload unless ``read`` can make a value of this."""

    def read(self, value: Any) -> Any:
        """The value that was written. Call it only after ``check``."""


def unfit(where: str, why: str) -> InvalidPayload:
    return InvalidPayload(f"{where} {why}", where=where)


def wrong(where: str, value: Any, wanted: str) -> InvalidPayload:
    return unfit(where, f"is of type {type(value).__name__}, not {wanted}")


class Anything:
    """Any value; every payload has to be strict JSON anyway."""

    kinds: frozenset[type] = frozenset({str, int, float, bool, list, dict, types.NoneType})

    def write(self, value: Any, where: str) -> Any:
        return value

    def check(self, value: Any, where: str) -> None:
        """Accept everything."""

    def read(self, value: Any) -> Any:
        return value


class Plain:
    """Types that JSON has itself. A bool is no number here, but an int is also a float."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.kinds = frozenset({float, int} if kind is float else {kind})

    def write(self, value: Any, where: str) -> Any:
        if isinstance(value, bool) and self._kind is not bool:
            raise wrong(where, value, self._kind.__name__)
        if not isinstance(value, tuple(self.kinds)):
            raise wrong(where, value, self._kind.__name__)
        if self._kind is str:  # only the text of a subclass, such as an enum member
            return str.__str__(value)
        if self._kind in {bool, types.NoneType}:
            return value
        return self._number(value, where)

    def check(self, value: Any, where: str) -> None:
        if type(value) not in self.kinds:
            raise wrong(where, value, self._kind.__name__)
        if self._kind is float:
            self._number(value, where)

    def _number(self, value: Any, where: str) -> Any:
        try:
            return self._kind(value)
        except OverflowError:
            raise unfit(where, "is too large for a float") from None

    def read(self, value: Any) -> Any:
        return float(value) if self._kind is float else value


class Text:
    """A type with one text form; no other text is read."""

    kinds: frozenset[type] = frozenset({str})

    def __init__(self, kind: type, read: Callable[[str], Any], write: Callable[[Any], str]) -> None:
        self._kind, self.read, self._write = kind, read, write

    def write(self, value: Any, where: str) -> str:
        if type(value) is not self._kind:
            raise wrong(where, value, self._kind.__name__)
        return self._write(value)

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, str):
            raise wrong(where, value, f"{self._kind.__name__} written as text")
        try:
            sound = self._write(self.read(value)) == value
        except (ValueError, InvalidOperation):
            sound = False
        if not sound:
            raise unfit(where, f"is not the written form of a {self._kind.__name__}")


class Choice:
    """Members of an enum, by value, or the values of a Literal."""

    def __init__(self, name: str, values: dict[tuple[type, Any], Any]) -> None:
        self._name, self._values = name, values
        self.kinds = frozenset(kind for kind, _ in values)

    def write(self, value: Any, where: str) -> Any:
        for (_, written), read in self._values.items():
            if value is read or (type(value) is type(read) and value == read):
                return written
        raise unfit(where, f"is no {self._name}")

    def check(self, value: Any, where: str) -> None:
        if type(value) not in self.kinds or (type(value), value) not in self._values:
            raise unfit(where, f"is no {self._name}")

    def read(self, value: Any) -> Any:
        return self._values[type(value), value]


class Sequence:
    """A list, or a tuple of any length."""

    kinds: frozenset[type] = frozenset({list})

    def __init__(self, kind: Any, item: Shape) -> None:
        self._kind, self._item = kind, item

    def write(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, self._kind):
            raise wrong(where, value, self._kind.__name__)
        return [self._item.write(item, f"{where}[{n}]") for n, item in enumerate(value)]

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise wrong(where, value, "a list")
        items: list[Any] = value
        for n, item in enumerate(items):
            self._item.check(item, f"{where}[{n}]")

    def read(self, value: Any) -> Any:
        return self._kind(self._item.read(item) for item in value)


class Row:
    """A tuple with a type for each place."""

    kinds: frozenset[type] = frozenset({list})

    def __init__(self, items: tuple[Shape, ...]) -> None:
        self._items = items

    def write(self, value: Any, where: str) -> list[Any]:
        self._check_length(value, tuple, where)
        pairs = enumerate(zip(self._items, value, strict=True))
        return [shape.write(item, f"{where}[{n}]") for n, (shape, item) in pairs]

    def check(self, value: Any, where: str) -> None:
        self._check_length(value, list, where)
        for n, (shape, item) in enumerate(zip(self._items, value, strict=True)):
            shape.check(item, f"{where}[{n}]")

    def read(self, value: Any) -> Any:
        return tuple(shape.read(item) for shape, item in zip(self._items, value, strict=True))

    def _check_length(self, value: Any, kind: type, where: str) -> None:
        if not isinstance(value, kind):
            raise wrong(where, value, f"a {kind.__name__}")
        if len(value) != len(self._items):  # type: ignore[arg-type]  # a tuple or list by now
            raise unfit(where, f"does not have {len(self._items)} items")


class Table:
    """A dict with texts as keys."""

    kinds: frozenset[type] = frozenset({dict})

    def __init__(self, item: Shape) -> None:
        self._item = item

    def write(self, value: Any, where: str) -> dict[str, Any]:
        self.check_keys(value, where)
        return {key: self._item.write(item, f"{where}[…]") for key, item in value.items()}

    def check(self, value: Any, where: str) -> None:
        self.check_keys(value, where)
        for item in value.values():
            self._item.check(item, f"{where}[…]")

    def read(self, value: Any) -> Any:
        return {key: self._item.read(item) for key, item in value.items()}

    def check_keys(self, value: Any, where: str) -> None:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise wrong(where, value, "a dict with texts as keys")


class Either:
    """One of several types, distinguished by their JSON types."""

    def __init__(self, options: list[Shape]) -> None:
        self._by_kind = {kind: option for option in options for kind in option.kinds}
        if len(self._by_kind) != sum(len(option.kinds) for option in options):
            raise InvalidJob("a union of types that look the same as JSON")
        self._options = options
        self.kinds = frozenset(self._by_kind)

    def write(self, value: Any, where: str) -> Any:
        refusals = []
        for option in self._options:
            try:
                return option.write(value, where)
            except InvalidPayload as refusal:
                refusals.append(refusal)
        # An error about an inner place comes from the type that was meant.
        inside = [error for error in refusals if error.where != where]
        raise (inside or [wrong(where, value, self._names())])[0]

    def check(self, value: Any, where: str) -> None:
        option = self._by_kind.get(type(value))
        if option is None:
            raise wrong(where, value, self._names())
        option.check(value, where)

    def read(self, value: Any) -> Any:
        return self._by_kind[type(value)].read(value)

    def _names(self) -> str:
        return " or ".join(sorted(kind.__name__ for kind in self.kinds))


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
        """The JSON of a payload, or of its plain form; raises InvalidPayload."""
        try:
            if isinstance(payload, dict) and isinstance(self._shape, Record):
                self._shape.check(payload, "payload")
                payload = self._made(payload)
            return self._shape.write(payload, "payload")
        except InvalidPayload as refused:
            message = f"{self._key}: {refused}"
            raise InvalidPayload(message, where=refused.where) from refused.__cause__
        except RecursionError:
            raise InvalidPayload(f"{self._key}: payload is nested too deeply") from None

    def check(self, payload: Any) -> None:
        """Raise InvalidPayload unless the payload can be read."""
        try:
            self._shape.check(payload, "payload")
        except InvalidPayload as refused:
            raise InvalidPayload(f"{self._key}: {refused}", where=refused.where) from None

    def read(self, payload: Any) -> Any:
        """The payload as the handler sees it; raises InvalidPayload."""
        self.check(payload)
        return self._shape.read(payload)

    def _made(self, payload: dict[str, Any]) -> Any:
        """Make the dataclass of a plain form; its own code may refuse the values."""
        try:
            return self._shape.read(payload)
        except (TypeError, ValueError) as error:
            raise InvalidPayload(f"payload was refused: {error}") from error


class Record:
    """A dataclass. All fields are written; those with a default may be missing when read."""

    kinds: frozenset[type] = frozenset({dict})

    def __init__(self, made: type[Any]) -> None:
        self._made = made
        self._shapes: dict[str, Shape] = {}
        self._required: set[str] = set()

    def learn(self, types_seen: _Types) -> None:
        """Inspect the fields, which may be of this same class again."""
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
            raise wrong(where, value, self._made.__name__)
        return {
            name: shape.write(getattr(value, name), f"{where}.{name}")
            for name, shape in self._shapes.items()
        }

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise wrong(where, value, f"the fields of {self._made.__name__}")
        if unknown := value.keys() - self._shapes.keys():
            raise unfit(where, f"has the unknown field {min(map(repr, unknown))[:80]}")
        if missing := self._required - value.keys():
            raise unfit(where, f"has no {min(missing)}")
        for name, item in value.items():
            self._shapes[name].check(item, f"{where}.{name}")

    def read(self, value: Any) -> Any:
        return self._made(**{name: self._shapes[name].read(item) for name, item in value.items()})


class _Types:
    """Makes shapes of annotations, one for each dataclass."""

    def __init__(self) -> None:
        self._records: dict[type, Record] = {}

    def shape(self, annotation: Any) -> Shape:
        """The shape of a type; raises InvalidJob for an unsupported one."""
        annotation = getattr(annotation, "__supertype__", annotation)  # of a NewType
        if annotation is None:
            annotation = types.NoneType
        if annotation is Any:
            return Anything()
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is None and isinstance(annotation, type):
            return self._of_class(annotation)
        if origin in {Union, types.UnionType}:
            return Either([self.shape(argument) for argument in arguments])
        if origin is Literal:
            return _literal(arguments)
        return self._of_container(origin, arguments, annotation)

    def _of_class(self, kind: type) -> Shape:
        if kind in _PLAIN:
            return Plain(kind)
        if kind in _TEXTS:
            return Text(kind, *_TEXTS[kind])
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
        items = [
            self.shape(argument)
            for argument in arguments
            if argument is not Ellipsis and argument != ()
        ]
        if origin is list:
            return Sequence(list, items[0] if items else Anything())
        if origin is dict and (not arguments or arguments[0] is str):
            return Table(items[1] if items else Anything())
        if origin is tuple:
            if not arguments or arguments[-1] is Ellipsis:
                return Sequence(tuple, items[0] if items else Anything())
            return Row(tuple(items))
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
    return Choice("allowed value", {(type(value), value): value for value in values})


def _enum(kind: type[Enum]) -> Shape:
    members = {(type(member.value), member.value): member for member in kind}
    if not members or not all(value_kind in _PLAIN for value_kind, _ in members):
        raise InvalidJob(f"the values of {kind.__name__} are not all texts or numbers")
    return Choice(kind.__name__, members)
