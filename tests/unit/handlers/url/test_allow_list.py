"""ALLOWED_URLS: what an entry covers, what it lets through, and what is no entry."""

import pytest

from django_jobs.conf import UrlEntry, read
from django_jobs.exceptions import ConfigurationError, UrlRefused
from django_jobs.handlers.url.allow_list import (
    UrlRule,
    WrongEntry,
    rule_for,
    rules_of,
)
from django_jobs.handlers.url.request import Request
from django_jobs.handlers.url.url import Target


def rule(url="https://a.test/*", **keys):
    return UrlRule.of(UrlEntry(url=url, **keys))


def request(url="https://a.test/", method="GET", **more):
    return Request.of({"method": method, "url": url, **more})


@pytest.mark.parametrize(
    ("entry", "url", "covered"),
    [
        ("https://a.test/hook", "https://a.test/hook", True),
        ("https://a.test/hook", "https://A.TEST.:443/hook?x=1", True),
        ("https://a.test/hook", "https://a.test/hook/", False),
        ("https://a.test/hook", "https://a.test/hooks", False),
        ("https://a.test/hook", "https://a.test/", False),
        ("https://a.test/hook", "http://a.test/hook", False),
        ("https://a.test/hook", "https://a.test:8443/hook", False),
        ("https://a.test/hook", "https://b.a.test/hook", False),
        ("https://a.test/hook", "https://a.test.b/hook", False),
        ("https://a.test/hooks/*", "https://a.test/hooks/", True),
        ("https://a.test/hooks/*", "https://a.test/hooks/1/2?3", True),
        ("https://a.test/hooks/*", "https://a.test/hooks", False),
        ("https://a.test/hooks/*", "https://a.test/hooksx", False),
        ("https://a.test/hooks/*", "https://a.test/x/hooks/", False),
        ("https://a.test/*", "https://a.test", True),
        ("https://a.test/*", "https://a.test/x", True),
        ("https://a.test/", "https://a.test/x", False),
        ("https://A.test:8443/*", "https://a.test:8443/x", True),
        ("http://a.test/*", "http://a.test:80/x", True),
        ("https://*/*", "https://anything.test/x", True),
        ("https://*/*", "https://93.184.216.34/x", True),
        ("https://*/*", "http://anything.test/x", False),
        ("https://*/*", "https://anything.test:8443/x", False),
        ("HTTPS://*/hook", "https://anything.test/hook", True),
        ("https://*/hook", "https://anything.test/hook2", False),
        ("https://*:8443/*", "https://anything.test:8443/x", True),
        ("https://[2606:4700::1]/*", "https://[2606:4700:0::1]/x", True),
        ("https://münchen.test/*", "https://xn--mnchen-3ya.test/", True),
    ],
)
def test_an_entry_covers_what_it_says(entry, url, covered):
    assert rule(entry).covers(Target.parse(url)) is covered


def test_an_entry_that_says_no_more_lets_plain_requests_through():
    allowed = rule()
    for method in ("GET", "HEAD", "POST"):
        assert allowed.refusal(request(method=method)) == ""
    for method in ("DELETE", "OPTIONS", "PATCH", "PUT"):
        assert allowed.refusal(request(method=method)) == f"METHODS do not name {method}"
    plain = {"accept": "a", "Accept-Language": "de", "CONTENT-TYPE": "b", "User-Agent": "c"}
    assert allowed.refusal(request(headers=plain)) == ""
    assert allowed.refusal(request(headers={"X-A": "1"})) == "HEADERS do not name X-A"
    assert (allowed.redirects, allowed.max_bytes, allowed.timeout) == (0, 65_536, 30)
    assert (allowed.private, allowed.ca_file) == ((), None)


def test_an_entry_names_methods_and_headers():
    allowed = rule(methods=("PUT",), headers=("X-A",))
    assert allowed.refusal(request(method="PUT", headers={"x-a": "1", "Accept": "b"})) == ""
    assert allowed.refusal(request(method="GET"))
    assert allowed.refusal(request(method="PUT", headers={"X-A": "1", "X-B": "2"}))


def test_an_entry_keeps_its_numbers(authority):
    allowed = rule(max_bytes=5, redirects=2, timeout=1.5, ca_file=str(authority.file))
    assert (allowed.max_bytes, allowed.redirects, allowed.timeout) == (5, 2, 1.5)
    assert allowed.ca_file == str(authority.file)


def test_the_first_entry_that_lets_a_request_through_counts():
    first, second = rule(methods=("GET",), max_bytes=1), rule(methods=("GET", "PUT"), max_bytes=2)
    assert rule_for(request(), [rule("https://b.test/*"), first, second]) is first
    assert rule_for(request(method="PUT"), [first, second]) is second


