"""The disk under Redis's append-only file is full: enqueues raise, and nothing is lost."""

import signal
import subprocess
from collections import Counter

import pytest
import redis
from django.test import override_settings

from django_jobs import enqueue_many
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.registry import backends
from django_jobs.exceptions import EnqueueOutcomeUnknown, StoreUnavailable
from django_jobs.testing.factories import make_outgoing
from tests.integration.redis.conftest import WORKER, jobs_in
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang
from tests.redis_servers import Server

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]

SIZE = "4m"
BLOCK = b"x" * 4096


class Disk:
    """A small file system of its own, for a server's folder."""

    def __init__(self, folder):
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self):
        """Until it takes nothing more."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while file.write(BLOCK) == len(BLOCK):
                    pass
            except OSError:
                return

    def clear(self):
        self._ballast.unlink()


@pytest.fixture
def make_server():
    """Makes one server whose folder is a file system of four megabytes, and says which that is."""
    made = []

    def make(*options):
        server = Server(*options)
        made.append(server)
        # By a shell, which says so too where there is no such program.
        command = ["sh", "-c", f'mount -t tmpfs -o size={SIZE} tmpfs "$0"', str(server.folder)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            server.end()
            made.clear()
            pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
        return server.start(), Disk(server.folder)

    yield make
    for server in made:
        server.kill()
        subprocess.run(["umount", str(server.folder)], check=True)
        server.end()


def refuses_to_write(server):
    """Whether the server has noticed, which takes it something to write."""
    with server.client as client:
        try:
            client.set("more", BLOCK * 4)
        except redis.ResponseError:
            return client.info("persistence")["aof_last_write_status"] == "err"
    return False


def test_a_worker_goes_on_when_the_disk_has_room_again(make_server, start, diary):
    server, disk = make_server("--appendfsync", "everysec")
    settings = jobs_in(server)
    with override_settings(DJANGO_JOBS={**WORKER, **settings}):
        enqueue_many([gang.nap.prepare(str(diary), 0.05, f"n{number}") for number in range(60)])
        pool = start("-v0", **settings, LEASE_SECONDS=6)
        until(lambda: len(diary.words) >= 20)
        disk.fill()
        until(lambda: refuses_to_write(server))
        with pytest.raises(StoreUnavailable, match="MISCONF") as refused:
            gang.nap.enqueue(str(diary), 0.05, "refused")
        assert refused.value.undone
        until(lambda: "MISCONF" in pool.said)
        disk.clear()
        server.until(lambda client: client.set("more", "nothing"))
        gang.nap.enqueue(str(diary), 0.05, "n60")
        until(lambda: backends["redis"].queues() == [], patience=60.0)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    ended = Counter(word for word in diary.words if word.endswith("-ends"))
    assert set(ended) == {f"n{number}-ends" for number in range(61)}


def test_a_server_that_may_lose_nothing_ends_and_has_all_it_confirmed(make_server):
    # With "always" Redis ends rather than confirm what it could not write.
    server, disk = make_server("--appendfsync", "always")
    backend = RedisBackend("redis", {"URL": server.url, "TIMEOUT": 2.0})
    confirmed, unknown = [], []

    def is_refused():
        message = make_outgoing(backend="redis")
        try:
            confirmed.extend(one.id for one in backend.enqueue([message]))
        except EnqueueOutcomeUnknown:
            unknown.append(message.id)
        except StoreUnavailable:
            return True
        return False

    assert not is_refused()
    disk.fill()
    until(is_refused)
    assert server.process.wait(timeout=20) != 0
    disk.clear()
    server.start()
    found = {lease.id for lease in backend.fetch(["default"], 1000, 30.0)}
    assert set(confirmed) <= found <= {*confirmed, *unknown}
    assert len(unknown) <= 1, "after the first that is unknown nothing is served"
    assert not is_refused()
