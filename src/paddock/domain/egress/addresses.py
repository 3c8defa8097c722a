"""Addresses that no name may lead to: whose they are decides, before any rule about names."""

import ipaddress
from collections.abc import Iterable, Sequence
from enum import StrEnum

from paddock.domain.egress.rule import Network, Rule

OURS = ipaddress.IPv4Network("198.18.0.0/15")
"""What sandboxes are told instead of real addresses: meaningful only inside."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Kind(StrEnum):
    """Whose an address is."""

    PUBLIC = "public"
    PRIVATE = "private"
    METADATA = "metadata or link-local"
    NOWHERE = "no host's"


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


METADATA = _networks(
    "169.254.0.0/16",
    "fe80::/10",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
)
_NOWHERE = (
    *_networks("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "ff00::/8", "100::/64"),
    OURS,
)
_PRIVATE = _networks(
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "192.0.0.0/24",
    "::1/128",
    "fc00::/7",
    "fec0::/10",
)
_WITH_IPV4_INSIDE = (("::ffff:0:0/96", 0), ("::/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))


def kind_of(address: Address) -> Kind:
    """Of one that carries another inside, the other's."""
    address = plain(address)
    for kind, networks in (
        (Kind.METADATA, METADATA),
        (Kind.NOWHERE, _NOWHERE),
        (Kind.PRIVATE, _PRIVATE),
    ):
        if any(address in network for network in networks):
            return kind
    return Kind.PUBLIC


def plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, ipaddress.IPv6Address) and address not in _TRUE_IPV6:
        for text, shift in _WITH_IPV4_INSIDE:
            if address in ipaddress.IPv6Network(text):
                return ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return address


_TRUE_IPV6 = frozenset((ipaddress.IPv6Address("::"), ipaddress.IPv6Address("::1")))


def is_private(network: Network) -> bool:
    """Whether a rule for it opens what is closed to names: all of it is private."""
    return any(
        network.version == each.version and network.subnet_of(each)  # type: ignore[arg-type]
        for each in _PRIVATE
    )


def objection(
    rules: Sequence[Rule],
    found: Iterable[str],
    port: int,
    *,
    own: frozenset[str] = frozenset(),
    literal: bool = False,
) -> str:
    """Why a connection may not be made when a name has these addresses; empty when it may.

    One that is refused refuses all: a name that has a public and a private address is a trap.
    `own` are those of this host. `literal` is for an address that was connected to itself: then
    rules for requests to it are about the connection, which they are not when a name leads there.
    """
    if not literal:
        rules = [rule for rule in rules if not (rule.allows and rule.looks_at_requests)]
    for text in found:
        address = plain(ipaddress.ip_address(text))
        if why := _objection(rules, address, port, own=str(address) in own or text in own):
            return f"{text} is {why}"
    return ""


def is_for_nobody(address: str) -> bool:
    """Whatever rules there are, and where there are none."""
    return kind_of(plain(ipaddress.ip_address(address))) in (Kind.METADATA, Kind.NOWHERE)


def _objection(rules: Sequence[Rule], address: Address, port: int, *, own: bool) -> str:
    kind = kind_of(address)
    if kind in (Kind.METADATA, Kind.NOWHERE):
        return f"an address of the kind {kind}, which no rule can allow"
    ruled = _ruled(rules, address, port, own=own)
    if ruled is not None:
        return ruled
    if own:
        return "this host itself; only an operator's rule for exactly that address allows it"
    if kind is Kind.PRIVATE:
        return "a private address; only a rule for private ones, such as 10.1.0.0/16, allows it"
    return ""


def _opens_own(rule: Rule, network: Network) -> bool:
    """Whether the rule opens an address of this host.

    Only operators can set rules for private addresses (`check_rules`), but any member can set one
    for a public address.
    """
    return network.num_addresses == 1 and (rule.by_operator or is_private(network))


def _ruled(rules: Sequence[Rule], address: Address, port: int, *, own: bool) -> str | None:
    """What the first rule about the address itself says; None where there is none. One that allows
    more than what is private opens nothing that is, but keeps later ones from denying."""
    allowed = False
    for rule in rules:
        if rule.network is None or not rule.is_about("", str(address), port):
            continue
        if not rule.allows and not allowed:
            return f"denied by the rule {rule.text}"
        if not rule.allows:
            return None
        if _opens_own(rule, rule.network) if own else is_private(rule.network):
            return ""
        allowed = True
    return None
