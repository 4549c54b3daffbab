"""Dataclasses that are payloads, and handlers that take them."""

from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Literal, NewType
from uuid import UUID

from django_jobs import JobHandler, TypedContext, job

if TYPE_CHECKING:
    from pathlib import Path

UserId = NewType("UserId", int)


class Colour(Enum):
    RED = "red"
    SEVEN = 7


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Tree:
    name: str
    below: "list[Tree]" = field(default_factory=list)


@dataclass
class Everything:
    text: str
    number: int
    real: float
    flag: bool
    moment: datetime
    day: date
    hour: time
    price: Decimal
    id: UUID
    colour: Colour
    level: Level
    tree: Tree
    maybe: Tree | None
    kind: Literal["a", 2] | None
    either: int | str | list[int] | None
    names: list[str]
    pair: tuple[int, str]
    row: tuple[Decimal, ...]
    table: dict[str, date]
    user: UserId
    anything: Any = None
    made: int = field(init=False, default=3)


@dataclass
class Mail:
    to: str
    copies: int = 1

    def __post_init__(self) -> None:
        if "@" not in self.to:
            raise ValueError("to is no address")


@dataclass
class Unknown:
    path: "Path"


seen: list[Any] = []


@job(queue="mail", max_retries=2)
class SendMail(JobHandler[Mail, str]):
    """What a site would write."""

    retry_on = (OSError,)

    def before(self, context: TypedContext[Mail]) -> None:
        seen.append(("before", context.payload))

    def after(self, context: TypedContext[Mail], error: BaseException | None) -> None:
        seen.append(("after", context.payload, error))

    def handle(self, context: TypedContext[Mail]) -> str:
        seen.append(context)
        return f"{context.payload.copies} to {context.payload.to}"


@job(key="tests.count")
class Count(JobHandler[list[int], int]):
    async def handle(self, context: TypedContext[list[int]]) -> int:
        return sum(context.payload)


class Unregistered(JobHandler[Mail, None]):
    def handle(self, context: TypedContext[Mail]) -> None:
        seen.append(context.payload)
