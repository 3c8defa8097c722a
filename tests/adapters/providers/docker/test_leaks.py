"""Many sandboxes made, used and destroyed leave no trace, on the engine or in the process."""

import asyncio
import json
import sys

import pytest

from tests.adapters.providers.docker.conftest import Installation
from tests.adapters.providers.docker.leak_program import AT_ONCE
from tests.harness.disk import REPOSITORY


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("base_image")
@pytest.mark.proves("L5")
@pytest.mark.parametrize(
    ("guest", "many"),
    [
        ("joined", 60),
        ("packed", 16),
        pytest.param("joined", 100, marks=pytest.mark.soak),
        pytest.param("packed", 24, marks=pytest.mark.soak),
    ],
)
async def test_many_sandboxes_leave_nothing(
    installation: Installation, guest: str, many: int
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.adapters.providers.docker.leak_program"),
        *(installation.host, str(installation.run_root), installation.name, guest, str(many)),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    found = json.loads(output)
    assert found["after"]["descriptors"] <= found["before"]["descriptors"] + AT_ONCE
    assert found["after"]["tasks"] == found["before"]["tasks"]
    assert set(found["left"]) == {"owners", "directories"}, "of the process"
