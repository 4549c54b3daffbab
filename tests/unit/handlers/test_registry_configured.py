"""Handlers that settings name by dotted path."""

from __future__ import annotations

import pytest

from django_jobs.definition import Options
from django_jobs.exceptions import ConfigurationError, InvalidJob, InvalidPayload
from django_jobs.handlers.base import Handler, JobContext
from django_jobs.handlers.registry import Registry, register_configured
from tests.unit.handlers.configured_targets import Shouter

HERE = "tests.unit.handlers.configured_targets"


def registered(name: str):
    registry = Registry()
    register_configured({"key": f"{HERE}.{name}"}, registry)
    return registry.find("key")


def context(payload):
    return JobContext(id="", payload=payload, name="key", queue="default")


@pytest.mark.parametrize(("name", "answer"), [("known", 3), ("plain", 4)])
def test_a_function_runs_under_the_key_of_the_settings(name, answer):
    handler = registered(name)
    assert handler.key == "key"
    assert handler.handle(context({"args": [2], "kwargs": {}})) == answer


def test_a_function_that_takes_the_context_is_given_it():
    assert registered("aware").handle(context({"args": [2], "kwargs": {}})) == "key 2"


def test_a_class_is_made_once_and_asked_with_the_context():
    handler = registered("Greeter")
    assert handler.handle(context({"name": "Ada"})) == "hello Ada"
    assert handler.discard_on == (ValueError,)
    with pytest.raises(ValueError, match="no name"):
        handler.validate({})


def test_what_a_module_has_made_of_a_class_is_asked_itself():
    assert registered("greeter").handle(context({"name": "Ada"})) == "hello Ada"


@pytest.mark.parametrize("name", ["Shouter", "shouter"])
def test_a_handler_keeps_all_that_it_defines(name):
    handler = registered(name)
    assert isinstance(handler, Shouter)
    assert handler.key == "key"
    assert handler.encode(" hello ") == "hello"
    assert handler.is_coroutine
    with pytest.raises(InvalidPayload):
        handler.admit("hello")


def test_a_handler_may_have_several_keys():
    registry = Registry()
    register_configured({"a": f"{HERE}.shouter", "b": f"{HERE}.shouter"}, registry)
    assert (registry.find("a").key, registry.find("b").key) == ("a", "b")


def test_what_a_handler_does_not_define_has_a_default():
    handler = Handler()
    assert handler.encode({"a": 1}) == {"a": 1}
    assert handler.options == Options()
    assert (handler.is_coroutine, handler.retry, handler.takes) == (False, None, "")
    assert (handler.retry_on, handler.discard_on) == ((), ())
    assert (handler.before, handler.after) == (None, None)
    assert (handler.admit({}), handler.destination({})) == (None, None)
    with pytest.raises(NotImplementedError):
        handler.handle(context({}))


@pytest.mark.parametrize("name", ["neither", "Silent"])
def test_what_cannot_run_is_refused_with_its_path(name):
    refusal = rf"configured_targets\.{name}.*handle\(context\)"
    with pytest.raises(ConfigurationError, match=refusal):
        registered(name)


def test_what_cannot_be_imported_is_refused_with_its_path():
    with pytest.raises(ConfigurationError, match=r"configured_targets\.absent.*cannot be imported"):
        registered("absent")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Yielding", "key is a generator function"),
        ("AwaitedBefore", "before of key is a coroutine function"),
    ],
)
def test_a_handler_whose_code_would_not_run_is_refused(name, why):
    with pytest.raises(InvalidJob, match=why):
        registered(name)


def test_a_handler_may_say_itself_that_it_is_a_coroutine():
    assert registered("CoroutineByItsWord").is_coroutine
