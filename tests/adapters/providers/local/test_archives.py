"""A disk that is packed up comes back as it was, whatever is on it and whatever goes wrong."""

import asyncio
import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from paddock.adapters.providers.local import packing
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.errors import Broken, LimitExceeded
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.guest_client import Guest
from paddock.ports.provider import Ref, SandboxSpec
from tests.adapters.providers.local.conftest import Installation
from tests.adapters.providers.local.storage.disks import disk, unmounted_afterwards
from tests.adapters.providers.local.traces import look

pytestmark = pytest.mark.timeout(180)
SMALL = Resources(disk_mib=64)
DRIVERS = {"btrfs": "", "reflink": "xfs", "copy": "ext4"}
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, rights, who)
    for tag, rights, who in (
        (0x01, 6, 0xFFFFFFFF),
        (0x02, 4, 112_345),
        (0x04, 4, 0xFFFFFFFF),
        (0x10, 4, 0xFFFFFFFF),
        (0x20, 0, 0xFFFFFFFF),
    )
)


@pytest.fixture
def place() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="paddock-test-", dir="/var/tmp"))
    try:
        with ExitStack() as stack:
            stack.enter_context(unmounted_afterwards(home))
            yield home
    finally:
        shutil.rmtree(home)


async def make(provider: LocalProvider, key: str = "one", **changes: object) -> Ref:
    return (await provider.create(key, SandboxSpec(template="tiny", **changes))).ref


async def sh(provider: LocalProvider, ref: Ref, script: str, user: str = "root") -> str:
    async with Guest(await provider.guest(ref)) as guest:
        result = await guest.exec(["sh", "-c", script], user=user, timeout=60)
    assert result.exit_code == 0, result.stderr
    return result.text.strip()


def listed(tree: Path) -> dict[str, object]:
    """Everything that the host sees of an overlay's upper directory."""
    found = {}
    for path in [tree, *sorted(tree.rglob("*"))]:
        about = path.lstat()
        names = os.listxattr(path, follow_symlinks=False)
        found[str(path.relative_to(tree))] = (
            oct(about.st_mode),
            (about.st_uid, about.st_gid, about.st_rdev),
            # The kernel keeps a link of its own to a whiteout, outside of the tree.
            None if path.is_char_device() else about.st_nlink,
            about.st_mtime_ns,
            {name: os.getxattr(path, name, follow_symlinks=False) for name in names},
            path.readlink() if path.is_symlink() else None,
            about.st_size if path.is_file() else None,
            path.read_bytes() if path.is_file() and about.st_size < 1 << 20 else None,
        )
    return found


def decorate(upper: Path) -> None:
    """What only the host's root could put there, and what is rare."""
    home = upper / "home/user"
    os.setxattr(home / "file", "user.note", bytes(range(256)))
    os.setxattr(home / "file", "security.capability", bytes.fromhex("01000002" + "00" * 16))
    os.setxattr(home / "file", "system.posix_acl_access", ACL)
    os.setxattr(home, "system.posix_acl_default", ACL)
    os.setxattr(home / "soft", "trusted.paddock.test", b"\0", follow_symlinks=False)
    os.utime(home / "file", ns=(1, 1_234_567_890_123_456_789))
    with (home / "sparse").open("wb") as file:
        file.truncate(1 << 30)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_every_driver_brings_back_all_that_an_overlay_has(
    driver: str, place: Path, tiny_root: Path
) -> None:
    with ExitStack() as stack:
        if DRIVERS[driver]:
            place = stack.enter_context(disk(DRIVERS[driver], 800, place))
        installation = Installation(place / "data", pool_size_mib=800)
        async with installation.opened(storage=driver) as provider:
            tiny = Template("tiny", TemplateSource(SourceKind.DIRECTORY, str(tiny_root)))
            provider.templates.add(tiny)
            ref = await make(provider, resources=SMALL)
            await sh(
                provider,
                ref,
                "rm /bin/yes; rm -r /var; mkdir /var; touch /var/new; cd /home/user; echo x > file;"
                "chown 12:56 file; chmod 4711 file; ln file hard; ln -s /gone soft; mkfifo pipe;"
                "seq 100000 > numbers; mknod device c 1 3 || true",
            )
            await provider.stop(ref)
            volume = provider._life.volume(ref.id)
            decorate(volume / "upper")
            before, used = listed(volume / "upper"), (await provider.usage(ref)).disk_bytes
            assert stat.S_ISCHR((volume / "upper/bin/yes").lstat().st_mode)
            assert os.getxattr(volume / "upper/var", "trusted.overlay.opaque") == b"y"

            assert (await provider.archive(ref)).state is SandboxState.ARCHIVED
            assert not volume.exists()
            assert (await provider.usage(ref)).disk_bytes < used / 2
            record = provider._life.records.read(ref.id)
            await provider._archives.bring_back(record)
            after = listed(volume / "upper")
            assert {name: (found, after.get(name)) for name, found in before.items()} == {
                name: (found, found) for name, found in before.items()
            }
            assert set(after) == set(before)
            assert (volume / "upper/home/user/sparse").stat().st_blocks < 100
            assert look(installation.data_dir).archives == set()

            await provider.start(ref)
            seen = await sh(
                provider, ref, "ls /bin/yes 2>/dev/null; ls /var; tail -1 ~user/numbers"
            )
            assert seen.split() == ["new", "100000"]
            await installation.empty(provider)
        installation.assert_no_traces()


