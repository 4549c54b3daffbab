"""The gang's settings with handlers that end in odd ways, and a log that tells its keys."""

from tests.integration.worker.pool.wreck.settings import *  # noqa: F403 - that is how one derives settings
from tests.integration.worker.pool.wreck.settings import INSTALLED_APPS as OF_THE_WRECK
from tests.integration.worker.pool.wreck.settings import LOGGING as LOGGED

INSTALLED_APPS = [*OF_THE_WRECK, "tests.integration.worker.pool.odd"]
LOGGING = {**LOGGED, "loggers": {"django_jobs": {"handlers": ["told"], "level": "DEBUG"}}}
