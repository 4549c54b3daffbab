"""A site whose jobs are carried by a second database, as if that were a broker."""

import pytest

from django_jobs.backends.registry import backends

BROKER = {
    "BACKEND": "django_jobs.backends.database.DatabaseBackend",
    "OPTIONS": {"DATABASE": "other"},
}


@pytest.fixture
def broker(settings):
    """Configures the site; returns the backend. Keywords: what is said of it in BACKENDS."""

    def configure(queues=None, site=None, **said):
        settings.DJANGO_JOBS = {
            "BACKENDS": {"broker": {**BROKER, **said}},
            "DEFAULT_BACKEND": "broker",
            "QUEUES": queues or {},
            **(site or {}),
        }
        return backends["broker"]

    return configure
