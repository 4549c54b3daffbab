"""What the demo says: numbered steps, indented facts, and colours on a terminal only."""

from __future__ import annotations

import os
import sys

BOLD, GREEN, RED, DIM = "1", "32", "31", "2"
WIDTH = 160


class DidNotHappen(Exception):
    """Something that the demo is there to show did not happen."""


class Teller:
    """Numbers the steps and remembers what was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self._step = 0
        self._colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._step += 1
        self._line(f"\n{self._step}. {title}", BOLD)

    def fact(self, text: str) -> None:
        """Something that was done, or seen."""
        self._line(f"   {text}")

    def happened(self, text: str) -> None:
        """Something that the demo is there to show; it comes again in the summary."""
        self.shown.append(text)
        self._line(f"   {text}", GREEN)

    def quote(self, text: str) -> None:
        """What a command printed."""
        for line in text.strip("\n").splitlines():
            self._line(f"   | {line[:WIDTH]}".rstrip(), DIM)

    def summary(self, seconds: float) -> None:
        """The end, when everything happened."""
        self._line(f"\nAll of it happened, in {seconds:.0f} s:", BOLD)
        for number, text in enumerate(self.shown, start=1):
            self._line(f"  {number}. {text}")

    def failed(self, what: str, outputs: dict[str, str]) -> None:
        """The end, when something did not."""
        for name, text in outputs.items():
            if text.strip():
                self.fact(f"The last words of {name}:")
                self.quote("\n".join(text.splitlines()[-30:]))
        self._line(f"\nDid not happen: {what}", RED)

    def _line(self, text: str, colour: str = "") -> None:
        if colour and self._colours:
            body = text.lstrip("\n")
            text = text[: len(text) - len(body)] + f"\033[{colour}m{body}\033[0m"
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
