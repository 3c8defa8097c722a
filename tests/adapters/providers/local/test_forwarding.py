"""Where another firewall stands in the way of the open network: let out by Docker's, or said."""

import pytest

from tests.adapters.providers.local.another_host import FORBIDDEN, ask

pytestmark = [pytest.mark.timeout(60), pytest.mark.proves("P16")]

# What Docker 20 to 27 set up; later ones have no RETURN in their chain.
DOCKER = """
    iptables -P FORWARD DROP
    iptables -N DOCKER-USER
    iptables -A FORWARD -j DOCKER-USER
    iptables -A FORWARD -i docker0 -j ACCEPT
"""
RETURN = "iptables -A DOCKER-USER -j RETURN\n"
OWN_RULE = f"iptables -I DOCKER-USER -p tcp --dport {FORBIDDEN} -j DROP\n"


def test_without_a_firewall_it_leads_out() -> None:
    seen = ask("true")
    assert seen["finding"]["status"] == "ok"
    assert seen["outside"]
    assert not seen["left"]


def test_a_rule_of_the_operator_in_front_of_ours_holds() -> None:
    seen = ask(DOCKER + f"iptables -A FORWARD -p tcp --dport {FORBIDDEN} -j DROP\n")
    assert seen["outside"]
    assert not seen["forbidden"]


@pytest.mark.parametrize("ending", ["", RETURN], ids=["Docker 28", "Docker 20"])
def test_dockers_firewall_lets_it_out_and_is_left_as_it_was(ending: str) -> None:
    seen = ask(DOCKER + ending + OWN_RULE)
    assert seen["finding"]["status"] == "ok"
    assert "at the end of FORWARD" in seen["finding"]["found"]
    assert seen["outside"]
    assert not seen["forbidden"], "an operator's own rules come first"
    assert not seen["container"], "Docker's containers stay behind Docker's rules"
    assert seen["idempotent"]
    assert not seen["left"]


@pytest.mark.parametrize(
    "firewall",
    [
        "iptables -P FORWARD DROP",
        "nft 'add table inet wall; "
        "add chain inet wall forward { type filter hook forward priority 10; policy drop; }'",
    ],
    ids=["iptables", "nftables"],
)
def test_a_firewall_that_drops_is_found_and_the_advice_helps(firewall: str) -> None:
    seen = ask(firewall)
    assert not seen["outside"]
    assert seen["finding"]["status"] == "degraded"
    assert "reach nothing" in seen["finding"]["found"]
    assert seen["outside after the fix"]
    assert seen["fixed"]["status"] == "ok"
    assert not seen["fixed"]["fix"]
