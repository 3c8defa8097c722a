"""The host's own public addresses: issue "members can open the host's own services"."""

import asyncio
import ipaddress
import subprocess
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from paddock.adapters.egress.told import texts
from paddock.adapters.providers.host import syscalls
from paddock.domain.egress import EgressWish, NetworkMode
from paddock.domain.egress.combining import Say, combined
from paddock.domain.egress.rule import ANY_PORT, parse
from paddock.gateway import routes
from paddock.gateway.outside import Closed, Outside

pytestmark = [pytest.mark.timeout(30), pytest.mark.usefixtures("as_root")]
OWN, LATER, ROUTED = "203.0.113.7", "203.0.113.8", "192.0.2.77"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def on_a_host_of_its_own(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In a network namespace whose loopback has a public address. Only this thread is in it."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            syscalls.unshare(syscalls.CLONE_NEWNET)
            ip("link", "set", "lo", "up")
            ip("address", "add", f"{OWN}/32", "dev", "lo")
            ip("-6", "address", "add", "2001:db8::7/128", "dev", "lo")
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


async def reached(address: str, port: int, *, by_operator: bool) -> bool:
    rules = [replace(parse(address), ports=ANY_PORT, by_operator=by_operator)]
    try:
        transport, _ = await Outside().dial(rules, (address, port), asyncio.Protocol)
    except Closed:
        return False
    transport.abort()
    return True


@pytest.mark.parametrize("address", [OWN, "2001:db8::7"])
def test_a_public_address_of_the_host_needs_an_operators_rule(address: str) -> None:
    async def work() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, address, 0)
        port = server.sockets[0].getsockname()[1]
        assert not await reached(address, port, by_operator=False)
        assert await reached(address, port, by_operator=True)
        server.close()

    on_a_host_of_its_own(work)


def test_an_address_that_the_host_gets_later_is_its_own_from_then_on() -> None:
    async def work() -> None:
        outside, rule = Outside(), parse(f"{LATER}:8080")
        assert outside.objection([rule], [LATER], 8080, literal=True) == ""
        ip("address", "add", f"{LATER}/32", "dev", "lo")
        assert "this host itself" in outside.objection([rule], [LATER], 8080, literal=True)
        ip("address", "del", f"{LATER}/32", "dev", "lo")
        assert outside.objection([rule], [LATER], 8080, literal=True) == ""

    on_a_host_of_its_own(work)


def test_an_address_that_is_only_routed_to_the_host_is_its_own_as_well() -> None:
    async def work() -> None:
        assert not routes.ends_here(ipaddress.ip_address(ROUTED))
        ip("route", "add", "local", "192.0.2.0/24", "dev", "lo")
        assert routes.ends_here(ipaddress.ip_address(ROUTED))
        outside = Outside()
        mapped = f"::ffff:{ROUTED}"
        assert outside.objection([parse(f"{ROUTED}:80")], [mapped], 80, literal=True)

    on_a_host_of_its_own(work)


def test_only_rules_of_presets_and_templates_are_operators() -> None:
    rule = EgressWish(rules=(f"{OWN}:8080",))
    says = [
        Say("preset p", EgressWish(rules=("192.0.2.1:1",)), is_operator=True),
        Say("app a", rule),
        Say("sandbox", EgressWish(rules=("192.0.2.2:2",))),
    ]
    told = texts(combined(says, NetworkMode.ALLOWLIST).policy)
    assert {each.text: each.by_operator for each in told} == {
        "192.0.2.1:1": True,
        f"{OWN}:8080": False,
        "192.0.2.2:2": False,
    }
