"""Nothing that is not public is connected to, however it is written or resolved."""

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from django_jobs.conf import UrlEntry
from django_jobs.exceptions import UrlRefused
from django_jobs.handlers.url.addresses import addresses_of
from django_jobs.handlers.url.allow_list import UrlRule
from django_jobs.handlers.url.http import Deadline
from django_jobs.handlers.url.url import Target
from tests.unit.handlers.url.conftest import LOOPBACK
from tests.unit.handlers.url.servers import OK, Canary, Nameserver, Server

GROUPS = json.loads(Path(__file__).with_name("hostile.json").read_text("utf-8"))
FLIPS = 100


@pytest.fixture
def port(allow, canary):
    """The canary's port, under the widest rules there are: every public host."""
    allow(f"http://*:{canary.port}/*", f"https://*:{canary.port}/*", "http://*/*", "https://*/*")
    return canary.port


def test_there_are_enough_hostile_urls_and_each_is_there_once():
    urls = [url for group in GROUPS.values() for url in group]
    assert len(urls) == len(set(urls)) >= 200


@pytest.mark.parametrize("group", GROUPS)
def test_a_hostile_url_is_refused_and_nobody_is_called(group, port, call, canary):
    reached = []
    for url in GROUPS[group]:
        try:
            call(url.replace("{port}", str(port)))
        except UrlRefused:
            continue
        reached.append(url)
    assert reached == []
    assert canary.heard() == 0


def test_the_canary_sings_when_it_is_called(allow, call, canary):
    allow(f"http://evil.example:{canary.port}/*", PRIVATE=[LOOPBACK], TIMEOUT=0.2)
    with pytest.raises(Exception, match=r"not done after|did not answer"):
        call(f"http://evil.example:{canary.port}/")
    assert canary.heard() == 1


PIECES = st.one_of(
    st.sampled_from(["http://", "HTTPS://", "//", "/", "\\", "@", ":", "?", "#", "%", "%2e", ".."]),
    st.sampled_from(["[", "]", "::1", "127.0.0.1", "0x7f.1", "2130706433", "::ffff:127.0.0.1"]),
    st.sampled_from(["localhost", "evil.example", "169.254.169.254", "①", "。", "{port}", "80"]),
    st.sampled_from(";,&\t\n\r\0 \u2028"),
)
SOME_HOST = st.one_of(
    st.ip_addresses(v=4).filter(lambda one: not one.is_global).map(str),
    st.ip_addresses(v=6).filter(lambda one: not one.is_global).map("[{}]".format),
    st.integers(0, 2**33).map(str),
    st.integers(0, 2**33).map(hex),
    st.integers(0, 2**33).map("0{:o}".format),
    st.text(max_size=20),
)


@given(
    url=st.one_of(
        st.lists(PIECES, max_size=9).map("".join),
        st.builds("http://{}:{{port}}/{}".format, SOME_HOST, st.text(max_size=10)),
        st.builds("http://{}{{port}}".format, st.lists(PIECES, max_size=6).map("".join)),
    ).filter(lambda url: len(url) < 2000)
)
@effort(
    max_examples=1000,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_generated_url_is_refused_and_nobody_is_called(url, port, call, canary):
    with pytest.raises(UrlRefused):
        call(url.replace("{port}", str(port)))
    assert canary.heard() == 0


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "127.0.0.1"],
        ["127.0.0.1", "93.184.216.34"],
        ["2606:4700::1", "::1"],
        ["93.184.216.34", "fe80::1%eth0"],
        ["2606:4700::1%lo"],
        ["93.184.216.34"] * 9 + ["10.0.0.1"],
    ],
    ids=str,
)
def test_one_bad_answer_of_several_refuses_the_name(answers, port, call, canary):
    with pytest.raises(UrlRefused, match="leads to an address that may not be called") as refused:
        call(f"http://evil.example:{port}/", resolve=lambda _name: answers)
    assert not any(one in str(refused.value) for one in answers)
    assert canary.heard() == 0


# ------------------------------------------------------------------------------ rebinding


def test_a_name_that_flips_between_public_and_loopback_is_asked_for_once():
    """What the one question was answered is what is checked, and what is connected to."""

    def flipping(count):
        return ["93.184.216.34" if count % 2 else "127.0.0.1"]

    rule = UrlRule.of(UrlEntry(url="http://*/*"))
    with Nameserver(flipping) as names:
        for turn in range(1, FLIPS + 1):
            if turn % 2:
                target = Target.parse("http://evil.example/")
                found = addresses_of(target, rule, names.resolve, Deadline(10))
                assert found == [ipaddress.ip_address("93.184.216.34")]
            else:
                with pytest.raises(UrlRefused):
                    addresses_of(
                        Target.parse("http://evil.example/"), rule, names.resolve, Deadline(10)
                    )
        assert names.queries == ["evil.example"] * FLIPS


def test_a_nameserver_that_flips_rebinds_no_call(allow, call):
    """127.0.0.2 stands for the address that may be called; on the other one sits a canary."""

    def flipping(count):
        return ["127.0.0.2" if count % 2 else "127.0.0.1"]

    with Server(OK, host="127.0.0.2") as server, Nameserver(flipping) as names:
        canary = Canary("127.0.0.1", server.port)
        allow(f"http://evil.example:{server.port}/*", PRIVATE=["127.0.0.2/32"])
        for turn in range(1, FLIPS + 1):
            if turn % 2:
                found = call(f"http://evil.example:{server.port}/", resolve=names.resolve)
                assert found["status"] == 200
            else:
                with pytest.raises(UrlRefused):
                    call(f"http://evil.example:{server.port}/", resolve=names.resolve)
        assert len(names.queries) == FLIPS
        assert len(server.requests) == FLIPS // 2
        assert canary.heard() == 0
        canary.close()


def test_a_rule_for_the_inside_calls_nothing_outside(allow, call):
    allow("http://api.test:80/*", PRIVATE=["10.1.2.0/24"])
    for address in ("93.184.216.34", "127.0.0.1", "10.1.3.1", "169.254.169.254"):
        with pytest.raises(UrlRefused):
            call("http://api.test/", resolve=lambda _name, one=address: [one])
