"""Django's generic test cases for Tasks, each class set on a backend of ours.

What is left out, or says something else here, stands in this file with its reason.
"""

from django.tasks import TaskResultStatus, default_task_backend, task_backends
from django.tasks.exceptions import TaskResultDoesNotExist
from django.test import TransactionTestCase, override_settings
from tasks import tasks as test_tasks
from tasks import test_dummy_backend, test_immediate_backend
from tasks import test_tasks as generic  # not the classes: they would be run as they are

from tests.upstream.backend import RememberingBackend
from tests.upstream.settings import OURS

IMMEDIATE = "django.tasks.backends.immediate.ImmediateBackend"
SYNC = {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"BACKEND": "sync"}}


class OnTheDatabase(TransactionTestCase):
    """Django's cases need no database, and ask for a backend of their own."""

    databases = {"default"}

    def test_using_correct_backend(self):
        self.assertEqual(default_task_backend, task_backends["default"])
        self.assertIsInstance(task_backends["default"], RememberingBackend)


@override_settings(
    TASKS={
        "default": {"BACKEND": OURS, "QUEUES": ["default", "queue_1"]},
        "immediate": {"BACKEND": IMMEDIATE, "QUEUES": []},
        "missing": {"BACKEND": "does.not.exist"},
    },
    USE_TZ=True,
)
class OurTaskTests(OnTheDatabase, generic.TaskTestCase):
    def test_get_backend(self):
        self.assertIsInstance(test_tasks.noop_task.get_backend(), RememberingBackend)


@override_settings(TASKS={"default": {"BACKEND": OURS, "QUEUES": []}})
class OurWaitingTests(OnTheDatabase, test_dummy_backend.DummyBackendTestCase):
    # These two reach into the list of a backend that keeps its results in memory.
    test_refresh_result = None
    test_refresh_result_async = None


@override_settings(TASKS={"default": SYNC})
class OurImmediateTests(OnTheDatabase, test_immediate_backend.ImmediateBackendTestCase):
    # Here results can be had, of any task.
    test_cannot_get_result = None
    test_cannot_refresh_result = None

    def test_get_missing_result(self):
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result("123")

    def test_throws_keyboard_interrupt(self):
        """Raised by a task it fails the task; who presses Ctrl-C sends a signal."""
        with self.assertLogs("django.tasks", level="ERROR"):
            result = default_task_backend.enqueue(
                test_tasks.failing_task_keyboard_interrupt, [], {}
            )
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertEqual(result.errors[0].exception_class, KeyboardInterrupt)
