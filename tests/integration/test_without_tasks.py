"""Django 5.2 without django-tasks: there are no Tasks, and everything else works."""

import subprocess
import sys

SITE = """
import sys

# As if they were not installed: find_spec() answers None, an import fails.
sys.modules["django.tasks"] = sys.modules["django_tasks"] = None
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django_jobs"],
    SECRET_KEY="only for this test",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
from django.core.management import call_command

call_command("check")
call_command("migrate", verbosity=0)
from django_jobs import job
from django_jobs.exceptions import ConfigurationError
from django_jobs.worker import process_once


@job(key="only.add")
def add(first, second):
    return first + second


handle = add.enqueue(1, 2)
print(process_once().status, handle.result())
try:
    add.task
except ConfigurationError as error:
    print("django-tasks" in str(error))
"""


def test_a_site_starts_and_runs_jobs():
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", SITE], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["acked", "3", "True"], process.stdout + process.stderr
