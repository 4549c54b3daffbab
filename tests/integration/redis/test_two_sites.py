"""Two sites on one server: with a prefix each, or the second one is refused."""

import contextlib
import io
import json
import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import override_settings
from redis import Redis, ResponseError

from django_jobs import job
from django_jobs.backends.base import Settled
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.registry import backends
from django_jobs.exceptions import PrefixInUse, PushFailed, StoreUnavailable
from django_jobs.models import FailedJob, OutboxJob
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker import process_once
from tests.integration.redis.conftest import WORKER, jobs_in
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang
from tests.redis_servers import cluster

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]

KEY = "{django_jobs}:3:site"
WAYS_OUT = (
    "the keys with the prefix 'django_jobs' on this Redis are in use by the site 'testproject', "
    "and this one is 'other': give it a prefix of its own (OPTIONS['PREFIX']), or set SITE back "
    "to that name; where the site was renamed and nothing runs under the old name, hand the keys "
    "over: redis-cli DEL '{django_jobs}:3:site'"
)


@job(key="tests.two_sites.nothing")
def nothing():
    """It does nothing."""


def everything(client):
    """All that a server has."""
    return {key: client.dump(key) for key in client.scan_iter(count=1000)}


@pytest.fixture
def first(jobs):
    """The jobs of the site that came first, all of which still wait."""
    return [nothing.using(unique_key="nightly").enqueue(), nothing.enqueue()]


@pytest.fixture
def other(jobs, first):
    """Settings of another site with the same prefix, in force here."""
    settings = {**WORKER, **jobs, "SITE": "other"}
    with override_settings(DJANGO_JOBS=settings):
        yield settings


def test_a_second_site_is_refused_and_touches_nothing(server, other, first):
    before = everything(server.client)
    backend = backends["redis"]
    for ask in (
        lambda: nothing.using(unique_key="nightly").enqueue(),
        process_once,
        backend.reap_expired,
        backend.clean_up,
        backend.queues,
        lambda: backend.stats("default"),
        lambda: backend.cancel(first[0].id),
        lambda: backend.forget_rate("default"),
        lambda: backend.wait(None, 0.01),
        lambda: call_command("jobs_list"),
        lambda: call_command("jobs_explain", first[0].id),
        lambda: call_command("jobs_cancel", first[0].id),
        lambda: call_command("jobs_reap"),
        lambda: call_command("jobs_enqueue", nothing.key, '{"args": [], "kwargs": {}}'),
    ):
        with pytest.raises((PrefixInUse, CommandError)) as refused:
            ask()
        assert WAYS_OUT in str(refused.value)
    assert everything(server.client) == before
    assert not FailedJob.objects.exists()


def test_the_refusal_says_that_nothing_was_stored(other):
    with pytest.raises(StoreUnavailable) as refused:
        nothing.enqueue()
    assert refused.value.undone
    with pytest.raises(PushFailed, match="in use by the site 'testproject'"), transaction.atomic():
        nothing.enqueue()


def test_the_first_site_goes_on_beside_one_that_is_refused(jobs, other, first):
    with pytest.raises(PrefixInUse):
        process_once()
    with override_settings(DJANGO_JOBS=jobs):
        assert [process_once().status for _ in range(3)] == ["acked", "acked", "empty"]


def test_sites_with_a_prefix_each_share_a_server(server, jobs, first):
    own = jobs_in(server, PREFIX="other")
    with override_settings(DJANGO_JOBS={**own, "SITE": "other"}):
        mine = nothing.using(unique_key="nightly").enqueue()
        assert mine.id != first[0].id
        assert [process_once().status for _ in range(2)] == ["acked", "empty"]
    assert [one.status for one in first] == ["ready", "ready"]


def test_a_site_may_have_several_prefixes(server):
    server.client.flushall()
    for prefix in ("one", "two"):
        with override_settings(DJANGO_JOBS=jobs_in(server, PREFIX=prefix)):
            nothing.enqueue()
            assert process_once().status == "acked"


