"""The address policy against the registries' own ranges, written here a second time as numbers."""

import ipaddress
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.handlers.url.addresses import is_public, may_be_called, network

# First and last address of every range that is not public. Neighbours are public, unless
# they are in the next range.
CLOSED_IPV4 = [
    ("0.0.0.0", "0.255.255.255"),  # noqa: S104 - a range, not a place to listen
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("168.63.129.16", "168.63.129.16"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.31.196.0", "192.31.196.255"),
    ("192.52.193.0", "192.52.193.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("192.175.48.0", "192.175.48.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "255.255.255.255"),
]
# Only what lies between these is public, and not all of that.
FIRST_IPV6, LAST_IPV6 = "2000::", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
CLOSED_IPV6 = [
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"),
    ("3ffe::", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
]
NAT64 = int(ip_address("64:ff9b::"))


def number(text):
    return int(ip_address(text))


def oracle(address):
    """The same question, answered with numbers alone."""
    value = int(address)
    if address.version == 4:
        return not any(number(low) <= value <= number(high) for low, high in CLOSED_IPV4)
    if NAT64 <= value <= NAT64 + 2**32 - 1:
        return oracle(IPv4Address(value - NAT64))
    if not number(FIRST_IPV6) <= value <= number(LAST_IPV6):
        return False
    if any(number(low) <= value <= number(high) for low, high in CLOSED_IPV6):
        return False
    return (value // 2**32) % 2**32 not in {0x5EFE, 0x0200_5EFE}


def edges():
    for low, high in CLOSED_IPV4:
        for value in (number(low) - 1, number(low), number(high), number(high) + 1):
            if 0 <= value < 2**32:
                yield IPv4Address(value)
    for low, high in [*CLOSED_IPV6, (FIRST_IPV6, LAST_IPV6)]:
        for value in (number(low) - 1, number(low), number(high), number(high) + 1):
            yield IPv6Address(value)


@pytest.mark.parametrize(
    "address", sorted(set(edges()), key=lambda one: (one.version, one)), ids=str
)
def test_a_range_ends_where_its_registry_says(address):
    assert is_public(address) is oracle(address)


@given(address=st.one_of(st.ip_addresses(), st.sampled_from(list(edges()))))
def test_a_generated_address_is_public_where_the_numbers_say_so(address):
    assert is_public(address) is oracle(address)


@given(inside=st.ip_addresses(v=4))
def test_an_ipv4_address_behind_nat64_is_judged_by_itself(inside):
    assert is_public(IPv6Address(NAT64 + int(inside))) is oracle(inside)


@given(inside=st.ip_addresses(v=4))
@pytest.mark.parametrize(
    "prefix",
    ["::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b:1::", "2a00::5efe:0:0", "2a00::200:5efe:0:0"],
)
def test_an_ipv4_address_inside_of_any_other_one_is_never_public(prefix, inside):
    assert not is_public(IPv6Address(number(prefix) + int(inside)))


@given(inside=st.ip_addresses(v=4))
def test_tunnels_are_never_public(inside):
    assert not is_public(IPv6Address((0x2002 << 112) + (int(inside) << 80) + 1))
    assert not is_public(IPv6Address((0x2001_0000 << 96) + (int(inside) ^ 0xFFFF_FFFF)))


@pytest.mark.parametrize(
    "text",
    [
        "8.8.8.8",
        "93.184.216.34",
        "1.1.1.1",
        "168.63.129.15",
        "168.63.129.17",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450:4001:800::200e",
        "2001:4860:4860::8888",
        "2001:200::1",
        "2620:4f:7fff::1",
        "2620:4f:8001::1",
        "64:ff9b::8.8.8.8",
        "64:ff9b::168.63.129.17",
        "2a00::5eff:1:1",
        "2a00::100:5efe:1:1",
    ],
)
def test_the_public_internet_is_public(text):
    address = ip_address(text)
    assert is_public(address)
    assert may_be_called(address, ())


def test_an_address_with_a_zone_is_not_public():
    assert is_public(IPv6Address("2606:4700::1%eth0")) is False
    assert may_be_called(IPv6Address("fd00::1%eth0"), [network("fd00::/16")]) is False


class Trusted(IPv4Address):
    """An address that Python thinks well of."""

    is_global = True


class TrustedToo(IPv6Address):
    is_global = True


@pytest.mark.parametrize("address", dict.fromkeys(edges()), ids=str)
def test_our_own_table_does_not_rely_on_what_python_knows(address):
    trusted = Trusted(int(address)) if address.version == 4 else TrustedToo(int(address))
    assert is_public(trusted) is oracle(address)


class LaterClosed(IPv4Address):
    """An address that a later Python knows to be special."""

    is_global = False


class LaterClosedToo(IPv6Address):
    is_global = False


def test_what_python_knows_to_be_special_is_not_public_either():
    assert not is_public(LaterClosed("8.8.8.8"))
    assert not is_public(LaterClosedToo("2606:4700::1"))


# --------------------------------------------------------------------------- opened networks


@pytest.mark.parametrize(
    ("address", "networks", "may"),
    [
        ("10.1.2.3", ["10.1.2.0/24"], True),
        ("10.1.2.3", ["10.1.3.0/24"], False),
        ("10.1.2.3", ["10.1.3.0/24", "10.1.2.3/32"], True),
        ("10.1.2.3", ["fd00::/8"], False),
        ("fd00::1", ["fd00::/64"], True),
        ("fd00:0:0:1::1", ["fd00::/64"], False),
        ("127.0.0.1", ["127.0.0.1/32"], True),
        ("127.0.0.2", ["127.0.0.1/32"], False),
        ("::1", ["::1/128"], True),
        ("::ffff:127.0.0.1", ["127.0.0.0/8", "::1/128"], False),
        ("64:ff9b::10.1.2.3", ["10.0.0.0/8"], False),
        ("8.8.8.8", ["10.0.0.0/8"], False),
        ("100.64.0.1", ["100.64.0.0/10"], True),
        ("100.100.100.199", ["100.64.0.0/10"], True),
        ("100.100.100.200", ["100.64.0.0/10"], False),
        ("100.100.100.200", ["100.100.100.200/32"], False),
        ("100.100.100.201", ["100.64.0.0/10"], True),
        ("fd00:ec2::254", ["fc00::/7"], False),
        ("fd00:ec1::254", ["fc00::/7"], True),
        ("fd00:ec3::254", ["fc00::/7"], True),
        ("fd20:ce::254", ["fc00::/7"], False),
        ("fd20:cd::254", ["fc00::/7"], True),
        ("fd20:cf::254", ["fc00::/7"], True),
    ],
)
def test_opened_networks_are_all_that_may_be_called(address, networks, may):
    opened = [network(one) for one in networks]
    assert may_be_called(ip_address(address), opened) is may
    assert not is_public(ip_address(address)) or not may


MAY_BE_OPENED = ["10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
MAY_BE_OPENED += ["::1/128", "fc00::/7"]


@pytest.mark.parametrize("text", [*MAY_BE_OPENED, "10.1.2.3", "172.31.0.0/16", "fd12:3456::/48"])
def test_private_networks_may_be_opened(text):
    assert network(text) == ipaddress.ip_network(text)


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0/0",
        "::/0",
        "10.0.0.0/7",
        "8.8.8.0/24",
        "169.254.0.0/16",
        "169.254.169.254/32",
        "224.0.0.0/4",
        "168.63.129.16/32",
        "fe80::/10",
        "ff00::/8",
        "::/127",
        "::ffff:10.0.0.0/104",
        "172.0.0.0/8",
        "172.32.0.0/16",
        "192.168.0.0/15",
        "100.0.0.0/8",
        "fc00::/6",
        "2000::/3",
        "10.0.0.1/24",
        "10.0.0.0/33",
        "localhost",
        "",
        "10.0.0.0-10.0.0.9",
    ],
)
def test_no_other_network_may_be_opened(text):
    with pytest.raises(ValueError, match=r".+"):
        network(text)
