"""Where another firewall stands in the way of the open network: let out by Docker's, or said."""

import pytest

from paddock.adapters.providers.host import open_network
from tests.adapters.providers.local.another_host import (
    CONTAINER,
    FORBIDDEN,
    PORT,
    PUBLISHED,
    ask,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("as_root")]

# What Docker 20 to 27 set up; later ones have no RETURN in their chain.
DOCKER = """
    iptables -P FORWARD DROP
    iptables -N DOCKER-USER
    iptables -A FORWARD -j DOCKER-USER
    iptables -A FORWARD -i docker0 -j ACCEPT
"""
RETURN = "iptables -A DOCKER-USER -j RETURN\n"
OWN_RULE = f"iptables -I DOCKER-USER -p tcp --dport {FORBIDDEN} -j DROP\n"
# As `docker run --publish` does: what comes to this port of the host goes to the container.
PUBLISH = f"""
    iptables -t nat -N DOCKER
    iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
    iptables -t nat -A DOCKER ! -i docker0 -p tcp --dport {PUBLISHED} \\
        -j DNAT --to-destination {CONTAINER}:{PORT}
    iptables -I FORWARD -d {CONTAINER} ! -i docker0 -o docker0 -p tcp --dport {PORT} -j ACCEPT
    iptables -I FORWARD -i docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
"""


def test_without_a_firewall_it_leads_out() -> None:
    seen = ask("true")
    assert seen["finding"]["status"] == "ok"
    assert seen["outside"]
    assert seen["metadata"] == [], "what clouds tell their machines is nobody's"
    assert not seen["left"]


@pytest.mark.proves("P16")
def test_another_open_network_is_out_of_reach() -> None:
    theirs = open_network.rules("another", "docker0", "172.30.0.0/24", 0)
    seen = ask(f"nft -f - <<'END'\n{theirs}\nEND")
    assert seen["outside"]
    assert not seen["container"]


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


@pytest.mark.proves("P16")
@pytest.mark.parametrize("firewall", ["", DOCKER], ids=["open", "Docker"])
def test_what_docker_publishes_on_the_host_is_refused_like_every_service_of_it(
    firewall: str,
) -> None:
    seen = ask(firewall + PUBLISH)
    assert seen["outside"]
    assert not seen["published"]


def test_a_docker_that_is_started_later_cuts_the_network_only_until_it_is_healed() -> None:
    seen = ask("true", DOCKER)
    assert seen["outside"]
    assert not seen["outside later"]
    assert seen["healed"] == [False, True, False], "only when it is needed"
    assert seen["outside healed"]
    assert not seen["host healed"]


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    "later",
    ["nft flush ruleset", "nft flush table inet paddock_0badcafe"],
    ids=["everything", "our table"],
)
def test_a_fence_that_somebody_flushed_is_put_up_again(later: str) -> None:
    seen = ask("true", later)
    assert seen["host later"]
    assert seen["healed"] == [False, True, False]
    assert not seen["host healed"]
    assert seen["outside healed"]


@pytest.mark.parametrize(
    "later",
    [
        "sysctl -q net.ipv4.ip_forward=0",
        "ip link set pdk0badcafe down",
        "ip link delete pdk0badcafe",
        "ip link set pk0badca0 nomaster",
        "ip link delete pdk0badcafe; sysctl -q net.ipv4.ip_forward=0; nft flush ruleset",
    ],
    ids=["forwarding", "bridge down", "bridge gone", "cable loose", "all of it"],
)
def test_what_somebody_took_away_is_set_up_again(later: str) -> None:
    seen = ask("true", later)
    assert seen["outside"]
    assert not seen["outside later"]
    assert seen["healed"] == [False, True, False], "only when it is needed"
    assert seen["outside healed"]
    assert not seen["host healed"]


def test_rules_that_others_added_after_ours_are_overtaken() -> None:
    seen = ask(DOCKER, "iptables -A FORWARD -j REJECT")
    assert seen["healed"] == [False, True, False]
    assert not seen["outside healed"], "what an operator rules comes before ours"