@pytest.mark.parametrize("options", [["--processes", "0"], ["--skip-checks"]])
def test_a_worker_of_another_site_does_not_begin(start, jobs, first, options):
    pool = start("-v0", *options, processes=None, **jobs, SITE="other")
    assert pool.ended() == 1
    assert pool.said.count(WAYS_OUT) == (1 if "--skip-checks" in options else 2), pool.said
    assert "Traceback" not in pool.said
    assert [one.status for one in first] == ["ready", "ready"]


def test_the_checks_and_preflight_name_both_sites_and_the_ways_out(other):
    (warning,) = backends["redis"].check()
    assert (warning.id, WAYS_OUT in warning.msg) == ("django_jobs.W061", True)
    said = io.StringIO()
    with pytest.raises(SystemExit, match="1"):
        call_command("jobs_preflight", "--json", stdout=said)
    findings = json.loads(said.getvalue())["findings"]
    named = {one["what"]: one for one in findings if WAYS_OUT in one["text"]}
    assert {what: one["state"] for what, one in named.items()} == {
        "check": "warning",
        "backend": "failed",
        "messages": "warning",
    }


def test_a_check_takes_no_keys(server, jobs):
    server.client.flushall()
    assert backends["redis"].check() == []
    assert server.client.keys("*") == []


def test_sites_are_compared_once_and_not_at_each_enqueue(server, jobs):
    def asked():
        told = server.client.info("commandstats")
        return told.get("cmdstat_get", {"calls": 0})["calls"]

    backend = backends["redis"]
    backend.enqueue([make_outgoing(backend="redis")])
    before = asked()
    for _ in range(20):
        backend.enqueue([make_outgoing(backend="redis")])
        backend.ack(backend.fetch(["default"], 1, 30.0))
        backend.wait(["default"], 0)
    assert asked() == before


def test_keys_are_handed_over_to_a_site_that_was_renamed(server, other, first):
    with pytest.raises(PrefixInUse):
        nothing.enqueue()
    assert server.client.delete(KEY) == 1  # as the message says
    mine = nothing.enqueue()
    assert server.client.get(KEY) == b"other"
    assert mine.status == "ready"
    assert [backends["redis"].find(one.id).queue for one in first] == ["default", "default"]


def test_what_waits_in_an_outbox_for_keys_of_another_site_is_moved_when_they_are_its_own(
    server, jobs, first, caplog
):
    redis = {**jobs["BACKENDS"]["redis"], "OUTBOX": True}
    settings = {**jobs, "BACKENDS": {"redis": redis}, "SITE": "other"}
    with override_settings(DJANGO_JOBS=settings):
        handle = nothing.enqueue()
        for _ in range(15):  # more tries than a job gets that is refused for good
            with pytest.raises(PrefixInUse):
                process_once()
        assert OutboxJob.objects.filter(job_id=handle.id).exists()
        assert not FailedJob.objects.exists()
    own = {"BACKEND": redis["BACKEND"], "OUTBOX": True}
    own["OPTIONS"] = {**redis["OPTIONS"], "PREFIX": "other"}
    with override_settings(DJANGO_JOBS={**settings, "BACKENDS": {"redis": own}}):
        assert [process_once().status for _ in range(2)] == ["acked", "empty"]
    assert not OutboxJob.objects.exists()


def test_a_worker_waits_while_its_keys_are_another_sites(own_server, own_jobs, start, diary):
    client = own_server.client
    pool = start("--processes", "1", processes=None, **own_jobs)
    gang.note.enqueue(str(diary), "before")
    until(lambda: "before" in diary.words)
    client.flushall()  # as of a server that came back empty
    client.set(KEY, "other")

    def is_noticed():  # a connection that is idle when it is cut is renewed without an error
        client.client_kill_filter(_type="normal", skipme=True)
        return "in use by the site 'other'" in pool.said

    until(is_noticed)
    assert pool.process.poll() is None
    client.delete(KEY)
    gang.note.enqueue(str(diary), "after")
    until(lambda: "after" in diary.words)
    assert client.get(KEY) == b"testproject"


