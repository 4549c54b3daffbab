"""``@job``: a function becomes a handler and stays a function."""

import asyncio
import functools
import inspect

import pytest

from django_jobs import JobFunction, JobHandler, define, job
from django_jobs.exceptions import (
    ConfigurationError,
    InvalidJob,
    InvalidOption,
    InvalidPayload,
    NotSupported,
)
from django_jobs.handlers.base import JobContext
from django_jobs.handlers.registry import registry


@job
def bare(a, b=2):
    """Add two numbers."""
    return a + b


@job()
def with_empty_brackets():
    return "ran"


@job(queue="mail", max_retries=5, timeout=30)
def with_options(user_id):
    return user_id


@job(key="tests.moved", priority=3)
def with_key():
    return "ran"


@job(takes_context=True, name="Shown", queue="mail", key="tests.with_context")
def with_context(context, n, note=""):
    return (context, n, note)


@job
async def coroutine(n):
    return n + 1


@job(takes_context=True)
async def coroutine_with_context(context, n):
    return (context.attempt, n)


def test_bare_or_with_options_the_result_is_a_job_function():
    for decorated in (bare, with_empty_brackets, with_options, with_key, with_context, coroutine):
        assert isinstance(decorated, JobFunction)
        assert registry.find(decorated.key).function is decorated.function


def test_a_plain_call_runs_it_here_and_now():
    assert bare(1) == 3
    assert bare(1, b=5) == 6
    assert with_options(7) == 7


def test_a_plain_call_with_wrong_arguments_fails_as_for_any_function():
    with pytest.raises(TypeError, match="required positional argument"):
        bare()


def test_the_key_is_the_dotted_path():
    assert bare.key == f"{__name__}.bare"


def test_a_key_of_ones_own_takes_its_place():
    assert with_key.key == "tests.moved"
    assert f"{__name__}.with_key" not in registry


def test_the_options_are_those_that_were_given():
    assert with_options.options.queue == "mail"
    assert with_options.options.max_retries == 5
    assert with_options.options.timeout == 30
    assert with_key.options.priority == 3


def test_name_documentation_and_signature_are_the_functions():
    assert bare.__name__ == "bare"
    assert bare.__qualname__ == "bare"
    assert bare.__doc__ == "Add two numbers."
    assert bare.__module__ == __name__
    assert bare.__wrapped__ is bare.function
    assert str(inspect.signature(bare)) == "(a, b=2)"


def test_the_repr_names_the_key():
    assert repr(with_key) == "<job tests.moved>"


def test_a_plain_call_with_context_is_shown_attempt_one_of_nothing():
    context, n, note = with_context(5, note="x")
    assert (n, note) == (5, "x")
    assert isinstance(context, JobContext)
    assert (context.id, context.name, context.queue, context.attempt) == ("", "Shown", "mail", 1)
    assert context.payload == {"args": [5], "kwargs": {"note": "x"}}
    with pytest.raises(NotSupported, match="not supported yet"):
        context.progress(0.5, "nobody listens")


def test_a_plain_call_of_a_coroutine_function_is_awaited_as_usual():
    assert asyncio.run(coroutine(1)) == 2
    assert asyncio.run(coroutine_with_context(2)) == (1, 2)
    assert registry.find(coroutine.key).is_coroutine


def test_using_gives_the_same_function_with_other_options():
    other = with_options.using(queue="slow", priority=5)
    assert (other.options.queue, other.options.priority) == ("slow", 5)
    assert other.options.max_retries == 5
    assert with_options.options.queue == "mail"
    assert (other.key, other.function) == (with_options.key, with_options.function)
    assert other(7) == 7
    assert other.__name__ == "with_options"


def test_using_knows_no_key_and_no_context():
    for option in ({"key": "x"}, {"takes_context": True}):
        with pytest.raises(InvalidOption, match="unknown option"):
            bare.using(**option)


def test_using_refuses_what_the_decorator_refuses():
    with pytest.raises(InvalidOption, match="priority is 101"):
        bare.using(priority=101)
    with pytest.raises(InvalidOption, match="priority is 101"):
        job(priority=101)
    with pytest.raises(InvalidOption, match="did you mean 'priority'"):
        job(prio=1)


def test_preparing_fixes_a_fresh_id_and_the_arguments():
    one, other = bare.prepare(1), bare.prepare(1)
    assert one.id != other.id
    assert one.payload == {"args": [1], "kwargs": {}}
    assert bare.prepare(1, b=3).payload == {"args": [1], "kwargs": {"b": 3}}


def test_preparing_a_wrong_call_is_refused():
    with pytest.raises(InvalidPayload, match=r"bare\(a, b=2\) cannot be called so"):
        bare.prepare()


def test_preparing_leaves_the_context_out():
    assert with_context.prepare(1).payload == {"args": [1], "kwargs": {}}
    with pytest.raises(InvalidPayload, match=r"\(n, note=''\)"):
        with_context.prepare(1, 2, 3)


# -- what is refused ---------------------------------------------------------------------------


def test_a_local_function_without_a_key_is_refused():
    def local():
        pass

    with pytest.raises(InvalidJob, match="cannot be found by a worker; define it at module level"):
        job(local)


def test_a_lambda_without_a_key_is_refused():
    with pytest.raises(InvalidJob, match="give it a key="):
        job(lambda: None)


def test_a_local_function_with_a_key_is_fine():
    @job(key="tests.local")
    def local(n):
        return n

    assert local(1) == 1
    assert registry.find("tests.local").function is local.function


