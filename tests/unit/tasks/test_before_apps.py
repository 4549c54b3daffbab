"""Tasks before the apps are loaded, and where this app is not installed: each in a new process."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SITE = """
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS={apps},
    SECRET_KEY="only for this test",
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "unused.sqlite3"}}}},
    TASKS={{"default": {{"BACKEND": "django_jobs.tasks.JobsBackend", "QUEUES": ["mail"]}}}},
)
"""
EARLY = """
import sys
from django_jobs.tasks.compat import task_backends
from django_jobs.tasks import task


def pack(order):
    return order

early = task(queue_name="mail", max_retries=2)(pack)
assert "django_jobs.models" not in sys.modules
django.setup()
assert early.get_backend() is task_backends["default"]
assert early.using(priority=3).options.max_retries == 2
print(early.get_backend().jobs.alias)
"""
MISSING = """
from django_jobs.tasks.compat import checks
from django_jobs.exceptions import InvalidBackend
from django_jobs.tasks import task

def pack(order):
    return order

django.setup()
print([message.id for message in checks.check_tasks()])
try:
    task(queue_name="mail")(pack).enqueue(1)
except InvalidBackend as error:
    print(error)
"""
IN_MODELS = """
from django_jobs.tasks import task

@task(queue_name="mail")
def pack(order):
    return order
"""
MISSING_IN_MODELS = """
from django_jobs.tasks.compat import checks
from django_jobs.exceptions import InvalidBackend

django.setup()
print([message.id for message in checks.check_tasks()])
from packing.models import pack
try:
    pack.enqueue(1)
except InvalidBackend as error:
    print(error)
"""


def output_of(apps, code):
    found = subprocess.run(
        [sys.executable, "-c", SITE.format(apps=apps) + code],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_backend_and_its_tasks_can_be_had_before_the_apps_are_loaded():
    assert output_of(["django_jobs"], EARLY) == "database\n"


def test_a_site_without_the_app_is_told_by_a_check_and_by_an_enqueue():
    checked, refused = output_of([], MISSING).splitlines()
    assert checked == "['django_jobs.E022']"
    assert "'django_jobs' is not in INSTALLED_APPS" in refused


def test_a_site_without_the_app_may_declare_tasks_among_its_models(tmp_path):
    (tmp_path / "packing").mkdir()
    (tmp_path / "packing" / "__init__.py").touch()
    (tmp_path / "packing" / "models.py").write_text(IN_MODELS)
    early = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    checked, refused = output_of(["packing"], early + MISSING_IN_MODELS).splitlines()
    assert checked == "['django_jobs.E022']"
    assert "'django_jobs' is not in INSTALLED_APPS" in refused
