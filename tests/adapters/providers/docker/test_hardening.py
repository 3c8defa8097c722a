"""What a sandbox on an engine is not given, seen from inside and in the engine's own words."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.container import CAPABILITIES
from paddock.adapters.providers.docker.engine import Engine
from paddock.domain.sandbox import Resources
from paddock.guest_client import Guest
from paddock.ports.provider import Observation, SandboxSpec
from tests.adapters.providers.docker.conftest import BASE, Installation

LIMITS = Resources(cpus=0.5, memory_mib=192, disk_mib=512, pids=77)
STATUS = (
    "import re; print(dict(re.findall(r'(\\w+):\\s+(\\w+)\\n', open('/proc/self/status').read())))"
)


class Inside:
    """A sandbox with both views of it."""

    def __init__(self, installation: Installation, seen: Observation, guest: Guest) -> None:
        self.installation = installation
        self.seen = seen
        self.guest = guest

    async def sh(self, script: str, user: str = "user") -> str:
        result = await self.guest.exec(["sh", "-c", script], user=user)
        return (result.stdout + result.stderr).decode().strip()

    async def status(self, user: str) -> dict[str, str]:
        said = await self.guest.exec(["python3", "-c", STATUS], user=user)
        found: dict[str, str] = json.loads(said.text.replace("'", '"'))
        return found


@pytest.fixture(scope="module", params=["joined", pytest.param("packed", marks=pytest.mark.slow)])
async def inside(
    request: pytest.FixtureRequest, engine_host: str, base_image: str, short_directory: Path
) -> AsyncIterator[Inside]:
    """One sandbox for all, which only look at it."""
    installation = Installation(engine_host, short_directory)
    async with installation.opened(guest=request.param, nofile=4321) as provider:
        seen = await provider.create("fenced", SandboxSpec(template=BASE, resources=LIMITS))
        async with Guest(await provider.guest(seen.ref)) as guest:
            yield Inside(installation, seen, guest)
    await installation.empty()
    assert await installation.left() == {}


@pytest.mark.proves("P6", "P10")
async def test_a_command_has_no_capability_and_cannot_win_any(inside: Inside) -> None:
    status = await inside.status("user")
    assert [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")] == [0] * 4
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert "no new privileges" in await inside.sh("sudo -n true")


@pytest.mark.proves("P10")
async def test_root_inside_has_only_what_the_guest_needs(inside: Inside) -> None:
    numbers = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
    assert set(numbers) == set(CAPABILITIES)
    status = await inside.status("root")
    mask = sum(1 << number for number in numbers.values())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == mask
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


async def test_threads_and_children_work_under_the_filter(inside: Inside) -> None:
    program = (
        "import threading as t; x = t.Thread(target=print, args=('ran',)); x.start(); x.join()"
    )
    assert (await inside.guest.exec(["python3", "-c", program])).text == "ran\n"
    # A namespace of one's own would come with every capability over it.
    assert "Operation not permitted" in await inside.sh("unshare --user true")
    assert "not permitted" in await inside.sh("unshare --mount true", user="root")


@pytest.mark.proves("P6", "P10")
async def test_limits_are_those_of_the_spec(inside: Inside) -> None:
    assert await inside.sh("nproc") == "1"
    assert await inside.sh("ulimit -n; ulimit -Hn; ulimit -c") == "4321\n4321\n0"
    cgroup = "cat /sys/fs/cgroup/%s 2>/dev/null || cat /sys/fs/cgroup/%s"
    memory = await inside.sh(cgroup % ("memory/memory.limit_in_bytes", "memory.max"))
    assert int(memory) == LIMITS.memory_mib << 20
    assert await inside.sh(cgroup % ("pids/pids.max", "pids.max")) == str(LIMITS.pids)
    quota = await inside.sh(cgroup % ("cpu/cpu.cfs_quota_us", "cpu.max"))
    assert quota.split()[0] == str(int(LIMITS.cpus * 100_000))


@pytest.mark.proves("P10")
async def test_no_socket_of_an_engine_and_no_device_is_inside(inside: Inside) -> None:
    found = "find / -xdev -name '*.sock' -not -path '/run/paddock-guest.sock' 2>/dev/null"
    assert await inside.sh(found, user="root") == ""
    assert await inside.sh("ls -d /var/run/docker.sock /run/docker.sock /run/podman", "root") != ""
    assert await inside.sh("find /dev -type b", user="root") == ""
    mounted = await inside.sh("cut -d' ' -f2 /proc/mounts")
    assert "docker" not in mounted.replace("/etc/", "")


@pytest.mark.proves("P10")
async def test_the_kernels_files_are_hidden_or_read_only(inside: Inside) -> None:
    assert "Read-only file system" in await inside.sh("echo 1 > /proc/sys/kernel/hostname", "root")
    assert await inside.sh("cat /proc/keys /proc/timer_list", user="root") == ""
    assert await inside.sh("ls /sys/firmware", user="root") == ""
    assert "Read-only" in await inside.sh("mkdir /sys/fs/cgroup/memory/x", user="root")


@pytest.mark.proves("P10")
async def test_run_is_in_memory_and_the_rest_can_be_written(inside: Inside) -> None:
    assert await inside.sh("stat -f -c %T /run") == "tmpfs"
    assert await inside.sh("touch /usr/local/installed && ls /usr/local/installed", "root") == (
        "/usr/local/installed"
    )


@pytest.mark.proves("P10")
async def test_the_engine_was_told_to_publish_and_keep_nothing(inside: Inside) -> None:
    async with Engine(EngineAddress.parse(inside.installation.host)) as engine:
        told = await engine.get(f"containers/{inside.seen.ref.id}/json", "look")
    host = told["HostConfig"]
    assert not host["Privileged"]
    assert not host["PortBindings"]
    assert not host["PublishAllPorts"]
    assert host["RestartPolicy"]["Name"] == "no"
    assert host["LogConfig"]["Type"] == "none"
    assert host["NetworkMode"] == "none"
    assert not host["Init"]
    assert host["Memory"] == host["MemorySwap"]
    binds = [mount["Source"] for mount in told["Mounts"] if mount["Type"] == "bind"]
    assert all(mount["RW"] is False for mount in told["Mounts"] if mount["Type"] == "bind")
    assert not any("docker" in source or "podman" in source for source in binds)
