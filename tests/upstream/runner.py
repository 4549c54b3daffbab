"""A test runner for tests that leave connections behind in threads of their event loops."""

from django.db import connection
from django.test.runner import DiscoverRunner


class Runner(DiscoverRunner):
    def teardown_databases(self, old_config, **kwargs):
        if connection.vendor == "postgresql":  # the others drop a database that is in use
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        super().teardown_databases(old_config, **kwargs)
