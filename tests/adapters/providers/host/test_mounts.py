"""What the launcher mounts: for as long as a program runs, with the owners of its sandbox."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.adapters.providers.host.launch_control import LaunchControl
from paddock.adapters.providers.host.mounts import Bind, Overlay
from paddock.adapters.providers.host.user_namespaces import Ids
from paddock.adapters.providers.local.storage import open_storage
from paddock.domain.errors import Broken

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("as_root")]
FIRST = 0x78000000
STORED = 100_000


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[LaunchControl]:
    control = LaunchControl(tmp_path / "run")
    try:
        yield control
    finally:
        await control.aclose()


@pytest.fixture
def ids(tmp_path: Path) -> Ids:
    (tmp_path / "user").touch()
    return Ids(FIRST, STORED, 65_536, str(tmp_path / "user"))


async def mounted(launch: LaunchControl, place: Path) -> int:
    table = (await launch.run(["cat", "/proc/self/mountinfo"], timeout=10)).output
    points = [line.split(" ")[4] for line in table.splitlines()]
    own = f"{launch.run_dir}/mounts"
    return sum(str(place) in point for point in points if point not in (own, f"{own}/cgroup"))


async def test_owners_are_shifted_from_what_is_stored_and_nothing_stays_mounted(
    launch: LaunchControl, ids: Ids, tmp_path: Path
) -> None:
    shown, stored = tmp_path / "shown", tmp_path / "stored"
    shown.mkdir()
    stored.mkdir()
    os.chown(stored, STORED + 1000, STORED + 1000)
    bind = Bind(str(stored), str(shown), stored=True)
    look = ["stat", "--format=%u %g", str(shown)]
    done = await launch.run(look, timeout=10, binds=[bind], ids=ids)
    assert done.output == f"{FIRST + 1000} {FIRST + 1000}\n"
    assert await mounted(launch, tmp_path) == 0


async def test_an_overlay_names_no_path_of_the_host(
    launch: LaunchControl, ids: Ids, tmp_path: Path
) -> None:
    for name in ("lower", "volume/upper", "volume/work", "root"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("volume", "volume/upper"):
        os.chown(tmp_path / name, STORED, STORED)
    (tmp_path / "lower" / "file").write_text("below\n")
    overlay = Overlay([str(tmp_path / "lower")], str(tmp_path / "volume"), str(tmp_path / "root"))
    look = f"stat --format=%u {tmp_path}/root/file && chown {FIRST} {tmp_path}/root/file"
    look += f" && grep ' overlay ' /proc/self/mountinfo | grep {tmp_path}/root"
    done = await launch.run(["sh", "-c", look], timeout=10, overlay=overlay, ids=ids)
    owner, table = done.output.splitlines()
    assert owner == str(FIRST)
    assert str(tmp_path) not in table.partition(" - ")[2]
    assert (tmp_path / "volume/upper/file").stat().st_uid == STORED
    assert await mounted(launch, tmp_path) == 0


async def test_a_mount_that_fails_takes_the_others_along(
    launch: LaunchControl, ids: Ids, tmp_path: Path
) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    binds = [Bind(str(tmp_path), str(shown), stored=True), Bind("/nowhere", str(shown))]
    with pytest.raises(Broken, match="nowhere"):
        await launch.run(["true"], timeout=10, binds=binds, ids=ids)
    assert await mounted(launch, tmp_path) == 0


async def test_a_launcher_holds_no_pool_of_another_installation(tmp_path: Path) -> None:
    """Otherwise its disk image stays in use after that installation was closed."""
    data = tmp_path / "data"
    data.mkdir()
    storage = open_storage(data, driver="btrfs", pool_size_mib=256)
    try:
        for own, is_seen in ((None, False), (data / "pool", True)):
            launch = LaunchControl(tmp_path / "run", pool=own)
            table = await launch.run(["cat", "/proc/self/mountinfo"], timeout=10)
            await launch.aclose()
            assert (f" {data}/pool " in table.output) is is_seen
    finally:
        storage.close(unmount=True)
