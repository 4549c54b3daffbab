"""Which tasks become handlers, and which modules may be imported for a key."""

import sys
from types import SimpleNamespace

import pytest
from django.apps import apps

from django_jobs.exceptions import ConfigurationError
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import registry
from django_jobs.tasks import finder, task
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
    handler = finder.find(f"{HIDDEN}.found")
    assert isinstance(handler, TaskHandler)
    assert registry.get(f"{HIDDEN}.found") is handler


@pytest.mark.parametrize(
    "name", ["plain", "os", "Thing", "gone", "Thing.method", "renamed", "__name__"]
)
def test_what_is_no_task_there_is_not_found(wing, name):
    assert finder.find(f"{HIDDEN}.{name}") is None
    assert f"{HIDDEN}.{name}" not in registry


def test_a_job_in_such_a_module_registers_itself(wing):
    assert finder.find(f"{HIDDEN}.job_beside") is registry.get(f"{HIDDEN}.job_beside")


def test_a_module_that_breaks_is_told_and_finds_nothing(wing, caplog):
    assert finder.find("tests.unit.tasks.wing.broken.found") is None
    assert "tests.unit.tasks.wing.broken" in caplog.text


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("testproject.shop.tasks", True),
        ("testproject.shop.jobs", True),
        ("testproject.shop.tasks.mail", True),
        ("testproject.shop.tasks.mail.daily", True),
        ("listed", True),
        ("listed.below", True),
        ("listedtoo", False),
        ("testproject.shop", False),
        ("testproject.shop.models", False),
        ("testproject.shop.tasksforce", False),
        ("testproject.shop.models.tasks", False),
        ("testproject.shopping.tasks", False),
        ("testproject", False),
        ("django_jobs.anything", False),
        ("django.contrib.admin.views", False),
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
def test_a_module_is_for_tasks_where_an_app_keeps_them_or_the_settings_name_it(
    module, allowed, settings
):
    settings.DJANGO_JOBS = {"TASK_MODULES": ["listed"]}
    assert finder.is_for_tasks(module) is allowed


def test_nothing_outside_is_imported(monkeypatch):
    imported = []
    monkeypatch.setattr(finder, "import_module", imported.append)
    assert finder.find("antigravity.fly") is None
    assert finder.find("fly") is None
    assert finder.find("testproject.shop.admin.OrderAdmin") is None
    assert finder.find("django.contrib.admin.views.main.x") is None
    assert imported == []


def test_two_functions_cannot_share_a_key(key):
    task(key=key)(one)
    with pytest.raises(ConfigurationError, match="two handlers"):
        task(key=key)(two)


def test_a_task_in_a_module_that_no_worker_imports_would_not_be_found(settings):
    made = task(one)
    problem = finder.why_not_found(registry.get(made.module_path))
    assert f"would not find the task {made.module_path}" in problem
    assert f"Add '{__name__}' to DJANGO_JOBS['TASK_MODULES'], or move one to" in problem
    settings.DJANGO_JOBS = {"TASK_MODULES": [__name__]}
    assert finder.why_not_found(registry.get(made.module_path)) is None


def test_a_task_that_was_imported_before_the_apps_were_ready_is_everywhere(monkeypatch):
    monkeypatch.setattr(apps, "ready", False)
    handler = TaskHandler(f"{__name__}.two", SimpleNamespace(func=two, takes_context=False))
    assert finder.why_not_found(handler) is None


def test_nothing_is_known_of_a_task_with_a_key_of_its_own(key):
    task(key=key)(one)
    assert finder.why_not_found(registry.get(key)) is None


def test_a_job_is_not_looked_for_as_a_task(key):
    assert finder.why_not_found(FunctionHandler(key, one, takes_context=False)) is None
