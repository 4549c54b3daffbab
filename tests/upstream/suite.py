"""Django's generic test cases for Tasks, each class set on a backend of ours.

What is left out, or says something else here, stands in this file with its reason.
"""

from unittest import skip

from asgiref.sync import sync_to_async
from django.tasks import TaskResultStatus, default_task_backend, task_backends
from django.tasks.exceptions import TaskResultDoesNotExist
from django.test import TransactionTestCase, override_settings
from tasks import tasks as test_tasks
from tasks import test_dummy_backend, test_immediate_backend
from tasks import test_tasks as generic  # not the classes: they would be run as they are

from django_jobs.worker import process_once
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
    # Django's two change the status in the list of a backend that keeps its results in memory.
    # Here a worker does.

    def test_refresh_result(self):
        result = default_task_backend.enqueue(test_tasks.calculate_meaning_of_life, (), {})
        process_once()
        self.assertEqual(result.status, TaskResultStatus.READY)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)

    async def test_refresh_result_async(self):
        result = await default_task_backend.aenqueue(test_tasks.calculate_meaning_of_life, (), {})
        await sync_to_async(process_once)()
        self.assertEqual(result.status, TaskResultStatus.READY)
        await result.arefresh()
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)


@override_settings(TASKS={"default": SYNC})
class OurImmediateTests(OnTheDatabase, test_immediate_backend.ImmediateBackendTestCase):
    @skip("here results can be had, of any task")
    def test_cannot_get_result(self): ...

    @skip("here results can be had, of any task")
    def test_cannot_refresh_result(self): ...

    def test_complex_return_value(self):
        """The work is done, so it has succeeded; asked for its value it says what is wrong."""
        result = test_tasks.complex_return_value.enqueue()
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(result.errors, [])
        with self.assertRaisesMessage(ValueError, "value is of type function"):
            _ = result.return_value

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
