"""What the launcher mounts: each layer once, under a name of its own, until it is let go of."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.adapters.providers.host.launch_control import LaunchControl
from paddock.domain.errors import Broken

pytestmark = pytest.mark.timeout(60)

IDS = (100_000, 65_536)


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[LaunchControl]:
    control = LaunchControl(tmp_path / "run")
    try:
        yield control
    finally:
        await control.aclose()


def layer(path: Path) -> Path:
    path.mkdir()
    (path / "name").write_text(f"{path.name}\n")
    return path


async def shown(launch: LaunchControl) -> list[str]:
    """The names of the layers that the launcher sees mapped."""
    look = f"for one in {launch.run_dir}/mounts/lower-*; do cat $one/name; done"
    return sorted((await launch.run(["sh", "-c", look], timeout=10)).output.split())


async def mounted(launch: LaunchControl) -> int:
    table = (await launch.run(["cat", "/proc/self/mountinfo"], timeout=10)).output
    return table.count(f" {launch.run_dir}/mounts/lower-")


@pytest.mark.usefixtures("as_root")
async def test_a_layer_is_never_shown_in_the_place_of_another(
    launch: LaunchControl, tmp_path: Path
) -> None:
    first, second, third = (layer(tmp_path / name) for name in ("first", "second", "third"))
    for lower in (first, second, second):
        await launch.idmap(lower, *IDS)
    await launch.forget(first)
    await launch.idmap(third, *IDS)
    assert await shown(launch) == ["second", "third"]
    await launch.forget(second)
    await launch.forget(third)
    await launch.forget(first)
    assert await mounted(launch) == 0


@pytest.mark.usefixtures("as_root")
async def test_a_layer_that_was_made_anew_is_shown_anew(
    launch: LaunchControl, tmp_path: Path
) -> None:
    """As when another process has removed the template and built it again."""
    lower = layer(tmp_path / "lower")
    await launch.idmap(lower, *IDS)
    shutil.rmtree(lower)
    with pytest.raises(Broken):
        await launch.idmap(lower, *IDS)
    layer(tmp_path / "lower")
    await launch.idmap(lower, *IDS)
    assert await shown(launch) == ["lower"]
    assert await mounted(launch) == 1
