"""The test project with the handlers of this folder; GANG_JOBS holds its DJANGO_JOBS."""

import json
import os
import socket

from django_jobs.worker.pool import deadlines
from testproject.settings import *  # noqa: F403 - that is how one derives settings
from testproject.settings import DATABASES as BOTH
from testproject.settings import INSTALLED_APPS as OF_THE_PROJECT
from tests.integration.worker.pool.gang import parting
from tests.integration.worker.pool.gang.haunting import haunt_children

DATABASES = {"default": BOTH["default"]}  # the other one is not there in every run
if os.environ.get("GANG_LOST_DATABASE"):
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "/nowhere/at/all"}}
INSTALLED_APPS = [*OF_THE_PROJECT, "tests.integration.worker.pool.gang"]
DJANGO_JOBS = json.loads(os.environ.get("GANG_JOBS", "{}"))
if os.environ.get("GANG_SILENT"):  # a test waits for it
    deadlines.SILENT_SECONDS = deadlines.BIRTH_SECONDS = float(os.environ["GANG_SILENT"])
if os.environ.get("GANG_PARTS"):
    parting.prepare(os.environ["GANG_PARTS"], os.environ["GANG_DIARY"])
if os.environ.get("GANG_HAUNTS"):
    haunt_children(os.environ["GANG_HAUNTS"])
if os.environ.get("GANG_LOUD"):
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"keyed": {"format": "%(key)s %(message)s"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "keyed"}},
        "loggers": {"django_jobs": {"handlers": ["console"], "level": "INFO"}},
    }
if os.environ.get("GANG_THREAD"):
    INSTALLED_APPS.append("tests.integration.worker.pool.threaded.apps.Threaded")
if os.environ.get("GANG_LISTENS"):
    INSTALLED_APPS.append("tests.integration.worker.pool.listening.apps.Listening")
if os.environ.get("GANG_SOCKET_TIMEOUT"):
    socket.setdefaulttimeout(float(os.environ["GANG_SOCKET_TIMEOUT"]))
