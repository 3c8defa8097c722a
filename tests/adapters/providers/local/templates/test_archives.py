"""Tar files of root file systems, good and hostile."""

import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.templates import TemplateStore
from paddock.domain.errors import InvalidRequest, LimitExceeded

from .conftest import from_tar, left_over, no_setup


@pytest.fixture(params=["copy"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.xz", "tar.zst"])
async def test_archives_are_unpacked_whatever_compresses_them(
    store: TemplateStore, tree: Path, tmp_path: Path, suffix: str
) -> None:
    os.setxattr(tree / "usr/bin/tool", "user.note", b"kept")
    os.setxattr(tree / "usr", "trusted.overlay.redirect", b"/elsewhere")
    archive = tmp_path / f"root.{suffix}"
    command = ["tar", "--xattrs", "--xattrs-include=*", "--auto-compress", "-cf", str(archive)]
    subprocess.run([*command, "-C", str(tree), "."], check=True)
    build = await store.ensure(from_tar(archive), setup_runner=no_setup)
    tool = build.lower / "usr/bin/tool"
    assert tool.stat().st_mode & 0o7777 == 0o4755
    assert tool.stat().st_ino == (build.lower / "usr/bin/same").stat().st_ino
    assert os.getxattr(tool, "user.note") == b"kept"
    assert "trusted.overlay.redirect" not in os.listxattr(build.lower / "usr")
    assert (build.lower / "usr/lib").stat().st_uid == 33
    assert (build.lower / "etc/mtab").readlink() == Path("/proc/mounts")
    assert build.lower.stat().st_mode & 0o777 == 0o755


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def hard_link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.LNKTYPE, target
    return member


def node(name: str, kind: bytes, major: int, minor: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.devmajor, member.devminor = kind, major, minor
    return member


HOSTILE: dict[str, Callable[[str], list[tarfile.TarInfo]]] = {
    "a name with ..": lambda out: [tarfile.TarInfo("etc/../../escaped")],
    "a name that climbs to an absolute path": lambda out: [
        tarfile.TarInfo(f"../../..{out}/escaped")
    ],
    "a file through an absolute link": lambda out: [
        link("way", out),
        tarfile.TarInfo("way/escaped"),
    ],
    "a file through a climbing link": lambda out: [
        link("usr/way", "../../../.."),
        tarfile.TarInfo("usr/way/tmp/escaped"),
    ],
    "a file through a link with dots in its name": lambda out: [
        link("./way", out),
        tarfile.TarInfo("way/./deeper/escaped"),
    ],
    "a hard link that climbs": lambda out: [hard_link("stolen", "../../../../etc/shadow")],
    "a file through a hard link to a link": lambda out: [
        link("way", out),
        hard_link("again", "way"),
        tarfile.TarInfo("again/escaped"),
    ],
}


@pytest.mark.parametrize("attack", HOSTILE)
async def test_an_archive_that_would_escape_is_refused(
    store: TemplateStore, storage: Storage, tmp_path: Path, attack: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    archive = tmp_path / "hostile.tar"
    with tarfile.open(archive, "w") as tar:
        for member in HOSTILE[attack](str(outside)):
            tar.addfile(member)
    with pytest.raises(InvalidRequest, match="would land outside"):
        await store.ensure(from_tar(archive), setup_runner=no_setup)
    assert list(outside.iterdir()) == []
    assert not list(tmp_path.rglob("escaped"))
    assert left_over(storage) == []
    assert store.builds() == []


async def test_absolute_names_land_inside(store: TemplateStore, tmp_path: Path) -> None:
    archive = tmp_path / "absolute.tar"
    content = b"inside"
    member = tarfile.TarInfo("/etc/inside")
    member.size = len(content)
    with tarfile.open(archive, "w") as tar:
        tar.addfile(member, io.BytesIO(content))
    build = await store.ensure(from_tar(archive), setup_runner=no_setup)
    assert (build.lower / "etc/inside").read_bytes() == content
    assert not Path("/etc/inside").exists()


async def test_device_nodes_stay_out_and_whiteouts_stay_in(
    store: TemplateStore, tmp_path: Path
) -> None:
    archive = tmp_path / "devices.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(node("dev/disk", tarfile.BLKTYPE, 254, 0))
        tar.addfile(node("mem", tarfile.CHRTYPE, 1, 1))
        tar.addfile(node("etc/whiteout", tarfile.CHRTYPE, 0, 0))
        tar.addfile(node("etc/pipe", tarfile.FIFOTYPE, 0, 0))
    build = await store.ensure(from_tar(archive), setup_runner=no_setup)
    assert not (build.lower / "dev/disk").exists()
    assert not (build.lower / "mem").exists()
    assert stat.S_ISCHR((build.lower / "etc/whiteout").lstat().st_mode)
    assert (build.lower / "etc/pipe").is_fifo()


@pytest.mark.parametrize("content", [b"no archive at all" * 100, b"\x28\xb5\x2f\xfd broken", b""])
async def test_what_is_no_archive_is_refused(
    store: TemplateStore, storage: Storage, tmp_path: Path, content: bytes
) -> None:
    archive = tmp_path / "odd.tar"
    archive.write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"odd\.tar"):
        await store.ensure(from_tar(archive), setup_runner=no_setup)
    assert left_over(storage) == []


class TestOnASmallPool:
    """An image that does not fit."""

    @pytest.fixture(params=["btrfs-loop"])
    def driver(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    async def test_a_template_larger_than_the_pool_is_a_limit_exceeded(
        self, store: TemplateStore, storage: Storage, tmp_path: Path
    ) -> None:
        archive = tmp_path / "large.tar"
        block = os.urandom(1 << 20)
        with (tmp_path / "large").open("wb") as file:
            for _ in range(310):
                file.write(block)
        with tarfile.open(archive, "w") as tar:
            tar.add(tmp_path / "large", "large")
        with pytest.raises(LimitExceeded):
            await store.ensure(from_tar(archive), setup_runner=no_setup)
        assert left_over(storage) == []