async def fill(provider: LocalProvider, ref: Ref, name: str) -> int:
    script = f"dd if=/dev/urandom of=/home/user/{name} bs=1M count=200 2>/dev/null; sync; true"
    await sh(provider, ref, script)
    return int(await sh(provider, ref, f"stat -c %s /home/user/{name}")) >> 20


@pytest.mark.proves("P13")
async def test_the_disk_limit_is_what_it_was_also_for_a_fork(installation: Installation) -> None:
    async with installation.opened() as provider:
        ref = await make(provider, resources=SMALL)
        await sh(provider, ref, "dd if=/dev/urandom of=/home/user/base bs=1M count=30 2>/dev/null")
        fork = (await provider.fork(ref, "fork", SandboxSpec(resources=SMALL))).ref
        for one in (ref, fork):
            await provider.stop(one)
            await provider.archive(one)
            await provider.start(one)
        written = [await fill(provider, ref, "more"), await fill(provider, fork, "more")]
        assert 25 <= written[0] <= 34, written
        # What it shares with its source did not count, and does not count now.
        assert 50 <= written[1] <= 64, written
        await installation.empty(provider)


@pytest.mark.slow
async def test_an_archive_that_finds_no_room_leaves_the_sandbox_stopped(
    place: Path, tiny_root: Path
) -> None:
    with disk("ext4", 240, place) as small:
        installation = Installation(small / "data")
        async with installation.opened(storage="copy") as provider:
            tiny = Template("tiny", TemplateSource(SourceKind.DIRECTORY, str(tiny_root)))
            provider.templates.add(tiny)
            ref = await make(provider, resources=Resources(disk_mib=130))
            big = (
                "dd if=/dev/urandom of=/home/user/big bs=1M count=85 2>/dev/null; md5sum ~user/big"
            )
            digest = await sh(provider, ref, big)
            stopped = await provider.stop(ref)
            (small / "data/other").write_bytes(bytes(60 << 20))
            with pytest.raises(LimitExceeded, match="no room") as refused:
                await provider.archive(ref)
            assert "delete" in refused.value.remediation
            assert await provider.observe(ref) == stopped
            assert look(installation.data_dir).archives == set()

            (small / "data/other").unlink()
            await provider.archive(ref)
            (small / "data/other").write_bytes(bytes(75 << 20))
            with pytest.raises(LimitExceeded, match=r"has \d+ MiB to spare"):
                await provider.start(ref)
            assert (await provider.observe(ref)).state is SandboxState.ARCHIVED
            record = provider._life.records.read(ref.id)
            lying = type(record.archive)(0, 0)  # so that it is noticed by the one who unpacks only
            provider._life.records.change(record, archive=lying)
            with pytest.raises(LimitExceeded, match="no room") as refused:
                await provider.start(ref)
            left = look(installation.data_dir)
            assert (len(left.archives), left.volumes) == (1, set())
            assert (await provider.observe(ref)).state is SandboxState.ARCHIVED

            (small / "data/other").unlink()
            await provider.start(ref)
            assert await sh(provider, ref, "md5sum ~user/big") == digest
            await installation.empty(provider)
        installation.assert_no_traces()


