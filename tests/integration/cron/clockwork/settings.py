"""The test project with schedules, for schedulers that are processes of their own."""

import json
import os

from testproject.settings import *  # noqa: F403 - settings of settings
from testproject.settings import DATABASES as BOTH
from testproject.settings import INSTALLED_APPS as OF_THE_PROJECT

DATABASES = {"default": BOTH["default"]}  # the other one is not there in every run
INSTALLED_APPS = [*OF_THE_PROJECT, "tests.integration.cron.clockwork"]
_CHIME = {
    "HANDLER": "tests.integration.cron.clockwork.jobs.chime",
    "QUEUE": "clockwork",
    "TIMEZONE": "UTC",
}
DJANGO_JOBS = {
    "SCHEDULE_HANDLERS": ["tests.integration.cron.clockwork.jobs.chime"],
    "SCHEDULE": {
        "each-minute": {**_CHIME, "CRON": "* * * * *"},
        "each-fifth": {**_CHIME, "CRON": "*/5 * * * *"},
        "each-hour": {**_CHIME, "CRON": "0 * * * *", "DEPENDS_ON": ["each-minute"]},
        "never-now": {**_CHIME, "CRON": "0 0 29 2 *"},
    },
}
if os.environ.get("CLOCKWORK") == "seconds":
    DJANGO_JOBS["SCHEDULE"] = {
        "each-second": {**_CHIME, "CRON": "* * * * * *"},
        "inline": {
            "HANDLER": "tests.integration.cron.clockwork.jobs.inline_chime",
            "CRON": "* * * * * *",
        },
    }
elif os.environ.get("CLOCKWORK") == "long":
    DJANGO_JOBS["SCHEDULE"] = {
        "long": {
            "HANDLER": "tests.integration.cron.clockwork.jobs.inline_long",
            "CRON": "* * * * * *",
            "OVERLAP": "skip",
        },
    }
    if os.environ.get("CLOCKWORK_GATE"):
        DJANGO_JOBS["SCHEDULE"]["gated"] = {
            **_CHIME,
            "CRON": "* * * * * *",
            "WHEN": "tests.integration.cron.clockwork.jobs.hangs_beside_a_long_job",
        }
if wrong := os.environ.get("CLOCKWORK_WRONG"):
    DJANGO_JOBS["SCHEDULE"] = {
        "bell": {**_CHIME, "CRON": "* * * * *", **json.loads(wrong)},
        "gong": {**_CHIME, "CRON": "* * * * *", "DEPENDS_ON": ["bell"]},
    }
