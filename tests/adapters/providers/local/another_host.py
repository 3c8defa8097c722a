"""A host of its own for the open network: a program in a network namespace that plays the host.

    unshare --net --mount python -m tests.adapters.providers.local.another_host FIREWALL LATER

Behind the host there is a machine outside, and a container on a bridge that is Docker's. FIREWALL
is a shell script that sets up the host's rules, LATER one that changes them when a sandbox is on
the open network already. Standard output says, as JSON, what the sandbox reaches, before and after
it healed, what `doctor` finds and whether all rules are gone afterwards.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paddock.adapters.providers.host import netns
from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.local import forwarding
from paddock.adapters.providers.local.network import OpenNetwork
from tests.adapters.providers.host.recycling import sleeper

REPOSITORY = Path(__file__).parents[4]
OUTSIDE, CONTAINER = "198.18.0.2", "172.30.0.2"
GATEWAY = "198.18.0.1"
PORT, FORBIDDEN, PUBLISHED = 7000, 7001, 7002
METADATA = ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192")


def ask(firewall: str, later: str = "") -> Any:
    """What happens on a host with these rules, and with those that come later."""
    done = subprocess.run(
        [
            *("unshare", "--net", "--mount", sys.executable, "-m"),
            *("tests.adapters.providers.local.another_host", firewall, later),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sh(script: str) -> str:
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}: {done.stderr}"
    return done.stdout


def rules() -> str:
    listed = sh("iptables-save; nft -s list ruleset")
    return "\n".join(line for line in listed.splitlines() if not line.startswith(("#", ":")))


@contextmanager
def machine(device: str, ours: str, theirs: str) -> Iterator[Process]:
    """A machine on a cable to `device`, with servers on both ports."""
    with sleeper("unshare", "--net") as process:
        here = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{process.pid}/ns/net") == here:
            pass
        sh(f"""
            ip link add {device} type veth peer name eth0 netns {process.pid}
            ip link set {device} up
            nsenter -t {process.pid} -n sh -ec '
                ip address add {theirs}/24 dev eth0
                ip link set eth0 up
                ip route add default via {ours}'
        """)
        yield process


async def reaches(sandbox: Process, address: str, port: int) -> bool:
    try:
        # What is sent before the bridge has seen the cable is lost, and sent again after a second.
        async with asyncio.timeout(2.5):
            (await netns.connect(sandbox, address, port)).close()
    except (OSError, TimeoutError):
        return False
    return True


async def main(firewall: str, later: str) -> None:
    sh("mount -t sysfs sysfs /sys; ip link set lo up")
    with ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        outside = stack.enter_context(machine("uplink", GATEWAY, OUTSIDE))
        container = stack.enter_context(machine("cable", "172.30.0.1", CONTAINER))
        sandbox = stack.enter_context(sleeper("unshare", "--net"))
        sh(f"""
            ip address add {GATEWAY}/24 dev uplink
            ip route add default via {OUTSIDE}
            ip link add docker0 type bridge
            ip address add 172.30.0.1/24 dev docker0
            ip link set docker0 up
            ip link set cable master docker0
            {firewall}
        """)
        for address in METADATA:
            sh(f"nsenter -t {outside.pid} -n ip address add {address}/32 dev lo")
        sh(f"nsenter -t {outside.pid} -n ip link set lo up")
        stack.enter_context(socket.create_server(("0.0.0.0", PORT)))
        for process in (outside, container):
            for port in (PORT, FORBIDDEN):
                stack.enter_context(await netns.listen(process, "0.0.0.0", port))
        print(json.dumps(await look(OpenNetwork("0badcafe", state), sandbox, later)))


async def look(network: OpenNetwork, sandbox: Process, later: str) -> dict[str, Any]:
    before = rules()
    finding = forwarding.look(network.bridge)
    await network.attach(sandbox, 0)
    once = rules()
    await network.attach(sandbox, 0)
    outside, forbidden, container, published, *metadata = await asyncio.gather(
        reaches(sandbox, OUTSIDE, PORT),
        reaches(sandbox, OUTSIDE, FORBIDDEN),
        reaches(sandbox, CONTAINER, PORT),
        reaches(sandbox, GATEWAY, PUBLISHED),
        *(reaches(sandbox, each, PORT) for each in METADATA),
    )
    seen = {
        "finding": asdict(finding),
        "outside": outside,
        "forbidden": forbidden,
        "container": container,
        "metadata": [each for each, reached in zip(METADATA, metadata, strict=True) if reached],
        "published": published,
        "idempotent": rules() == once,
    }
    if finding.fix:
        sh(finding.fix)
        seen["fixed"] = asdict(forwarding.look(network.bridge))
        seen["outside after the fix"] = await reaches(sandbox, OUTSIDE, PORT)
        before = ""
    if later:
        seen |= await _change(network, sandbox, later)
        before = ""
    await network.detach(0)
    await network.remove()
    seen["left"] = bool(before) and rules() != before
    return seen


async def _change(network: OpenNetwork, sandbox: Process, later: str) -> dict[str, Any]:
    idle = await network.heal()
    sh(later)
    gateway = str(network.gateway)

    async def both() -> list[bool]:
        return await asyncio.gather(
            reaches(sandbox, gateway, PORT), reaches(sandbox, OUTSIDE, PORT)
        )

    host_later, outside_later = await both()
    healed = [idle, await network.heal(), await network.heal()]
    host_healed, outside_healed = await both()
    return {
        "host later": host_later,
        "outside later": outside_later,
        "healed": healed,
        "outside healed": outside_healed,
        "host healed": host_healed,
    }


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
