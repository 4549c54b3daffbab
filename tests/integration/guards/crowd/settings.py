"""The test project with the handlers of this folder; CROWD_JOBS holds its DJANGO_JOBS."""

import json
import os

from testproject.settings import *  # noqa: F403 - that is how one derives settings
from testproject.settings import DATABASES as BOTH
from testproject.settings import INSTALLED_APPS as OF_THE_PROJECT

DATABASES = {"default": BOTH["default"]}  # the other one is not there in every run
INSTALLED_APPS = [*OF_THE_PROJECT, "tests.integration.guards.crowd"]
DJANGO_JOBS = json.loads(os.environ.get("CROWD_JOBS", "{}"))
