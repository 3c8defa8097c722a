"""Mounts in a sandbox: issues "crun drops nosuid", "undeletable volume" and "host paths"."""

import os
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paddock.adapters.providers.local.binds import check_attributes
from paddock.domain.errors import Broken, NotFound
from paddock.domain.ids import new_id
from paddock.domain.volume import VOLUME_PREFIX, VolumeMount
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.security.conftest import Fenced

pytestmark = pytest.mark.timeout(120)
_SUBVOLUMES = {
    "SUBVOL_CREATE": 0x5000940E,
    "SUBVOL_CREATE_V2": 0x50009418,
    "SNAP_CREATE": 0x50009401,
    "SNAP_CREATE_V2": 0x50009417,
    "SUBVOL_SETFLAGS": 0x4008941A,
    "SUBVOL_CREATE, as 64 bits": 0x1_5000_940E,
}


@asynccontextmanager
async def sandbox_with_volume(fenced: Fenced) -> AsyncIterator[Guest]:
    """A sandbox with one volume at /data and /seen, where it may only be read; on providers
    without volumes, with two directories there."""
    provider, volume = fenced.provider, new_id(VOLUME_PREFIX)
    spec = SandboxSpec(template=fenced.template)
    if provider.capabilities.volumes:
        await provider.create_volume(volume, None)
        mounted = VolumeMount(volume, "/data"), VolumeMount(volume, "/seen", read_only=True)
        spec = SandboxSpec(template=fenced.template, volumes=mounted)
    seen = await provider.create(f"mounts-{os.urandom(8).hex()}", spec)
    try:
        async with Guest(await provider.guest(seen.ref)) as guest:
            await guest.exec(["mkdir", "-p", "/data", "/seen"], user="root")
            yield guest
    finally:
        await provider.destroy(seen.ref)
        if provider.capabilities.volumes:
            await provider.delete_volume(volume)
            with pytest.raises(NotFound):
                await provider.open_volume(volume)


@pytest.fixture(scope="module")
async def inside(fenced: Fenced) -> AsyncIterator[Guest]:
    async with sandbox_with_volume(fenced) as guest:
        yield guest


async def attributes(guest: Guest) -> dict[str, set[str]]:
    table = (await guest.exec(["cat", "/proc/self/mountinfo"])).stdout.decode()
    fields = [line.split(" ") for line in table.splitlines()]
    return {each[4]: set(each[5].split(",")) for each in fields}


async def test_writable_mounts_keep_set_user_id_programs_and_devices_from_working(
    fenced: Fenced, inside: Guest
) -> None:
    if fenced.has_own_kernel or not fenced.provider.capabilities.volumes:
        return  # its mounts are made by another kernel, or there are none of the host's disks
    found = await attributes(inside)
    assert found["/data"] >= {"rw", "nosuid", "nodev"}
    assert found["/seen"] >= {"ro", "nosuid", "nodev"}
    assert found["/run/paddock"] >= {"rw", "nosuid", "nodev", "noexec"}


def test_a_sandbox_whose_runtime_dropped_attributes_is_refused() -> None:
    """The mount table of this process stands for one: the host's disks are mounted in it."""
    with pytest.raises(Broken, match="nosuid"):
        check_attributes("a sandbox", os.getpid())


async def test_a_local_user_of_the_host_reaches_no_file_of_a_sandbox(
    fenced: Fenced, inside: Guest
) -> None:
    """Neither as a stranger nor with the IDs of the files, which `newuidmap` gives to accounts."""
    if not fenced.provider.capabilities.volumes:
        return  # an engine keeps the files of its containers where only root gets
    opened = "chmod 777 / /data; for at in / /data; do cp /bin/true $at/tool; chmod 4755 $at/tool"
    await inside.exec(["sh", "-c", f"{opened}; done"], user="root")
    (pool,) = [each / "pool" for each in fenced.data_directories if (each / "pool").is_dir()]
    tools = list(pool.glob("*/*/upper/tool"))
    assert len(tools) == 2
    assert all(path.stat().st_mode & stat.S_ISUID for path in tools)
    for path in tools:
        for user in (65534, path.parent.parent.stat().st_uid or 65534):
            with pytest.raises(PermissionError):
                subprocess.run([path], user=user, group=user, extra_groups=[], check=False)
    await inside.exec(["rm", "/tool", "/data/tool"], user="root")


@pytest.mark.parametrize("request_name", _SUBVOLUMES)
async def test_no_subvolume_is_made_inside(inside: Guest, request_name: str) -> None:
    program = (
        "import ctypes, os, struct\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "directory = os.open('/data', os.O_RDONLY)\n"
        "asked = ctypes.create_string_buffer(struct.pack('=q4088s', 0, b'within'))\n"
        f"done = libc.ioctl(directory, ctypes.c_ulong({_SUBVOLUMES[request_name]}), asked)\n"
        "print(done, os.listdir('/data'))\n"
    )
    done = await inside.exec(["python3", "-c", program], user="root")
    assert (done.stdout, done.stderr) == (b"-1 []\n", b"")


async def test_files_still_share_their_blocks(fenced: Fenced, inside: Guest) -> None:
    """Cloning a file is a request of btrfs's kind, and every file system has it."""
    tried = "echo x > /tmp/a && cp --reflink=auto /tmp/a /tmp/b && cat /tmp/b"
    assert (await inside.exec(["sh", "-c", tried], user="root")).stdout == b"x\n"


async def test_disks_of_the_host_are_not_shown(fenced: Fenced, inside: Guest) -> None:
    if fenced.has_own_kernel:
        return
    places = "/sys/fs/btrfs /sys/block /sys/class/block /sys/devices/virtual/block"
    files = "/proc/partitions /proc/diskstats /proc/swaps"
    shown = f"ls -A {places} | grep -v : ; cat {files}"
    done = await inside.exec(["sh", "-c", shown], user="root")
    assert done.stdout.split() == []


async def test_the_root_is_mounted_without_paths_of_the_host(fenced: Fenced, inside: Guest) -> None:
    if fenced.has_own_kernel or not fenced.provider.capabilities.volumes:
        return  # an engine mounts the root of its containers itself
    table = (await inside.exec(["cat", "/proc/self/mountinfo"])).stdout.decode()
    (root,) = [line for line in table.splitlines() if " / / " in line]
    paths = [each for each in root.partition(" - ")[2].split(",") if "dir=" in each]
    assert paths
    assert not any("=/" in each or ":/" in each for each in paths)
