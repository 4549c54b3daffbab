"""What the settings of tests point at: backends, policies, handlers and a router."""

import threading

from django.core.checks import Info

from django_jobs.backends.base import Backend
from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.memory import MemoryBackend

COMPLAINTS = [Info("The moon is full.", hint="Wait.", id="tests.I001")]
NOT_CALLABLE = 5


class OwnBroker(Backend):
    """Only its place in the family tree matters."""

    enqueue = fetch = ack = nack = abandon = renew = reap_expired = stats = None


class OwnMemory(MemoryBackend):
    pass


class OwnDatabase(DatabaseBackend):
    pass


class Complaining(OwnBroker):
    def check(self):
        return COMPLAINTS


class Broken(OwnBroker):
    def stats(self, queue):
        raise OSError("the cable is cut")


class Stuck(OwnBroker):
    goes_on = threading.Event()

    def stats(self, queue):
        self.goes_on.wait()


class NeedsUrl(OwnBroker):
    def __init__(self, alias, options):
        raise KeyError(f"no URL in {options}")


class NotABackend:
    pass


class Policy:
    def delay(self, retry_number):
        return 1.0


class NeedyPolicy(Policy):
    def __init__(self, base):
        self.base = base


class EverythingToOther:
    def db_for_read(self, model, **hints):
        return "other"

    db_for_write = db_for_read


class NothingMigrates:
    def allow_migrate(self, db, app_label, **hints):
        return False


class _Handler:
    key = "x"

    def handle(self, context):
        return None


POLICY_OBJECT = Policy()
HANDLER_OBJECT = _Handler()


def a_function():
    return None
