"""Handlers that settings name by dotted path."""

from __future__ import annotations

import pytest

from django_jobs.exceptions import ConfigurationError
from django_jobs.handlers.base import JobContext
from django_jobs.handlers.registry import Registry, register_configured

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


def test_a_class_is_made_once_and_asked_with_the_context():
    handler = registered("Greeter")
    assert handler.handle(context({"name": "Ada"})) == "hello Ada"
    assert handler.discard_on == (ValueError,)
    with pytest.raises(ValueError, match="no name"):
        handler.validate({})


def test_what_cannot_run_is_refused_with_its_path():
    with pytest.raises(ConfigurationError, match=r"configured_targets\.neither.*handle\(context\)"):
        registered("neither")


def test_what_cannot_be_imported_is_refused_with_its_path():
    with pytest.raises(ConfigurationError, match=r"configured_targets\.absent.*cannot be imported"):
        registered("absent")
