"""The tests' own engine ends with the session that started it, however that ended."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[4]
SESSION = """
import json, time
from tests import docker_engine
print(json.dumps(docker_engine._start_own("docker")), flush=True)
time.sleep(100)
"""


@pytest.mark.slow
def test_an_engine_does_not_outlive_a_session_that_was_killed(need: Any) -> None:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        need("docker", "an engine of our own needs root and dockerd")
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_XDIST_WORKER"}
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION], cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE
    )
    assert session.stdout is not None
    with session.stdout:
        engine = json.loads(session.stdout.readline())
    directory = Path(engine["address"].removeprefix("unix://")).parent
    assert directory.is_dir()
    session.kill()
    session.wait()
    until = time.monotonic() + 60
    while directory.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not directory.exists()
