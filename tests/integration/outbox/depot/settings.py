"""The test project with the handlers of this folder; DEPOT_JOBS holds its DJANGO_JOBS."""

import json
import os

from testproject.settings import *  # noqa: F403 - that is how one derives settings
from testproject.settings import INSTALLED_APPS as OF_THE_PROJECT

INSTALLED_APPS = [*OF_THE_PROJECT, "tests.integration.outbox.depot"]
DJANGO_JOBS = json.loads(os.environ.get("DEPOT_JOBS", "{}"))
