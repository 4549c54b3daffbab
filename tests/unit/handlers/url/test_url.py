"""One parse: what comes out is what is compared, resolved, connected to and sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.exceptions import UrlRefused
from django_jobs.handlers.url.url import MAX_URL, Host, Target


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path", "query"),
    [
        ("https://a.example", "https", "a.example", 443, "/", None),
        ("HTTP://A.Example/", "http", "a.example", 80, "/", None),
        ("https://a.example.:443/x", "https", "a.example", 443, "/x", None),
        ("https://a.example:1/", "https", "a.example", 1, "/", None),
        ("https://a.example:65535?", "https", "a.example", 65535, "/", ""),
        ("http://a.example/b/%2F//;c=1?d=/?&e", "http", "a.example", 80, "/b/%2F//;c=1", "d=/?&e"),
        ("http://a.example/a..b/.c/d.", "http", "a.example", 80, "/a..b/.c/d.", None),
        ("http://93.184.216.34./", "http", "93.184.216.34", 80, "/", None),
        ("http://[2606:4700:0::1]:8080/", "http", "2606:4700::1", 8080, "/", None),
        ("http://[2606:4700::ABCD]/", "http", "2606:4700::abcd", 80, "/", None),
        ("https://münchen.example/", "https", "xn--mnchen-3ya.example", 443, "/", None),
        ("https://MünCHEN.example/", "https", "xn--mnchen-3ya.example", 443, "/", None),
        ("https://_a-b.c_d.example/", "https", "_a-b.c_d.example", 443, "/", None),
        ("https://0x7f.example/", "https", "0x7f.example", 443, "/", None),
        ("https://a.0xg/", "https", "a.0xg", 443, "/", None),
        ("https://1a/", "https", "1a", 443, "/", None),
        (f"https://{'a' * 63}.example/", "https", f"{'a' * 63}.example", 443, "/", None),
        ("https://a/!$&'()*+,;=:@-._~%20", "https", "a", 443, "/!$&'()*+,;=:@-._~%20", None),
    ],
)
def test_a_url_is_read(url, scheme, host, port, path, query):
    target = Target.parse(url)
    assert (target.scheme, target.host.name, target.port) == (scheme, host, port)
    assert (target.path, target.query) == (path, query)
    assert target.origin == (scheme, host, port)


@pytest.mark.parametrize(
    ("url", "shown", "asked"),
    [
        ("https://A.example:443/b?c", "https://a.example", "/b?c"),
        ("http://a.example:443/?", "http://a.example:443", "/?"),
        ("https://[2606:4700::1]:80/b", "https://[2606:4700::1]:80", "/b"),
        ("http://[2606:4700::1]:80", "http://[2606:4700::1]", "/"),
    ],
)
def test_a_target_is_shown_without_its_path_and_asked_for_with_it(url, shown, asked):
    target = Target.parse(url)
    assert str(target) == shown
    assert target.authority == shown.partition("://")[2]
    assert target.in_request == asked
    assert target.url == shown + asked
    assert Target.parse(target.url) == target


REFUSED = [
    ("ftp://a/", "http://"),
    ("a.example/", "http://"),
    ("https:/a", "http://"),
    ("https", "http://"),
    ("https://a@b/", "user name"),
    ("https://a/@", None),
    ("https://a/#b", "fragment"),
    ("https://a?b#c", "fragment"),
    ("https://a:b/", "port"),
    ("https://a:/", "port"),
    ("https://a:0/", "port"),
    ("https://a:01/", "port"),
    ("https://a:65536/", "port"),
    ("https://a:65535/", None),
    ("https://a:100000/", "port"),
    ("https://[::1/", "could be a name"),
    ("https://a]/", "could be a name"),
    ("https:///", "could be a name"),
    ("https://a b/", "could be a name"),
    ("https://a..b/", "could be a name"),
    ("https://-a/", "could be a name"),
    ("https://a-/", "could be a name"),
    (f"https://{'a' * 64}/", "could be a name"),
    (f"https://{'.'.join(['a' * 50] * 5)}/", "could be a name"),
    (f"https://{'.'.join(['a' * 49] * 5)}.aa/", None),
    (f"https://{'.'.join(['a' * 49] * 5)}.aaa/", None),
    (f"https://{'.'.join(['a' * 49] * 5)}.aaaa/", "could be a name"),
    ("https://ü..b/", "Unicode"),
    (f"https://{'ü' * 300}/", "Unicode"),
    ("https://Ü/", "Unicode"),
    ("https://\u212a.example/", "Unicode"),
    ("https://xn--/", "could be a name"),
    ("https://1/", "a number"),
    ("https://a.1/", "a number"),
    ("https://a.0xf/", "a number"),
    ("https://1.2.3.04/", "a number"),
    ("https://[1.2.3.4]/", "brackets"),
    ("https://[::1%lo]/", "brackets"),
    ("https://[]/", "brackets"),
    ("https://a/ü", "path holds a character"),
    ("https://a/%2", "path holds a character"),
    ("https://a/[", "path holds a character"),
    ("https://a/..", "'..'"),
    ("https://a/%2e", "'..'"),
    ("https://a/%25252e%2e/", "'..'"),
    ("https://a/..%5cb", "'..'"),
    ("https://a/b%5c..", "'..'"),
    ("https://a/X", None),
    ("https://a/..;x/", "'..'"),
    ("https://a/%20", "blanks"),
    ("https://a/v1/%e2%80%a6", "'…'"),
    ("https://a/b%20c", None),
    ("https://a/..%0a", "'..'"),
    ("https://a/%0a..", "'..'"),
    ("https://a/.%0a./", "'..'"),
    ("https://a/..%00.txt", "'..'"),
    ("https://a/..%1fx", "'..'"),
    ("https://a/..%20x", None),
    ("https://a/..%7f", "'..'"),
    ("https://a/..%23x", "'..'"),
    ("https://a/..%3fx%0a", "'..'"),
    ("https://a/..%2523", "'..'"),
    ("https://a/x%23..", None),
    ("https://a/..%c2%a0", "'..'"),
    ("https://a/.%e2%80%8b.", "'..'"),
    ("https://a/%c0%ae%c0%ae/", "'..'"),
    ("https://a/%c0%2e%c0%6e/", "'..'"),
    ("https://a/%25c0%25ae./", "'..'"),
    ("https://a/%c0%a52e./", "'..'"),
    ("https://a/b%c0%af..", "'..'"),
    ("https://a/b%c1%9c..", "'..'"),
    ("https://a/b%c1%1c..", "'..'"),
    ("https://a/%e0%80%ae./", "'..'"),
    ("https://a/b%e0%81%9c..", "'..'"),
    ("https://a/%f0%80%80%ae./", "'..'"),
    ("https://a/%f8%80%80%80%ae./", "'..'"),
    ("https://a/%fc%80%80%80%80%ae./", "'..'"),
    ("https://a/%c0%0a%c0%ae", "'..'"),
    ("https://a/%c1/../", "'..'"),
    ("https://a/%c1%252f..", "'..'"),
    ("https://a/%c0%80b", None),
    ("https://a/%e0%82%ae./", None),
    ("https://a/%e9t%e9/%c3%a9", None),
    ("https://a/%25u002e./", "'..'"),
    ("https://a/%25u002E%25uFF0E/", "'..'"),
    ("https://a/%25uD800", None),
    ("https://a/%ef%bc%8e./", "'..'"),
    ("https://a/b%ef%bc%8f..", "'..'"),
    ("https://a/b%ef%bc%bc..", "'..'"),
    ("https://a/%e2%80%a5/", "'..'"),
    ("https://a/%e2%80%a4./", "'..'"),
    ("https://a/%e3%80%82./", "'..'"),
    ("https://a/%ef%bd%a1./", "'..'"),
    ("https://a/b%e2%81%84..", "'..'"),
    ("https://a/b%e2%88%95..", "'..'"),
    ("https://a/b%e2%88%96..", "'..'"),
    ("https://a/b%e2%a7%b5..", "'..'"),
    ("https://a/b%e2%a7%b8..", "'..'"),
    ("https://a/b%e2%a7%b9..", "'..'"),
    ("https://a/%ef%bc%8ex", None),
    ("https://a/b?c=[", "query holds a character"),
    ("https://a/b?c=%", "query holds a character"),
    ("https://a/b?../", None),
]


@pytest.mark.parametrize(("url", "why"), REFUSED)
def test_a_url_that_can_be_read_in_two_ways_is_refused(url, why):
    if why is None:
        Target.parse(url)
        return
    with pytest.raises(UrlRefused, match=why):
        Target.parse(url)


def test_a_url_has_a_greatest_length():
    base = "https://a.example/"
    assert Target.parse(base + "x" * (MAX_URL - len(base))).port == 443
    with pytest.raises(UrlRefused, match="longer than 2,048"):
        Target.parse(base + "x" * (MAX_URL - len(base) + 1))


def test_a_refusal_does_not_quote_the_url():
    for url in ("https://a/secret ", "https://secret@a/", "https://a:secret/", "https://a#secret"):
        with pytest.raises(UrlRefused) as refused:
            Target.parse(url)
        assert "secret" not in str(refused.value)


@given(address=st.ip_addresses())
def test_an_address_is_one_host_however_it_is_spelt(address):
    spelt = [str(address), address.exploded]
    written = [f"[{one.upper()}]" if address.version == 6 else one for one in spelt]
    hosts = {Host.parse(one) for one in written}
    assert hosts == {Host(str(address), address)}


@given(text=st.text(max_size=40))
def test_any_text_is_a_host_or_refused_and_a_host_is_stable(text):
    try:
        host = Host.parse(text)
    except UrlRefused:
        return
    assert host.name.isascii()
    assert host.name == host.name.lower()
    assert Host.parse(host.in_url) == host


@given(text=st.text(max_size=60))
def test_any_text_is_a_url_or_refused_and_a_url_is_stable(text):
    try:
        target = Target.parse(f"http://{text}")
    except UrlRefused:
        return
    assert target.url.isascii()
    assert Target.parse(target.url) == target
