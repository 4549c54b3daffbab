"""Which tasks become handlers, and which modules may be imported for a key."""

import sys

import pytest

from django_jobs.exceptions import ConfigurationError
from django_jobs.handlers.registry import registry
from django_jobs.tasks import registering, task
from django_jobs.tasks.compat import InvalidTask
from django_jobs.tasks.handler import TaskHandler

HIDDEN = "tests.unit.tasks.wing.hidden"


@pytest.fixture
def wing(settings):
    """A package of this site whose module nobody has imported."""
    settings.DJANGO_JOBS = {"TASK_MODULES": ["tests.unit.tasks.wing"]}
    yield
    for name in [name for name in sys.modules if name.startswith("tests.unit.tasks.wing")]:
        del sys.modules[name]
    for key in [key for key in registry if key.startswith("tests.unit.tasks.wing")]:
        del registry._handlers[key]


def one():
    """A function."""


def two():
    """Another."""


@pytest.fixture
def key():
    yield "tests.registering.key"
    registry._handlers.pop("tests.registering.key", None)


def test_a_task_is_a_handler_from_its_making_on(key):
    made = task(key=key, max_retries=3)(one)
    handler = registry.get(key)
    assert isinstance(handler, TaskHandler)
    assert (handler.task, handler.options.max_retries) == (made, 3)
    made.using(priority=5)
    assert registry.get(key) is handler


def test_what_is_no_valid_task_is_no_handler(key):
    for function in (lambda: None, len, "text".upper):
        with pytest.raises(InvalidTask):
            task(key=key)(function)
    assert key not in registry


def test_a_module_of_this_site_is_imported_and_its_task_found(wing):
    handler = registering.find(f"{HIDDEN}.found")
    assert isinstance(handler, TaskHandler)
    assert registry.get(f"{HIDDEN}.found") is handler


@pytest.mark.parametrize(
    "name", ["plain", "os", "Thing", "gone", "Thing.method", "renamed", "__name__"]
)
def test_what_is_no_task_there_is_not_found(wing, name):
    assert registering.find(f"{HIDDEN}.{name}") is None
    assert f"{HIDDEN}.{name}" not in registry


def test_a_job_in_such_a_module_registers_itself(wing):
    assert registering.find(f"{HIDDEN}.job_beside") is registry.get(f"{HIDDEN}.job_beside")


def test_a_module_that_breaks_is_told_and_finds_nothing(wing, caplog):
    assert registering.find("tests.unit.tasks.wing.broken.found") is None
    assert "tests.unit.tasks.wing.broken" in caplog.text


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("testproject.shop.tasks", True),
        ("testproject.shop", True),
        ("testproject.shopping.tasks", False),
        ("testproject", False),
        ("django_jobs.anything", True),
        ("django.contrib.admin.views", True),
        ("django.core.management", False),
        ("os", False),
        ("subprocess", False),
        ("", False),
        (".", False),
        ("testproject.shop.", False),
        ("testproject.shop..x", False),
        ("testproject.shop.a-b", False),
        ("testproject.shop/../x", False),
    ],
)
def test_a_module_is_of_this_site_when_an_installed_app_holds_it(module, allowed):
    assert registering.is_of_this_site(module) is allowed


def test_nothing_outside_is_imported(monkeypatch):
    imported = []
    monkeypatch.setattr(registering, "import_module", imported.append)
    assert registering.find("antigravity.fly") is None
    assert registering.find("fly") is None
    assert imported == []


def test_two_functions_cannot_share_a_key(key):
    task(key=key)(one)
    with pytest.raises(ConfigurationError, match="two handlers"):
        task(key=key)(two)
