"""Shapes: how values of a type travel as JSON.

A shape writes a value, checks what is to be read, and reads it. What is not exactly of
its type is refused; errors name the place and the type, and never show the value.
"""

from __future__ import annotations

import types
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any, Protocol

from django_jobs.exceptions import InvalidJob, InvalidPayload

if TYPE_CHECKING:
    from collections.abc import Callable


class Shape(Protocol):
    """How values of one type travel. ``kinds`` are the types of JSON that they become."""

    kinds: frozenset[type]

    def write(self, value: Any, where: str) -> Any:
        """The value as plain JSON; raises InvalidPayload."""

    def check(self, value: Any, where: str) -> None:
        """Raise InvalidPayload unless ``read`` can make a value of this."""

    def read(self, value: Any) -> Any:
        """The value that was written; only of what was checked."""


def wrong(where: str, value: Any, wanted: str) -> InvalidPayload:
    return InvalidPayload(f"{where} is of type {type(value).__name__}, not {wanted}")


class Anything:
    """Any; strict JSON is what it has to be anyway."""

    kinds: frozenset[type] = frozenset({str, int, float, bool, list, dict, types.NoneType})

    def write(self, value: Any, where: str) -> Any:
        return value

    def check(self, value: Any, where: str) -> None:
        """Everything will do."""

    def read(self, value: Any) -> Any:
        return value


class Plain:
    """What JSON knows itself. A bool is no number here, but a whole number is a float."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.kinds = frozenset({float, int} if kind is float else {kind})

    def write(self, value: Any, where: str) -> Any:
        if isinstance(value, bool) and self._kind is not bool:
            raise wrong(where, value, self._kind.__name__)
        if not isinstance(value, tuple(self.kinds)):
            raise wrong(where, value, self._kind.__name__)
        if self._kind is str:  # of a subclass, such as a member of an enum, only the text
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
            raise InvalidPayload(f"{where} is too large for a float") from None

    def read(self, value: Any) -> Any:
        return float(value) if self._kind is float else value


class Text:
    """A type with one written form, which is the only one that is read."""

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
            raise InvalidPayload(f"{where} is not the written form of a {self._kind.__name__}")


class Choice:
    """Members of an enum, by value, or the values of a Literal."""

    def __init__(self, name: str, values: dict[tuple[type, Any], Any]) -> None:
        self._name, self._values = name, values
        self.kinds = frozenset(kind for kind, _ in values)

    def write(self, value: Any, where: str) -> Any:
        for (_, written), read in self._values.items():
            if value is read or (type(value) is type(read) and value == read):
                return written
        raise InvalidPayload(f"{where} is no {self._name}")

    def check(self, value: Any, where: str) -> None:
        if type(value) not in self.kinds or (type(value), value) not in self._values:
            raise InvalidPayload(f"{where} is no {self._name}")

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
        return [self._item.write(one, f"{where}[{n}]") for n, one in enumerate(value)]

    def check(self, value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise wrong(where, value, "a list")
        items: list[Any] = value
        for n, one in enumerate(items):
            self._item.check(one, f"{where}[{n}]")

    def read(self, value: Any) -> Any:
        return self._kind(self._item.read(one) for one in value)


class Row:
    """A tuple with a type for each place."""

    kinds: frozenset[type] = frozenset({list})

    def __init__(self, items: tuple[Shape, ...]) -> None:
        self._items = items

    def write(self, value: Any, where: str) -> list[Any]:
        self._check_length(value, tuple, where)
        pairs = enumerate(zip(self._items, value, strict=True))
        return [item.write(one, f"{where}[{n}]") for n, (item, one) in pairs]

    def check(self, value: Any, where: str) -> None:
        self._check_length(value, list, where)
        for n, (item, one) in enumerate(zip(self._items, value, strict=True)):
            item.check(one, f"{where}[{n}]")

    def read(self, value: Any) -> Any:
        return tuple(item.read(one) for item, one in zip(self._items, value, strict=True))

    def _check_length(self, value: Any, kind: type, where: str) -> None:
        if not isinstance(value, kind):
            raise wrong(where, value, f"a {kind.__name__}")
        if len(value) != len(self._items):  # type: ignore[arg-type]  # a tuple or list by now
            raise InvalidPayload(f"{where} does not have {len(self._items)} items")


class Table:
    """A dict with texts as keys."""

    kinds: frozenset[type] = frozenset({dict})

    def __init__(self, item: Shape) -> None:
        self._item = item

    def write(self, value: Any, where: str) -> dict[str, Any]:
        self.check_keys(value, where)
        return {key: self._item.write(one, f"{where}[…]") for key, one in value.items()}

    def check(self, value: Any, where: str) -> None:
        self.check_keys(value, where)
        for one in value.values():
            self._item.check(one, f"{where}[…]")

    def read(self, value: Any) -> Any:
        return {key: self._item.read(one) for key, one in value.items()}

    def check_keys(self, value: Any, where: str) -> None:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise wrong(where, value, "a dict with texts as keys")


class Either:
    """One of several types, told apart by what JSON makes of them."""

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
        # One that speaks of a place further inside comes from the type that was meant.
        inside = [one for one in refusals if not str(one).startswith(f"{where} ")]
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
