"""What cannot be done is refused with the thing's name and the way out, and nothing half made."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock.adapters.providers.local import runtime
from paddock.domain.egress import OPEN
from paddock.domain.errors import (
    Broken,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PaddockError,
    Refused,
)
from paddock.domain.ids import new_id, new_ulid
from paddock.domain.sandbox import Resources
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.domain.volume import VOLUME_PREFIX
from paddock.guest_client import Guest
from paddock.ports.provider import Ref, SandboxSpec
from tests.adapters.providers.local.conftest import Installation

pytestmark = pytest.mark.timeout(120)


async def test_an_unknown_template_is_named_with_those_that_exist(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        with pytest.raises(NotFound) as caught:
            await provider.create("k", SandboxSpec(template="no-such-template"))
    assert "no-such-template" in caught.value.message
    assert "tiny" in str(caught.value)
    assert "base" in str(caught.value)
    installation.assert_no_traces()


@pytest.mark.proves("L7")
@pytest.mark.parametrize(
    ("name", "value"), [("cpus", 0), ("memory_mib", 0), ("disk_mib", 0), ("pids", 0), ("pids", -1)]
)
def test_a_limit_of_zero_is_refused_before_anything_is_made(name: str, value: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Resources(**{name: value})
    assert name in caught.value.message
    assert "at least" in caught.value.message


@pytest.mark.proves("L7", "P13")
@pytest.mark.parametrize(
    ("name", "value"), [("cpus", 10_000.0), ("memory_mib", 1 << 30), ("disk_mib", 1 << 40)]
)
async def test_a_limit_beyond_the_host_is_refused_with_what_there_is(
    installation: Installation, name: str, value: float
) -> None:
    async with installation.opened() as provider:
        with pytest.raises(InvalidRequest) as caught:
            await provider.create(
                "k", SandboxSpec(template="tiny", resources=Resources(**{name: value}))
            )
    assert name in caught.value.message
    assert "only" in caught.value.message
    installation.assert_no_traces()


@pytest.mark.proves("P11")
async def test_a_template_whose_set_up_fails_leaves_nothing_and_can_be_tried_again(
    installation: Installation, tiny_root: Path
) -> None:
    source = TemplateSource(SourceKind.DIRECTORY, str(tiny_root))
    async with installation.opened() as provider:
        provider.templates.add(
            Template("flawed", source, setup=("touch /made", "echo on the way; exit 7"))
        )
        with pytest.raises(Refused) as caught:
            await provider.create("k", SandboxSpec(template="flawed"))
        assert "exit 7" in caught.value.message
        assert "on the way" in str(caught.value)
        installation.assert_no_traces()
        provider.templates.add(Template("flawed", source, setup=("touch /made",)))
        seen = await provider.create("k", SandboxSpec(template="flawed"))
        async with Guest(await provider.guest(seen.ref)) as guest:
            assert (await guest.exec(["ls", "/made"])).exit_code == 0
        await provider.destroy(seen.ref)
    installation.assert_no_traces()


@pytest.mark.usefixtures("as_root")
def test_a_missing_runtime_says_how_to_get_it(tmp_path: Path) -> None:
    """On a host without any: in a mount namespace where the programs are covered up."""
    covered = " ".join(found.program for found in runtime.installed().values())
    hide = f"for program in {covered}; do mount --bind /dev/null $program; done"
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from paddock.adapters.providers.local.config import LocalConfig\n"
        "from paddock.adapters.providers.local.provider import LocalProvider\n"
        "from paddock.domain.errors import Unavailable\n"
        "try: asyncio.run(LocalProvider.open(LocalConfig(data_dir=Path(sys.argv[1]))))\n"
        "except Unavailable as error: print(error.remediation)\n"
    )
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-ec", f'{hide}; exec "$0" "$@"'),
            *(sys.executable, "-c", program, str(tmp_path / "data")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "crun" in done.stdout, done.stderr
    assert not (tmp_path / "data").exists()


async def test_an_unknown_runtime_lists_the_known_ones(installation: Installation) -> None:
    async with installation.opened() as provider:
        with pytest.raises(InvalidRequest) as caught:
            await provider.create("k", SandboxSpec(template="tiny", runtime="qemu"))
    assert "crun, runc, runsc" in caught.value.remediation
    installation.assert_no_traces()


async def test_a_corrupt_record_is_named_and_harms_nobody_else(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        good = await provider.create("good", SandboxSpec(template="tiny"))
        bad = await provider.create("bad", SandboxSpec(template="tiny"))
    record = installation.layout.record(bad.ref.id)
    original = record.read_bytes()
    record.write_bytes(original[: len(original) // 2])

    async with installation.opened() as provider:
        assert [seen.key async for seen in provider.find({})] == ["good"]
        async with Guest(await provider.guest(good.ref)) as guest:
            assert (await guest.exec(["true"])).exit_code == 0
        with pytest.raises(Broken) as caught:
            await provider.observe(bad.ref)
        assert str(record) in caught.value.message
        assert caught.value.remediation

    # Nothing of it was swept: with the record restored it is there again, running.
    record.write_bytes(original)
    async with installation.opened() as provider:
        async with Guest(await provider.guest(bad.ref)) as guest:
            assert (await guest.exec(["true"])).exit_code == 0


def empty(record: Path) -> None:
    record.write_bytes(b"")


def zeroed(record: Path) -> None:
    record.write_bytes(bytes(record.stat().st_size))


@pytest.mark.parametrize("damage", [empty, zeroed])
async def test_a_record_that_was_lost_with_the_power_is_named_and_can_be_removed(
    installation: Installation, damage: Callable[[Path], None]
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        taken = await provider.snapshot(seen.ref, "s")
    records = (
        installation.layout.record(seen.ref.id),
        installation.layout.snapshot_record(taken.ref.id),
    )
    for record in records:
        damage(record)
    async with installation.opened() as provider:
        health = await provider.check()
        named = [finding.found for finding in health.findings if finding.name == "record"]
        assert len(named) == 2
        assert all(str(record) in " ".join(named) for record in records)
        assert health.usable
        assert [one async for one in provider.snapshots()] == []
        assert {path.name for path in (provider._life.storage.pool / "snapshots").iterdir()} == {
            taken.ref.id
        }, "nothing is swept that a person may want to restore"
        with pytest.raises(Broken) as caught:
            await provider.observe(seen.ref)
        assert f"{records[0]} cannot be read: it is empty" in caught.value.message
        assert f"paddock sandbox rm --force local/{seen.ref.id}" in caught.value.remediation
        with pytest.raises(Broken, match="it is empty"):
            await provider.create("k", SandboxSpec(template="tiny"))
        await provider.destroy(seen.ref)
        await provider.delete_snapshot(taken.ref)
        assert (await provider.create("k", SandboxSpec(template="tiny"))).state == "running"
        await installation.empty(provider)
    async with installation.opened():
        pass
    installation.assert_no_traces()


async def test_what_belongs_to_a_record_that_was_removed_by_hand_is_swept(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        taken = await provider.snapshot(seen.ref, "s")
    installation.layout.record(seen.ref.id).unlink()
    installation.layout.snapshot_record(taken.ref.id).unlink()
    async with installation.opened():
        pass
    installation.assert_no_traces()


@pytest.mark.parametrize("ref", ["../../etc", "", "x" * 5000, "sb\0x", "01m7gg/../.."])
async def test_a_hostile_reference_is_just_not_found(installation: Installation, ref: str) -> None:
    async with installation.opened() as provider:
        with pytest.raises(NotFound):
            await provider.observe(Ref("local", ref))
        with pytest.raises(NotFound):
            await provider.destroy(Ref("local", ref))


async def test_asking_for_sandboxes_that_never_were_leaves_nothing(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        ref = Ref("local", new_ulid())
        asked = (
            provider.observe(ref),
            provider.pause(ref),
            provider.resume(ref),
            provider.stop(ref),
            provider.start(ref),
            provider.snapshot(ref, "s"),
            provider.fork(ref, "f", SandboxSpec()),
            provider.set_egress(ref, OPEN),
        )
        for call in asked:
            with pytest.raises(NotFound):
                await call
        await provider.destroy(ref)
        installation.assert_no_traces()


@pytest.fixture
def small_disk(as_root: None) -> Iterator[Path]:
    """A file system of its own with hardly any room."""
    home = Path(tempfile.mkdtemp(prefix="paddock-full-", dir="/var/tmp"))
    image, point = home / "disk.img", home / "disk"
    point.mkdir()
    image.touch()
    os.truncate(image, 256 << 20)
    subprocess.run(["mkfs.btrfs", "-q", "-m", "single", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)
        shutil.rmtree(home)


@pytest.mark.proves("L7")
async def test_a_full_disk_is_said_and_leaves_nothing_half_made(
    small_disk: Path, tiny_root: Path
) -> None:
    installation = Installation(small_disk / "data")
    limits = Resources(disk_mib=64)
    async with installation.opened() as provider:
        provider.templates.add(
            Template("tiny", TemplateSource(SourceKind.DIRECTORY, str(tiny_root)))
        )
        first = await provider.create("first", SandboxSpec(template="tiny", resources=limits))
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space left"), filler.open("wb") as file:
            block = os.urandom(1 << 20)
            while True:
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
        failures = []
        for number in range(20):
            try:
                await provider.create(f"n{number}", SandboxSpec(template="tiny", resources=limits))
            except PaddockError as error:
                failures.append(error)
        filler.unlink()
        for failure in failures:
            assert isinstance(failure, LimitExceeded | Broken), failure
            assert "space" in str(failure).lower() or "full" in str(failure).lower(), failure
        async with Guest(await provider.guest(first.ref)) as guest:
            assert (await guest.exec(["true"])).exit_code == 0
        await installation.empty(provider)
    installation.assert_no_traces()


async def test_without_root_the_error_says_what_to_do_instead() -> None:
    program = (
        "import asyncio\n"
        "from paddock.adapters.providers.local.config import LocalConfig\n"
        "from paddock.adapters.providers.local.provider import LocalProvider\n"
        "from paddock.domain.errors import Unavailable\n"
        "import os\n"
        "if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        "try: asyncio.run(LocalProvider.open(LocalConfig()))\n"
        "except Unavailable as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "needs root" in done.stdout
    assert "docker" in done.stdout


async def test_a_volume_beyond_the_host_is_refused_with_what_there_is(
    installation: Installation,
) -> None:
    """Issue: volume sizes beyond the host."""
    async with installation.opened() as provider:
        volume = new_id(VOLUME_PREFIX)
        with pytest.raises(InvalidRequest, match="MiB or less"):
            await provider.create_volume(volume, 1 << 40)
        with pytest.raises(NotFound):
            await provider.open_volume(volume)
