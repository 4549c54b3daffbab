"""The word for what nobody said, where None is an answer of its own."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Unset(Enum):
    """The type of UNSET."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
