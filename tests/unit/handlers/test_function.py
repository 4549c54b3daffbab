"""Functions as handlers: which calls fit, what a wrong one is told, and how a job runs."""

import functools
import inspect

import pytest

from django_jobs.exceptions import InvalidJob, InvalidPayload, NotSupported
from django_jobs.handlers.base import Handler, JobContext
from django_jobs.handlers.function import FunctionHandler


def plain(user_id, greeting="Hello"):
    return (user_id, greeting)


def many(first, *rest, key=None, **more):
    return (first, rest, key, more)


def positional_only(a, b=2, /):
    return (a, b)


def keyword_only(*, a, b=2):
    return (a, b)


def no_arguments():
    return "ran"


def with_context(context, user_id, note=""):
    return (context.attempt, user_id, note)


def annotated(user_id: int, at: "SomethingUnknown" = None) -> "Unknown":  # noqa: F821 - never resolved
    return user_id


async def coroutine(n):
    return n + 1


def handler(function, *, takes_context=False):
    return FunctionHandler("shop.f", function, takes_context=takes_context)


def context(args=(), kwargs=None, **more):
    payload = {"args": list(args), "kwargs": kwargs or {}}
    return JobContext(id="x", payload=payload, name="n", queue="q", **more)


def refusal_of(function, *args, takes_context=False, **kwargs) -> str:
    with pytest.raises(InvalidPayload) as refused:
        handler(function, takes_context=takes_context).payload(args, kwargs)
    return str(refused.value)


FITTING = [
    (plain, (1,), {}),
    (plain, (1, "Hi"), {}),
    (plain, (), {"user_id": 1}),
    (plain, (1,), {"greeting": "Hi"}),
    (many, (1,), {}),
    (many, (1, 2, 3), {"key": 4, "other": 5}),
    (many, (), {"first": 1}),
    (positional_only, (1,), {}),
    (positional_only, (1, 2), {}),
    (keyword_only, (), {"a": 1}),
    (keyword_only, (), {"b": 1, "a": 2}),
    (no_arguments, (), {}),
]
WRONG = [
    (plain, (), {}, "missing a required argument: 'user_id'"),
    (plain, (1, 2, 3), {}, "too many positional arguments"),
    (plain, (1,), {"user_id": 1}, "multiple values for argument 'user_id'"),
    (plain, (1,), {"colour": 1}, "it has no argument 'colour'"),
    (many, (), {"key": 1}, "missing a required argument: 'first'"),
    (positional_only, (), {"a": 1}, "'a'"),
    (keyword_only, (1,), {}, "too many positional arguments"),
    (keyword_only, (), {"b": 1}, "missing a required"),
    (no_arguments, (1,), {}, "too many positional arguments"),
]


def shown(value):
    return value.__name__ if callable(value) else repr(value)


@pytest.mark.parametrize(("function", "args", "kwargs"), FITTING, ids=shown)
def test_a_fitting_call_becomes_the_payload_and_runs_as_written(function, args, kwargs):
    payload = handler(function).payload(args, kwargs)
    assert payload == {"args": list(args), "kwargs": kwargs}
    assert handler(function).handle(context(args, kwargs)) == function(*args, **kwargs)


@pytest.mark.parametrize(("function", "args", "kwargs", "why"), WRONG, ids=shown)
def test_a_wrong_call_is_refused_and_told_why(function, args, kwargs, why):
    with pytest.raises(TypeError):
        function(*args, **kwargs)
    message = refusal_of(function, *args, **kwargs)
    assert message.startswith("shop.f(")
    assert "cannot be called so" in message
    assert why in message


@pytest.mark.parametrize(("function", "args", "kwargs", "why"), WRONG, ids=shown)
def test_a_wrong_payload_is_refused_like_a_wrong_call(function, args, kwargs, why):
    with pytest.raises(InvalidPayload, match=why):
        handler(function).validate({"args": list(args), "kwargs": kwargs})


def test_the_error_shows_the_signature_without_annotations():
    assert refusal_of(annotated, 1, 2, 3) == (
        "shop.f(user_id, at=None) cannot be called so: too many positional arguments"
    )


def test_defaults_are_left_to_the_function_that_will_run():
    assert handler(plain).payload((1,), {}) == {"args": [1], "kwargs": {}}


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        "text",
        {},
        {"args": []},
        {"kwargs": {}},
        {"args": [1], "kwargs": {}, "more": 1},
        {"args": {}, "kwargs": {}},
        {"args": "ab", "kwargs": {}},
        {"args": [1], "kwargs": []},
        {"args": [1], "kwargs": None},
    ],
    ids=repr,
)
def test_a_payload_of_another_form_is_refused_and_the_form_is_shown(payload):
    with pytest.raises(InvalidPayload) as refused:
        handler(plain).validate(payload)
    assert str(refused.value) == ('shop.f takes a payload of the form {"args": [], "kwargs": {}}')


def test_the_context_is_no_argument_of_the_job():
    own = handler(with_context, takes_context=True)
    assert own.payload((1,), {"note": "x"}) == {"args": [1], "kwargs": {"note": "x"}}
    assert own.handle(context((1,), {"note": "x"}, attempt=3)) == (3, 1, "x")


def test_a_context_that_is_given_as_argument_is_one_too_many():
    why = refusal_of(with_context, "context", 1, "note", takes_context=True)
    assert why.startswith("shop.f(user_id, note='') cannot be called so")


def test_without_takes_context_the_first_argument_is_like_any_other():
    assert handler(with_context).payload((1, 2), {}) == {"args": [1, 2], "kwargs": {}}


@pytest.mark.parametrize("function", [no_arguments, keyword_only], ids=shown)
def test_a_function_with_no_place_for_the_context_cannot_take_it(function):
    with pytest.raises(InvalidJob, match="cannot take the context"):
        handler(function, takes_context=True)


def test_a_context_may_be_taken_positional_only():
    own = handler(positional_only, takes_context=True)
    shown_context = context((5,))
    assert own.handle(shown_context) == (shown_context, 5)


def test_arguments_named_like_our_own_are_no_problem():
    def awkward(function, context, key, payload, args):
        return (function, context, key, payload, args)

    names = {"function": 1, "context": 2, "key": 3, "payload": 4, "args": 5}
    payload = handler(awkward).payload((), names)
    assert handler(awkward).handle(context((), payload["kwargs"])) == (1, 2, 3, 4, 5)


def test_a_coroutine_function_is_known_as_one_and_hands_its_coroutine_back():
    own = handler(coroutine)
    assert own.is_coroutine
    assert not handler(plain).is_coroutine
    running = own.handle(context((1,)))
    assert inspect.iscoroutine(running)
    running.close()


def test_a_decorated_function_is_bound_by_the_signature_it_wraps():
    @functools.wraps(plain)
    def wrapper(*args, **kwargs):
        return plain(*args, **kwargs)

    assert "missing a required argument: 'user_id'" in refusal_of(wrapper)


def test_a_partial_is_bound_by_what_is_left():
    half = functools.partial(many, 1)
    assert handler(half).handle(context((2,))) == (1, (2,), None, {})


def test_what_the_handler_raises_comes_out_as_it_is():
    def failing():
        raise TypeError("my own")

    with pytest.raises(TypeError, match=r"^my own$"):
        handler(failing).handle(context())


def test_a_function_handler_fits_the_protocol():
    assert isinstance(handler(plain), Handler)


def test_progress_is_refused_and_not_swallowed():
    def tells(context):
        context.progress(0.5, "half")

    with pytest.raises(NotSupported, match=r"context\.progress\(\) is not supported yet"):
        handler(tells, takes_context=True).handle(context())