def test_a_request_that_no_entry_lets_through_is_told_why():
    with pytest.raises(UrlRefused) as refused:
        rule_for(request("https://a.test/secret", "PUT"), [rule(), rule(methods=("POST",))])
    assert str(refused.value) == (
        "no entry of ALLOWED_URLS allows this call of https://a.test: its METHODS do not name PUT"
    )
    with pytest.raises(UrlRefused) as refused:
        rule_for(request("https://b.test/secret"), [rule()])
    assert str(refused.value) == "no entry of ALLOWED_URLS allows this call of https://b.test"


@pytest.mark.parametrize(
    ("url", "keys", "allowed"),
    [
        ("https://93.184.216.34/", {}, True),
        ("https://10.1.2.3/", {}, False),
        ("https://10.1.2.3/", {"private": ("10.1.2.0/24",)}, True),
        ("https://10.1.3.3/", {"private": ("10.1.2.0/24",)}, False),
        ("https://[::ffff:93.184.216.34]/", {}, False),
    ],
)
def test_an_address_in_the_url_is_judged_when_the_job_is_enqueued(url, keys, allowed):
    rules = [rule(f"{url}*", **keys)]
    if allowed:
        assert rule_for(request(url), rules) is rules[0]
        return
    with pytest.raises(UrlRefused, match="is not one that may be called"):
        rule_for(request(url), rules)


WRONG = [
    ("URL", {"url": "https://a.test"}),
    ("URL", {"url": "https://a.test:8443"}),
    ("URL", {"url": "a.test/*"}),
    ("URL", {"url": "ftp://a.test/*"}),
    ("URL", {"url": "*://a.test/*"}),
    ("URL", {"url": "https://"}),
    ("URL", {"url": "https://*"}),
    ("URL", {"url": "https://*.a.test/*"}),
    ("URL", {"url": "https://*a.test/*"}),
    ("URL", {"url": "https://a.*/*"}),
    ("URL", {"url": "https://a.test:*/*"}),
    ("URL", {"url": "https://a.test/*/x"}),
    ("URL", {"url": "https://a.test/x*"}),
    ("URL", {"url": "https://a.test/**"}),
    ("URL", {"url": "https://a.test/*/*"}),
    ("URL", {"url": "https://a.test/x?y"}),
    ("URL", {"url": "https://a.test/?"}),
    ("URL", {"url": "https://a.test/x?*"}),
    ("URL", {"url": "https://a.test/x#y"}),
    ("URL", {"url": "https://a.test/../*"}),
    ("URL", {"url": "https://127.1/*"}),
    ("METHODS", {"methods": ()}),
    ("METHODS", {"methods": ("GET", "CONNECT")}),
    ("METHODS", {"methods": ("get",)}),
    ("METHODS", {"methods": ("TRACE",)}),
    ("HEADERS", {"headers": ("Host",)}),
    ("HEADERS", {"headers": ("X-A", "Content_Length")}),
    ("HEADERS", {"headers": ("Proxy-Authorization",)}),
    ("HEADERS", {"headers": ("X A",)}),
    ("PRIVATE", {"private": ("8.8.8.0/24",)}),
    ("PRIVATE", {"private": ("10.0.0.0/8", "169.254.169.254/32")}),
    ("PRIVATE", {"private": ("localhost",)}),
    ("PRIVATE", {"url": "https://*/*", "private": ("10.0.0.0/8",)}),
    ("PRIVATE", {"url": "https://*:8443/x", "private": ("10.0.0.0/8",)}),
    ("CA_FILE", {"ca_file": "/no/such/file.pem"}),
    ("CA_FILE", {"ca_file": __file__}),
    ("CA_FILE", {"ca_file": "a\0b"}),
]


@pytest.mark.parametrize(("key", "entry"), WRONG, ids=[str(entry) for _, entry in WRONG])
def test_an_entry_that_means_nothing_is_refused(key, entry):
    with pytest.raises(WrongEntry) as wrong:
        rule(**entry)
    assert wrong.value.key == key
    assert str(wrong.value) == f"{wrong.value.what}. {wrong.value.hint}"
    assert wrong.value.hint.endswith(".")


def test_an_entry_with_a_query_is_told_so():
    with pytest.raises(WrongEntry, match="the url has a query"):
        rule("https://a.test/x?y")


def test_an_entry_may_name_every_method():
    every = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
    assert rule(methods=every).methods == frozenset(every)


def test_a_wrong_entry_keeps_every_call_from_being_made():
    entries = ["https://a.test/*", "https://b.test"]
    settings, problems = read({"ALLOWED_URLS": entries}, secret_key="k" * 40)
    assert problems == []
    with pytest.raises(ConfigurationError, match=r"ALLOWED_URLS\[1\] cannot be understood"):
        rules_of(settings)


def test_the_rules_of_a_site_are_its_entries_in_order():
    settings, _ = read({"ALLOWED_URLS": ["https://a.test/*", {"URL": "http://b.test/x"}]})
    assert [found.path for found in rules_of(settings)] == ["/", "/x"]
    assert rules_of(settings) is rules_of(settings)