def nest(place: Path, depth: int) -> None:
    """By descriptors, as a program inside could: no path may be that long."""
    directory = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("n" * 100, dir_fd=directory)
        inner = os.open("n" * 100, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)


async def test_what_could_not_be_unpacked_is_not_packed(installation: Installation) -> None:
    async with installation.opened() as provider:
        ref = await make(provider)
        stopped = await provider.stop(ref)
        nest(provider._life.volume(ref.id) / "upper", 60)
        with pytest.raises(LimitExceeded, match="longer than"):
            await provider.archive(ref)
        assert await provider.observe(ref) == stopped
        assert look(installation.data_dir).archives == set()
        await installation.empty(provider)


async def test_an_archive_that_is_damaged_or_gone_is_said_and_nothing_is_lost_by_trying(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        ref = await make(provider)
        await sh(provider, ref, "seq 100000 > /home/user/numbers")
        await provider.stop(ref)
        await provider.archive(ref)
        file = provider._archives.file(ref.id)
        whole = file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        for content in (whole[: len(whole) // 2], whole[:-200] + bytes(100) + whole[-100:]):
            file.write_bytes(content)
            with pytest.raises(Broken, match="ended with"):
                await provider.start(ref)
            assert (await provider.observe(ref)).state is SandboxState.ARCHIVED
            assert look(installation.data_dir).volumes == set()
        file.unlink()
        with pytest.raises(Broken, match="is not there"):
            await provider.start(ref)
        file.write_bytes(whole)
        await provider.start(ref)
        assert await sh(provider, ref, "tail -1 /home/user/numbers") == "100000"
        await installation.empty(provider)
    installation.assert_no_traces()


async def test_who_is_cancelled_leaves_one_copy(installation: Installation) -> None:
    async with installation.opened() as provider:
        ref = await make(provider)
        await sh(provider, ref, "dd if=/dev/urandom of=/home/user/big bs=1M count=40 2>/dev/null")
        await provider.stop(ref)
        for verb, before in ((provider.archive, "stopped"), (provider.start, "archived")):
            for moment in (0.0, 0.01, 0.04):
                task = asyncio.create_task(verb(ref))
                await asyncio.sleep(moment)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                left, seen = look(installation.data_dir), await provider.observe(ref)
                kept = {name for name in left.volumes if not name.startswith(".tmp-")}
                assert len(left.archives) + len(kept) == 1
                assert bool(left.archives) == (seen.state is SandboxState.ARCHIVED)
                if seen.state != before:
                    break
            await provider.stop(ref) if seen.state == "running" else None
            await provider.archive(ref)
        await installation.empty(provider)
        async with asyncio.timeout(20):  # for what was left to a program of its own
            while look(installation.data_dir).volumes:
                await asyncio.sleep(0.1)
    installation.assert_no_traces()


async def test_another_control_process_does_not_wait_for_an_archive(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        ref = await make(provider)
        await provider.stop(ref)
        async with provider._life.locks.hold(ref.id):
            record = provider._life.records.read(ref.id)
            provider._life.records.change(record, owner=provider._life.owner.id)
            async with asyncio.timeout(20), installation.opened() as other:
                assert (await other.observe(ref)).state is SandboxState.STOPPED
            provider._life.records.change(record, owner="")
        await installation.empty(provider)


def test_the_room_to_use_leaves_some_for_others(place: Path) -> None:
    with disk("ext4", 200, place) as small:
        free = os.statvfs(small)
        assert 0 < packing.free(small) < free.f_bavail * free.f_frsize - (8 << 20)