def test_after_an_outage_the_sites_are_compared_again(own_server, own_jobs):
    backend = backends["redis"]
    assert backend.stats("default").ready == 0
    own_server.kill()
    with pytest.raises(StoreUnavailable):
        backend.stats("default")
    for file in own_server.folder.glob("appendonlydir/*"):
        file.unlink()
    own_server.start()
    own_server.client.set(KEY, "other")
    with pytest.raises(PrefixInUse):
        backend.enqueue([make_outgoing(backend="redis")])
    assert own_server.client.keys("*") == [KEY.encode()]


def test_a_full_server_that_nobody_has_taken_yet_serves_its_workers(own_server, own_jobs):
    backend = backends["redis"]
    handle = nothing.enqueue()
    own_server.client.delete(KEY)  # as an earlier release left it
    own_server.client.config_set("maxmemory", 1)
    later = RedisBackend("redis", own_jobs["BACKENDS"]["redis"]["OPTIONS"])
    (lease,) = later.store.past_unreadable(
        ["default"], lambda some: later._claims._take(some, 1, 30.0, "t" * 32), none=[]
    )[0]
    assert (lease.id, later.ack([lease])) == (handle.id, [Settled.SETTLED])
    assert own_server.client.get(KEY) is None
    own_server.client.config_set("maxmemory", 0)
    assert RedisBackend("redis", backend.options).stats("default").ready == 0
    assert own_server.client.get(KEY) == b"testproject"


def test_a_site_that_came_while_the_server_was_busy_is_refused_afterwards(own_server, own_jobs):
    backends["redis"].enqueue([make_outgoing(backend="redis")])
    client = own_server.client
    client.config_set("busy-reply-threshold", 1)
    endless = threading.Thread(target=_runs_until_it_is_killed, args=[own_server.url])
    endless.start()
    try:
        until(lambda: _is_busy(client))
        with override_settings(DJANGO_JOBS={**WORKER, **own_jobs, "SITE": "other"}):
            late = RedisBackend("redis", own_jobs["BACKENDS"]["redis"]["OPTIONS"])
            with pytest.raises(StoreUnavailable, match="BUSY"):
                late.stats("default")
            client.script_kill()
            endless.join()
            with pytest.raises(PrefixInUse):
                late.fetch(["default"], 1, 30.0)
    finally:
        with contextlib.suppress(ResponseError):
            client.script_kill()
        endless.join()


def _runs_until_it_is_killed(url):
    with Redis.from_url(url) as client, contextlib.suppress(ResponseError):
        client.eval("while true do end", 0)


def _is_busy(client):
    try:
        client.get(KEY)
    except ResponseError as error:
        return str(error).startswith("BUSY")
    return False


def test_a_key_of_another_type_in_its_place_ends_nothing(server, jobs):
    server.client.rpush(KEY, "x")
    handle = nothing.enqueue()
    assert process_once().status == "acked"
    assert handle.status == "succeeded"
    assert backends["redis"].check() == []


def test_in_a_cluster_queues_go_on_while_the_server_of_that_key_is_away():
    with cluster() as servers:
        for server in servers:
            server.client.config_set("cluster-require-full-coverage", "no")
        options = {"URL": servers[0].url, "CLUSTER": True, "TIMEOUT": 1.0}
        backend = RedisBackend("redis", options)
        client, layout = backend.store.connection.client, backend.store.layout
        home = client.get_node_from_key(layout.site).port
        names = [f"queue-{number}" for number in range(30)]
        ports = {name: client.get_node_from_key(layout.base(name)).port for name in names}
        elsewhere = [name for name in names if ports[name] != home]
        backend.enqueue([make_outgoing(name, backend="redis") for name in names])
        with override_settings(DJANGO_JOBS={"SITE": "other"}), pytest.raises(PrefixInUse):
            RedisBackend("redis", options).stats(elsewhere[0])
        late = RedisBackend("redis", options)
        assert late.store.connection.client.ping()  # and it has not compared anything yet
        next(one for one in servers if one.port == home).kill()
        for one in (backend, late):
            assert [one.stats(name).ready for name in elsewhere] == [1] * len(elsewhere)
