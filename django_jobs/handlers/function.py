"""Functions as handlers: the payload is ``{"args": [...], "kwargs": {...}}``."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.definition import Options
from django_jobs.exceptions import InvalidCall, InvalidJob, InvalidPayload
from django_jobs.handlers.base import Conduct, Handler

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.handlers.base import JobContext

_OPTIONS = {field.name for field in fields(Options)}
OPTIONS_BY_ANOTHER_NAME = {
    "countdown": "delay",
    "eta": "run_at",
    "queue_name": "queue",
    "run_after": "run_at",
    "task_id": "unique_key",
}
"""Names that other libraries have for our options."""
_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


class _Shape(NamedTuple):
    """A signature of plain parameters only, against which most calls can be checked quickly.

    It only accepts calls. Those that it does not accept are checked by ``Signature.bind``.
    """

    names: tuple[str, ...]
    required: int

    @classmethod
    def of(cls, signature: inspect.Signature) -> _Shape | None:
        parameters = list(signature.parameters.values())
        if any(p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters):
            return None
        required = [p for p in parameters if p.default is inspect.Parameter.empty]
        return cls(tuple(p.name for p in parameters), len(required))

    def fits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        positional = len(args)
        if not kwargs:
            return self.required <= positional <= len(self.names)
        return positional + len(kwargs) == len(self.names) and all(
            name in kwargs for name in self.names[positional:]
        )


class FunctionHandler(Handler):
    """Calls a function with the payload's arguments."""

    def __init__(
        self,
        key: str,
        function: Callable[..., Any],
        *,
        takes_context: bool,
        conduct: Conduct | None = None,
        options: Options | None = None,
    ) -> None:
        refuse_generator(key, function)
        self.key = key
        self.function = function
        self.takes_context = takes_context
        self.options = options or Options()
        conduct = conduct or Conduct()
        self.retry_on, self.discard_on = conduct.retry_on, conduct.discard_on
        self.before, self.after = conduct.before, conduct.after
        refuse_hooks(key, before=self.before, after=self.after)
        self.retry = conduct.retry
        self.is_coroutine = inspect.iscoroutinefunction(function)
        self._signature = _payload_signature(key, function, takes_context=takes_context)
        self._shape = _Shape.of(self._signature)

    @property
    def code(self) -> Any:
        return self.function

    @property
    def takes(self) -> str:
        """Its signature, for people."""
        return f"{self.key}{self._signature}"

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The payload of a call; raises InvalidCall if the arguments do not fit."""
        if self._shape is not None and self._shape.fits(args, kwargs):
            return {"args": list(args), "kwargs": kwargs}
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            why = self._unknown_argument(args, kwargs) or str(error)
            raise InvalidCall(f"{self.takes} cannot be called so: {why}") from None
        return {"args": list(args), "kwargs": kwargs}

    def _unknown_argument(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """A hint about a misspelt argument or a job option; more helpful than the missing one."""
        parameters = self._signature.parameters
        if any(
            parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
        ):
            return ""
        unknown = next((name for name in kwargs if name not in parameters), "")
        if not unknown:
            return ""
        if option := OPTIONS_BY_ANOTHER_NAME.get(unknown) or (unknown in _OPTIONS and unknown):
            return f"it has no argument {unknown!r}; {self.way_to_give(option)}"
        near = difflib.get_close_matches(unknown, parameters, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"it has no argument {unknown!r}{hint}"

    def way_to_give(self, option: str) -> str:
        """How to set an option that was passed as an argument."""
        return f"to give the job a {option} write using({option}=…).enqueue(…)"

    def validate(self, payload: Any) -> None:
        self.admit(payload)
        self.payload(tuple(payload["args"]), payload["kwargs"])

    def admit(self, payload: Any) -> None:
        """Raise InvalidPayload unless it has the form of a call; the run checks the arguments."""
        if (
            not isinstance(payload, dict)
            or payload.keys() != {"args", "kwargs"}
            or not isinstance(payload["args"], list)
            or not isinstance(payload["kwargs"], dict)
        ):
            raise InvalidPayload(
                f'{self.key} takes a payload of the form {{"args": [], "kwargs": {{}}}}'
            )

    def handle(self, context: JobContext) -> Any:
        args, kwargs = context.payload["args"], context.payload["kwargs"]
        if self.takes_context:
            return self.function(context, *args, **kwargs)
        return self.function(*args, **kwargs)


def refuse_generator(key: str, function: Callable[..., Any]) -> None:
    """Raise InvalidJob for a generator function: calling it would run none of its code."""
    if _yields(function):
        raise InvalidJob(
            f"{key} is a generator function, and its result would never be iterated over; do "
            "the work in a function without yield"
        )


def refuse_hooks(key: str, **hooks: Callable[..., Any] | None) -> None:
    """Raise InvalidJob for a hook that is a generator or coroutine function."""
    for name, hook in hooks.items():
        if inspect.iscoroutinefunction(hook) or (hook is not None and _yields(hook)):
            kind = "coroutine" if inspect.iscoroutinefunction(hook) else "generator"
            raise InvalidJob(
                f"{name} of {key} is a {kind} function, and hooks are only called; make it a "
                "plain function"
            )


def _yields(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _payload_signature(
    key: str, function: Callable[..., Any], *, takes_context: bool
) -> inspect.Signature:
    signature = inspect.signature(function)
    if takes_context:
        parameters = list(signature.parameters.values())
        if not parameters or parameters[0].kind not in _POSITIONAL:
            raise InvalidJob(
                f"{key}{signature} cannot take the context: its first argument must be one "
                "that can be given by position"
            )
        signature = signature.replace(parameters=parameters[1:])
    # Leave out annotations, which only make the signature in an error harder to read.
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
