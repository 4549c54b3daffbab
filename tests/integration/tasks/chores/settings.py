"""The test project with these tasks; CHORES_JOBS holds its DJANGO_JOBS, CHORES_TASKS its TASKS."""

import json
import os

from testproject.settings import *  # noqa: F403 - that is how one derives settings
from testproject.settings import DATABASES as BOTH
from testproject.settings import INSTALLED_APPS as OF_THE_PROJECT
from testproject.settings import TASKS as OF_OURS

DATABASES = {"default": BOTH["default"]}  # the other one is not there in every run
INSTALLED_APPS = [*OF_THE_PROJECT, "tests.integration.tasks.chores"]
TASKS = json.loads(os.environ["CHORES_TASKS"]) if "CHORES_TASKS" in os.environ else OF_OURS
DJANGO_JOBS = json.loads(os.environ.get("CHORES_JOBS", "{}"))
