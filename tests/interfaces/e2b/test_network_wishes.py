"""E2B's network options as wishes: what is allowed wins over what is denied."""

import pytest

from paddock.domain.egress import EgressWish, NetworkMode
from paddock.domain.errors import Unsupported
from paddock.interfaces.e2b.marks import Mark, with_internet
from paddock.interfaces.e2b.network import Network, egress_of, unsaid

OPEN, CLOSED = EgressWish(NetworkMode.OPEN), EgressWish(NetworkMode.NONE)
REST = ("*:*", "0.0.0.0/0:*")
ALL = "0.0.0.0/0"
RULES = {"a.example": [{"transform": {"headers": {"X-A": "a"}}}]}


def only(*rules: str) -> EgressWish:
    return EgressWish(NetworkMode.ALLOWLIST, preset="", rules=rules)


def wish(internet: bool | None = None, *, default: bool = False, **asked: object) -> EgressWish:
    return egress_of(Network(**asked), internet, unsaid(internet=default))


@pytest.mark.parametrize("internet", [None, True])
def test_where_the_rest_is_open(internet):
    opened = {"default": True, "internet": internet}
    assert wish(**opened) == wish(**opened, allow_out=["a.example"]) == OPEN
    assert wish(**opened, deny_out=[ALL]) == CLOSED
    assert wish(**opened, deny_out=[ALL], allow_out=["a.example"]) == only("a.example")
    assert wish(**opened, deny_out=["8.8.8.8"]) == only("!8.8.8.8/32:*", *REST)
    allowed = wish(**opened, deny_out=["8.8.8.0/24"], allow_out=["8.8.8.8", "a.example"])
    assert allowed == only("8.8.8.8/32:*", "a.example", "!8.8.8.0/24:*", *REST)
    assert wish(**opened, rules=RULES) == only(*REST)


def test_where_the_rest_is_the_installations():
    assert wish() == wish(rules=RULES) == EgressWish()
    assert wish(internet=True) == EgressWish(), "older SDKs say so in every create"
    assert wish(internet=True, allow_out=["a.example"]) == only("a.example")
    assert wish(allow_out=["a.example"]) == only("a.example")
    partly = wish(allow_out=["8.8.8.8"], deny_out=["8.8.8.0/24"])
    assert partly == EgressWish(NetworkMode.ALLOWLIST, rules=("8.8.8.8/32:*", "!8.8.8.0/24:*"))
    assert wish(internet=False) == CLOSED
    assert wish(internet=False, allow_out=["a.example"]) == only("a.example")


def test_everything_that_is_allowed_wins():
    assert wish(allow_out=[ALL], deny_out=["8.8.8.8"]) == wish(internet=False, allow_out=[ALL])
    assert wish(allow_out=[ALL]) == OPEN
    assert wish(allow_out=[ALL], rules=RULES).mode is NetworkMode.ALLOWLIST


def test_an_update_has_the_switch_itself():
    assert wish(internet=True, allow_internet_access=False) == CLOSED
    assert wish(allow_internet_access=True) == EgressWish()
    assert wish(allow_internet_access=True, default=True) == OPEN


def test_an_update_without_the_switch_keeps_an_earlier_true():
    true, false = ({Mark.INTERNET.value: word, "a": "b"} for word in ("true", "false"))
    assert with_internet(true, None) == true
    assert with_internet(true, asked=False) == false
    assert with_internet(false, None) == {"a": "b"}, "its rules were replaced"


def test_name_servers_are_reached_where_names_are():
    servers = ["1.1.1.1"]
    named = wish(deny_out=[ALL], allow_out=["a.example"], dns_servers=servers)
    assert named == only("a.example", "1.1.1.1:*")
    assert wish(deny_out=[ALL], allow_out=["8.8.8.8"], dns_servers=servers) == only("8.8.8.8/32:*")
    assert wish(default=True, dns_servers=servers) == OPEN


def test_a_proxy_of_ones_own_is_refused():
    with pytest.raises(Unsupported, match="egressProxy cannot be enforced here"):
        wish(egress_proxy={"address": "proxy.example:1080"})
