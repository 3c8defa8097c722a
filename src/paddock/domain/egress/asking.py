"""What may be asked for: places that a rule could allow, told without looking anything up."""

import ipaddress
from collections.abc import Sequence

from paddock.domain.egress import names
from paddock.domain.egress.addresses import Kind, kind_of
from paddock.domain.egress.rule import ANY_PORT, Rule

_OF_SOME_NETWORK = frozenset(
    "localhost local internal intranet lan home corp private arpa invalid onion".split()
)
"""Last labels of names that mean something only within a network: never the world's."""


def may_be_asked_for(name: str, address: str) -> bool:
    """Whether a person could say yes: metadata and private addresses are not theirs to give.

    What a name leads to is not looked up before it is allowed; its addresses are checked then.
    """
    if name:
        return "." in name and name.rpartition(".")[2] not in _OF_SOME_NETWORK
    return bool(address) and kind_of(ipaddress.ip_address(address)) is Kind.PUBLIC


def may_be_resolved(rules: Sequence[Rule], name: str) -> bool:
    """Whether a name gets an address of our own because it would be asked for."""
    return may_be_asked_for(name, "") and not any(
        names.fits(rule.host, name)
        for rule in rules
        if rule.host and not rule.allows and rule.ports == ANY_PORT and not rule.looks_at_requests
    )


def rule_for(host: str, port: int) -> str:
    """The narrowest rule that allows it."""
    return f"{host}:{port}"
