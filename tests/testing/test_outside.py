"""Addresses for cables: none that the host has already."""

import ipaddress

import pytest

from paddock.testing.conformance.outside import spare_addresses

HEAD = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"


def route(destination: str, mask: str) -> str:
    return f"eth0 {destination} 00000000 0001 0 0 0 {mask} 0 0 0\n"


def test_a_block_that_the_host_is_in_is_left_alone():
    routes = HEAD + route("00000000", "00000000") + route("000200C0", "00FFFFFF")
    ends = [spare_addresses(routes) for _ in range(500)]
    assert {there.rpartition(".")[0] for _, there in ends} == {"198.51.100", "203.0.113"}
    assert all(int(ipaddress.ip_address(b)) - int(ipaddress.ip_address(a)) == 1 for a, b in ends)


def test_one_cable_more_is_laid_beside_those_there_are():
    taken = [f"{64 * 4 - 4 - 4 * number:02X}7100CB" for number in range(63)]
    cables = "".join(route(each, "FCFFFFFF") for each in taken)
    blocks = route("000200C0", "00FFFFFF") + route("006433C6", "00FFFFFF")
    assert spare_addresses(HEAD + blocks + cables) == ("203.0.113.1", "203.0.113.2")


def test_a_host_that_has_them_all_is_told():
    blocks = ("000200C0", "006433C6", "007100CB")
    with pytest.raises(OSError, match=r"203\.0\.113\.0/24 is in use"):
        spare_addresses(HEAD + "".join(route(each, "00FFFFFF") for each in blocks))
