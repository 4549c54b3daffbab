"""The test project with Django's own ``tests/tasks`` as an app beside it."""

from testproject.settings import *  # noqa: F403 - that is how one derives settings
from testproject.settings import INSTALLED_APPS as OF_THE_PROJECT

INSTALLED_APPS = [*OF_THE_PROJECT, "tasks"]
OURS = "tests.upstream.backend.RememberingBackend"
TASKS = {"default": {"BACKEND": OURS, "QUEUES": []}}
DJANGO_JOBS = {
    "BACKENDS": {
        "database": {"BACKEND": "django_jobs.backends.database.DatabaseBackend"},
        "sync": {"BACKEND": "django_jobs.backends.sync.SyncBackend"},
    },
}
