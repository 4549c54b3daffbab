"""The test project; FUZZ_JOBS holds its DJANGO_JOBS."""

import json
import os

from testproject.settings import *  # noqa: F403 - that is how one derives settings
from testproject.settings import DATABASES as BOTH

DATABASES = {"default": BOTH["default"]}  # the other one is not there in every run
DJANGO_JOBS = json.loads(os.environ.get("FUZZ_JOBS", "{}"))
