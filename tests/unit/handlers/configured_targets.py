"""What HANDLERS of the tests points to."""

from __future__ import annotations

from django_jobs import job
from django_jobs.exceptions import InvalidPayload
from django_jobs.handlers.base import Handler


@job(key="tests.configured.known")
def known(n):
    return n + 1


@job(key="tests.configured.aware", takes_context=True)
def aware(context, n):
    return f"{context.name} {n}"


def plain(n):
    return n * 2


class Greeter:
    """A handler class: made without arguments, asked with a context."""

    discard_on = (ValueError,)

    def validate(self, payload):
        if "name" not in payload:
            raise ValueError("no name")

    def handle(self, context):
        return f"hello {context.payload['name']}"


greeter = Greeter()


class Silent:
    """Has nothing that could be called with a context."""


class Shouter(Handler):
    """A Handler: what it defines beside ``handle`` counts too."""

    async def handle(self, context):
        return context.payload.upper()

    def encode(self, payload):
        return payload.strip()

    def admit(self, payload):
        raise InvalidPayload("never")


shouter = Shouter()
neither = 7


class Yielding(Handler):
    """Would run none of its code."""

    def handle(self, context):
        yield context.payload


class AwaitedBefore(Handler):
    """Has a hook that nothing would await."""

    def handle(self, context):
        return context.payload

    async def before(self, context):
        raise RuntimeError("not allowed")


class CoroutineByItsWord(Handler):
    """Returns an awaitable from a plain function, and says so."""

    is_coroutine = True

    def handle(self, context):
        async def work():
            return context.payload

        return work()
