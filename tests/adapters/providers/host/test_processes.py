"""A process is itself and nobody else, also when its number is used again."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.adapters.providers.host import cgroups, netns
from paddock.adapters.providers.host.launch_control import LaunchControl
from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.local.network import OpenNetwork
from paddock.domain.errors import Broken, Unavailable
from tests.adapters.providers.host.recycling import heir_of, sleeper

pytestmark = pytest.mark.timeout(60)

ELSEWHERE = ("unshare", "--net", "--pid", "--fork", "--mount", "--kill-child")


@pytest.fixture
def ended() -> Process:
    """A process that was in a network of its own, and is no more."""
    with sleeper("unshare", "--net") as process:
        pass
    return process


@pytest.mark.usefixtures("as_root")
def test_the_number_of_a_process_that_ended_opens_nothing(ended: Process) -> None:
    assert not ended.alive()
    with pytest.raises(ProcessLookupError), ended.opened():
        pass
    with heir_of(ended) as heir:
        # The kernel counts time in hundredths of a second.
        stale = replace(ended, started=min(ended.started, heir.started - 1))
        assert heir.alive()
        assert not stale.alive()
        with pytest.raises(ProcessLookupError), stale.opened():
            pass


@pytest.mark.usefixtures("as_root")
async def test_no_network_is_entered_in_the_place_of_one_that_is_gone(ended: Process) -> None:
    with heir_of(ended) as heir:
        stale = replace(ended, started=heir.started - 1)
        with pytest.raises(ProcessLookupError):
            await netns.listen(stale, "127.0.0.1", 0)
        with pytest.raises(ProcessLookupError):
            await netns.connect(stale, "127.0.0.1", 1)


async def test_the_hosts_own_network_is_never_entered() -> None:
    with sleeper() as neighbour:
        for process in (neighbour, Process.of(os.getpid())):
            with pytest.raises(PermissionError, match="host's own network"):
                await netns.connect(process, "127.0.0.1", 1)
    with pytest.raises(PermissionError):
        await netns.connect(Process.of(1), "127.0.0.1", 1)


@pytest.mark.usefixtures("as_root")
async def test_a_listener_is_placed_into_the_network_of_a_living_process() -> None:
    with sleeper("unshare", "--net") as process:
        until = time.monotonic() + 10
        here = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{process.pid}/ns/net") == here:
            assert time.monotonic() < until
        with await netns.listen(process, "127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(ConnectionRefusedError):  # it is not on the host's loopback
                socket.create_connection(("127.0.0.1", port), 1)
    assert os.readlink("/proc/self/ns/net") == here


@pytest.mark.parametrize("moment", ["before it is there", "when it is there"])
@pytest.mark.usefixtures("as_root")
async def test_sockets_that_nobody_waits_for_any_more_are_closed(moment: str) -> None:
    made: list[socket.socket] = []
    may_go_on = threading.Event()

    def action() -> list[socket.socket]:
        may_go_on.wait(30)
        made.extend(socket.socket() for _ in range(3))
        return list(made)

    with sleeper("unshare", "--net") as process:
        here, until = os.readlink("/proc/self/ns/net"), time.monotonic() + 10
        while os.readlink(f"/proc/{process.pid}/ns/net") == here:
            assert time.monotonic() < until
        placing = asyncio.create_task(netns.within(process, action))
        await asyncio.sleep(0)
        if moment == "when it is there":
            may_go_on.set()
            while len(made) < 3:
                time.sleep(0.01)  # what it gives is on its way to a loop that stands still
            time.sleep(0.2)
        placing.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await placing
        async with asyncio.timeout(30):
            while len(made) < 3 or any(each.fileno() >= 0 for each in made):
                await asyncio.sleep(0.01)


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[LaunchControl]:
    control = LaunchControl(tmp_path / "run")
    try:
        yield control
    finally:
        await control.aclose()


@pytest.mark.usefixtures("as_root")
async def test_no_guest_joins_whoever_has_the_number_now(
    launch: LaunchControl, tmp_path: Path
) -> None:
    nowhere = cgroups.Cgroup(cgroups.Hierarchies(None), "")
    order = {"config": {}, "capabilities": (), "no_new_privs": True}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "guest.sock"))
        with sleeper(*ELSEWHERE) as another:
            stale = replace(another, started=another.started - 1)
            with pytest.raises(Broken, match=f"process {another.pid} has ended"):
                await launch.join(listener, stale, nowhere, **order)
        with sleeper() as host, pytest.raises(Broken, match="is not in a sandbox"):
            await launch.join(listener, host, nowhere, **order)


@pytest.mark.usefixtures("as_root")
async def test_no_cable_is_laid_to_whoever_has_the_number_now(tmp_path: Path) -> None:
    network = OpenNetwork("0badcafe", tmp_path)
    with sleeper("unshare", "--net") as another:
        stale = replace(another, started=another.started - 1)
        with pytest.raises(Unavailable, match=f"process {another.pid} has ended"):
            await network.attach(stale, 0)
        with pytest.raises(Broken, match="host's own network"):
            await network.attach(Process.of(os.getpid()), 0)
    assert not Path(f"/sys/class/net/{network.bridge}").exists()


def test_only_members_of_a_control_group_are_ended_with_it() -> None:
    """A number that was read from the group may be somebody else's when the signal is sent."""
    with sleeper() as bystander:
        cgroups._kill_member(bystander.pid, "paddock/0badcafe/none")
        time.sleep(0.05)
        assert bystander.alive()
