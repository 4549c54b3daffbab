"""The test project with the handlers of this folder; LABOUR_JOBS holds its DJANGO_JOBS."""

import json
import os

from testproject.settings import *  # noqa: F403 - that is how one derives settings
from testproject.settings import DATABASES as BOTH
from testproject.settings import INSTALLED_APPS as OF_THE_PROJECT

DATABASES = {"default": BOTH["default"]}  # the other one is not there in every run
INSTALLED_APPS = [*OF_THE_PROJECT, "tests.integration.worker.labour"]
DJANGO_JOBS = json.loads(os.environ.get("LABOUR_JOBS", "{}"))
