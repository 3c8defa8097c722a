"""What the kernel counts for several sandboxes at once: issue "shared kernel counters"."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from paddock.adapters.providers.local.runtime import installed
from paddock.domain.egress import OPEN
from paddock.guest_client import Guest
from paddock.ports.provider import Provider, Ref, SandboxSpec
from tests.conftest import Need
from tests.engines import open_local
from tests.security.conftest import Fenced

pytestmark = pytest.mark.timeout(120)

# Take all there is of everything, say how much of it that was, and keep it.
_GREEDY = """
import array, ctypes, fcntl, json, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
taken, kept = {}, []
def take(name, one, most=100_000):
    taken[name] = 0
    try:
        while taken[name] < most:
            kept.append(one())
            taken[name] += 1
    except OSError:
        pass
def inotify():
    if (made := libc.inotify_init()) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    return made
def pipe():
    ends = os.pipe()
    fcntl.fcntl(ends[1], 1031, 1 << 20)
    return ends
def sent():
    there, here = socket.socketpair()
    some = array.array("i", [0] * 250)
    there.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, some)])
    return there, here
def aio():
    context = ctypes.c_ulong(0)
    if libc.syscall(206, 500, ctypes.byref(context)) < 0:
        raise OSError(ctypes.get_errno(), "io_setup")
    return context
most = int(sys.argv[1])
for name, one in (("inotify", inotify), ("terminals", os.openpty), ("pipes", pipe),
                  ("descriptors under way", sent), ("aio", aio)):
    take(name, one, most)
print(json.dumps(taken), flush=True)
if most > 1:
    open("/tmp/taken", "w").write(json.dumps(taken))
    time.sleep(3600)
"""
_AT_ONCE = 4
_MODEST = {"inotify": 1, "terminals": 1, "pipes": 1, "descriptors under way": 1}


@asynccontextmanager
async def sandbox(provider: Provider, **changes: object) -> AsyncIterator[tuple[Ref, Guest]]:
    spec = SandboxSpec(template="base", **changes)  # type: ignore[arg-type]
    seen = await provider.create(f"counters-{os.urandom(8).hex()}", spec)
    try:
        async with Guest(await provider.guest(seen.ref)) as guest:
            yield seen.ref, guest
    finally:
        await provider.destroy(seen.ref)


async def exhaust(provider: Provider, held: AsyncExitStack) -> None:
    """A sandbox in which first root and then the user takes everything."""
    _, guest = await held.enter_async_context(sandbox(provider))
    wait = "until [ -s /tmp/taken ]; do sleep 0.05; done; cat /tmp/taken; rm /tmp/taken"
    for user in ("root", "user"):
        await guest.runs.start(user, ["python3", "-c", _GREEDY, "100000"], user=user)
        taken = json.loads((await guest.exec(["sh", "-c", wait], user="root")).stdout)
        if user == "root":
            assert 0 < taken["terminals"] <= 32
            assert 0 < taken["inotify"] <= 1024
            assert taken["pipes"] > 1


async def works_normally(guest: Guest) -> None:
    for user in ("root", "user"):
        done = await guest.exec(["python3", "-c", _GREEDY, "1"], user=user)
        assert json.loads(done.stdout) == {**_MODEST, "aio": 0}, user


def check_host() -> None:
    program = _GREEDY.replace("206", "-1")  # contexts of aio are the host's own business
    command = [sys.executable, "-c", program, "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {**_MODEST, "aio": 0}


async def check_neighbours(runtime: str, count: int) -> None:
    async with open_local(runtime=runtime) as provider, AsyncExitStack() as held:
        _, early = await held.enter_async_context(sandbox(provider))
        for begin in range(0, count, _AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for _ in range(begin, min(count, begin + _AT_ONCE)):
                    group.create_task(exhaust(provider, held))
        _, late = await held.enter_async_context(sandbox(provider))
        for neighbour in (early, late):
            await works_normally(neighbour)
        check_host()


@pytest.mark.parametrize(
    ("runtime", "count"),
    [
        ("crun", 3),
        pytest.param("runc", 3, marks=pytest.mark.slow),
        pytest.param("crun", 64, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
    ],
)
async def test_sandboxes_at_their_limits_leave_the_others_and_the_host_theirs(
    runtime: str, count: int, need: Need
) -> None:
    if runtime not in installed():
        need(runtime, "not installed")
    await check_neighbours(runtime, count)


async def test_no_two_sandboxes_have_an_id_in_common() -> None:
    async with (
        open_local() as provider,
        sandbox(provider) as (_, one),
        sandbox(provider) as (_, two),
    ):
        maps = [
            (await each.exec(["cat", "/proc/self/uid_map"])).stdout.split() for each in (one, two)
        ]
        firsts = sorted(int(found[1]) for found in maps)
        assert firsts[0] + int(maps[0][2]) <= firsts[1]


async def test_namespaces_are_limited_in_each_user_namespace() -> None:
    async with open_local() as provider, sandbox(provider) as (_, guest):
        shown = await guest.exec(["sh", "-c", "cd /proc/sys/user && grep . *"])
        found = dict(line.split(":") for line in shown.stdout.decode().splitlines())
        assert found.pop("max_inotify_instances") == "1024"
        assert found.pop("max_inotify_watches") == "524288"
        assert found
        assert set(found.values()) == {"0"}


async def test_contexts_of_aio_which_the_host_counts_for_all_are_refused(fenced: Fenced) -> None:
    if fenced.has_own_kernel:
        return  # it counts them itself
    async with sandbox(fenced.provider) as (_, guest):
        done = await guest.exec(["python3", "-c", _GREEDY, "1"], user="root")
        assert json.loads(done.stdout)["aio"] == 0


async def test_an_open_network_has_one_neighbour_only() -> None:
    """The table of neighbours is one for the whole host."""
    async with open_local() as provider, sandbox(provider, egress=OPEN) as (_, guest):
        program = (
            "import socket\n"
            "one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "one.connect(('192.0.2.1', 9))\n"
            "network = one.getsockname()[0].rsplit('.', 1)[0]\n"
            "for last in range(3, 250):\n"
            "    try: one.sendto(b'x', (f'{network}.{last}', 9))\n"
            "    except OSError: pass\n"
            "six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
            "for last in range(1, 100):\n"
            "    try: six.sendto(b'x', (f'fe80::{last}', 9, 0, socket.if_nametoindex('eth0')))\n"
            "    except OSError: pass\n"
            "print(len(open('/proc/net/arp').readlines()) - 1)\n"
            "print(open('/proc/net/if_inet6').read().count('eth0'))\n"
        )
        done = await guest.exec(["python3", "-c", program])
        assert done.stdout == b"1\n0\n", done.stderr
