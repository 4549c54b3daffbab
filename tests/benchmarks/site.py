"""The test project as a benchmark's worker sees it; BENCH_JOBS holds its DJANGO_JOBS."""

import json
import os

from testproject.settings import *  # noqa: F403 - that is how one derives settings
from testproject.settings import DATABASES as BOTH
from testproject.settings import INSTALLED_APPS as OF_THE_PROJECT

DATABASES = {"default": BOTH["default"]}
INSTALLED_APPS = [*OF_THE_PROJECT, "tests.benchmarks"]
DJANGO_JOBS = json.loads(os.environ.get("BENCH_JOBS", "{}"))