def test_a_class_is_refused():
    with pytest.raises(InvalidJob, match="or a subclass of JobHandler, not <class"):

        @job
        class Job:
            pass


@pytest.mark.parametrize(
    "thing", ["mail", 5, {"queue": "mail"}, functools.partial(max, 1)], ids=type
)
def test_what_is_no_function_is_refused(thing):
    with pytest.raises(InvalidJob, match="@job takes a function or a subclass of JobHandler, not"):
        job(thing)
    with pytest.raises(InvalidJob, match="@job takes a function or a subclass of JobHandler, not"):
        job(key="tests.thing")(thing)


@pytest.mark.parametrize(
    "key", ["", "k" * 256, "a\nb", "a\x00", 5, b"key"], ids=lambda k: repr(k)[:9]
)
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(InvalidOption, match=r"key is .*1 to 255 printable characters"):
        job(key=key)(len)


def yields():
    yield 1


async def yields_asynchronously():
    yield 1


class Yields(JobHandler):
    def handle(self, context):
        yield context.payload


class YieldsInPart(JobHandler[dict, None]):
    handle = functools.partialmethod(yields)


@pytest.mark.parametrize("handler", [yields, yields_asynchronously, Yields, YieldsInPart])
def test_a_generator_is_refused_as_nothing_of_it_would_run(handler):
    with pytest.raises(InvalidJob, match=r"tests\.yields is a generator function"):
        job(key="tests.yields")(handler)
    assert registry.get("tests.yields") is None


async def waits(*_args):
    pass


def yields_not():
    pass


class WaitsBefore(JobHandler[dict, None]):
    before = waits

    def handle(self, context):
        pass


@pytest.mark.parametrize("hook", [yields, yields_asynchronously, waits])
@pytest.mark.parametrize("name", ["before", "after"])
def test_a_hook_that_calling_it_would_not_run_is_refused(name, hook):
    with pytest.raises(InvalidJob, match=rf"{name} of tests\.hooked is a .* function"):
        job(key="tests.hooked", **{name: hook})(yields_not)
    assert registry.get("tests.hooked") is None


def test_a_hook_of_a_class_that_calling_it_would_not_run_is_refused():
    with pytest.raises(InvalidJob, match=r"before of tests\.hooked is a coroutine function"):
        job(key="tests.hooked")(WaitsBefore)


def test_a_path_too_long_for_a_key_is_refused():
    def function():
        pass

    function.__qualname__ = "f" * 256
    with pytest.raises(InvalidJob, match="more than 255 characters; give the job a key="):
        job(function)


def test_two_functions_cannot_share_a_key():
    job(key="tests.shared")(bare.function)
    with pytest.raises(ConfigurationError, match=r"two handlers .* 'tests.shared'"):
        job(key="tests.shared")(with_options.function)


def test_a_function_without_a_first_argument_cannot_take_the_context():
    with pytest.raises(InvalidJob, match="cannot take the context"):
        job(takes_context=True, key="tests.contextless")(lambda: None)
    assert "tests.contextless" not in registry


# -- in the words of other libraries ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("delay", r"no attribute 'delay'; write enqueue\(…\), which takes what the function takes"),
        ("apply_async", r"write using\(delay=…\)\.enqueue\(…\): options first"),
        ("delay_on_commit", "inside a transaction the job belongs to it"),
        ("send", r"write enqueue\(…\)"),
        ("schedule", r"write using\(delay=…\)\.enqueue\(…\), or using\(run_at=…\)"),
        ("no_such_thing", "the job bare has no attribute 'no_such_thing'$"),
    ],
)
def test_what_other_libraries_call_it_is_answered_with_the_way_to_do_it_here(name, says):
    assert not hasattr(bare, name)
    with pytest.raises(AttributeError, match=says):
        getattr(bare, name)


@pytest.mark.parametrize("name", ["delay", "send", "apply_async", "schedule", "s"])
def test_a_defined_job_answers_so_too_with_an_enqueue_that_takes_nothing(name):
    says = rf"define\(\) has no attribute '{name}'; write .*(enqueue|prepare)\(\)"
    with pytest.raises(AttributeError, match=says):
        getattr(define(bare.key), name)


def test_a_defined_job_names_no_way_that_it_lacks():
    with pytest.raises(AttributeError, match=r"define\(\) has no attribute 'apply'$"):
        _ = define(bare.key).apply


def test_a_property_that_fails_says_why_and_not_that_it_is_missing():
    unmade = object.__new__(type(bare))
    with pytest.raises(AttributeError, match=r"no attribute 'handler'$"):
        _ = unmade.key


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"user_id": 1, "delay": 5}, r"no argument 'delay'; .* a delay write using\(delay=…\)"),
        ({"user_id": 1, "countdown": 5}, r"'countdown'; .* a delay write using\(delay=…\)"),
        ({"user_id": 1, "eta": 5}, r"'eta'; .* a run_at write using\(run_at=…\)\.enqueue"),
        ({"usr_id": 1}, "it has no argument 'usr_id'; did you mean 'user_id'"),
        ({"odd": 1}, "it has no argument 'odd'$"),
        ({}, "missing a required argument: 'user_id'"),
    ],
)
def test_an_argument_that_the_function_does_not_take_is_named_first(given, says):
    with pytest.raises(InvalidPayload, match=says):
        with_options.enqueue(**given)


def test_options_that_the_function_does_take_are_its_own():
    @job(key="tests.delays")
    def takes(delay, **others):
        return delay, others

    assert takes.prepare(delay=5, eta=7).payload["kwargs"] == {"delay": 5, "eta": 7}
