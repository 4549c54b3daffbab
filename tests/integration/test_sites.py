"""What SITE says where nobody set it: one word for a project, another one for the next."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = """
SECRET_KEY = "the same in all settings of the project, and long enough"
INSTALLED_APPS = ["django.contrib.contenttypes", "django_jobs", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
FILES = {
    "shop/__init__.py": "",
    "shop/urls.py": "urlpatterns = []\n",
    "shop/jobs.py": "from django_jobs import job\n\n\n@job\ndef greet():\n    return 'hello'\n",
    "shop/settings/__init__.py": "",
    "shop/settings/base.py": BASE,
    "shop/settings/web.py": "from shop.settings.base import *\n\nROOT_URLCONF = 'shop.urls'\n",
    "shop/settings/worker.py": "from shop.settings.base import *\n",
    "worker_settings.py": "from shop.settings.web import *\n",
}
SET_UP = "import django; django.setup(); "
SITE = f"{SET_UP} from django_jobs.conf import get_settings; print(get_settings().site)"
ENQUEUE = f"{SET_UP} from shop.jobs import greet; greet.enqueue()"
WORK = f"{SET_UP} from django_jobs.worker import process_once; print(process_once().status)"


@pytest.fixture
def python(tmp_path):
    """Run code of a project that lies in the temporary directory."""

    def run(settings, *arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": f"{tmp_path}:{ROOT}",
                "DJANGO_SETTINGS_MODULE": settings,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def shop(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("worker", ["shop.settings.worker", "worker_settings"])
def test_a_worker_with_settings_of_its_own_runs_what_the_web_enqueues(shop, python, worker):
    python("shop.settings.web", "-m", "django", "migrate", "-v", "0")
    python("shop.settings.web", "-c", ENQUEUE)
    assert python(worker, "-c", WORK) == "acked"


def test_two_new_projects_are_two_sites(python, tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}_project").mkdir()
        python("", "-m", "django", "startproject", name, f"{name}_project")
        code = f"import sys; sys.path.insert(0, '{name}_project'); {SITE}"
        assert python(f"{name}.settings", "-c", code) == name
