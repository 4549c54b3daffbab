"""The gang's settings with handlers that break things, and a log that tells its keys."""

import os

from tests.integration.worker.pool.gang.settings import *  # noqa: F403 - that is how one derives settings
from tests.integration.worker.pool.gang.settings import INSTALLED_APPS as OF_THE_GANG

INSTALLED_APPS = [*OF_THE_GANG, "tests.integration.worker.pool.wreck"]
LOGGING = {
    "version": 1,
    "formatters": {
        "keys": {
            "format": "%(levelname)s [%(key)s] %(message)s",
            "defaults": {"key": "-"},
        }
    },
    "handlers": {"told": {"class": "logging.StreamHandler", "formatter": "keys"}},
    "loggers": {"django_jobs": {"handlers": ["told"], "level": "INFO"}},
}

if "WRECK_SABOTAGE" in os.environ:
    from tests.integration.worker.pool.wreck import sabotage

    sabotage.prepare(os.environ["WRECK_SABOTAGE"], os.environ["WRECK_TALLY"])
