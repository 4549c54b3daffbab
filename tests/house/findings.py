"""House tests look at everything and then fail once, with all that they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def listed(findings: Iterable[object]) -> str:
    """A message that names each finding on a line of its own."""
    return "".join(f"\n  {finding}" for finding in findings)
