"""Many sandboxes come, work and go; what is left afterwards is what was there before."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.domain.template import SourceKind, Template, TemplateSource
from tests.adapters.providers.local.conftest import Installation
from tests.adapters.providers.local.storage.disks import disk
from tests.harness.disk import REPOSITORY

pytestmark = [pytest.mark.timeout(300)]

MOST_BYTES = 32 << 20


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[Path]:
    """On the disk that tests share, others take and give back space all the time."""
    with disk("btrfs", 800, tmp_path) as point:
        yield point


@pytest.mark.proves("L5")
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.soak)])
async def test_many_sandboxes_leave_nothing(own_disk: Path, tiny_root: Path, count: int) -> None:
    installation = Installation(own_disk / "data")
    async with installation.opened() as provider:
        tiny = Template("tiny", TemplateSource(SourceKind.DIRECTORY, str(tiny_root)))
        provider.templates.add(tiny)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.adapters.providers.local.leak_program"),
        *(str(installation.data_dir), str(count)),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    found = json.loads(output)
    assert found["is clean"]
    before, after = found["before"], found["after"]
    # Pooled threads and their wake-up pipes come and stay.
    assert before.pop("descriptors") + 3 >= after.pop("descriptors")
    assert after == before
    assert abs(found["bytes"]) < MOST_BYTES
    installation.assert_no_traces()
