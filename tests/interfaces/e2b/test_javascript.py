"""The unmodified JavaScript SDK: every scenario of `js/scenarios.mjs`, in one process."""

import json
import re
import time

import pytest

from paddock.settings import ServerConfig
from tests.interfaces.e2b.javascript import SOURCES, installed, node

pytestmark = [pytest.mark.timeout(120)]
NAMES = re.findall(r"^  '([^']+)': async", (SOURCES / "scenarios.mjs").read_text(), re.M)


@pytest.fixture(scope="module")
def place(need):
    return installed(need)


def run(live, place, script):
    """With a second team's key beside the server's own."""
    other = live.do(live.plane.team(f"js-{time.time_ns()}"))
    return node(
        place,
        script,
        E2B_API_KEY=live.key,
        E2B_API_URL=live.url,
        E2B_SANDBOX_URL=live.url,
        E2B_VOLUME_API_URL=live.url,
        OTHER_KEY=other.token,
    )


@pytest.fixture(scope="module")
def outcomes(live, place):
    done = run(live, place, "run.mjs")
    assert done.returncode == 0, done.stderr.decode()
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    return {each["name"]: each["wrong"] for each in found}


@pytest.mark.parametrize("name", NAMES)
def test_javascript(outcomes, name):
    assert outcomes[name] == ""


def test_every_scenario_was_run(outcomes):
    assert set(outcomes) == set(NAMES)


def test_too_many_requests(live, place):
    rate, usual = live.plane.services.rate, ServerConfig()
    rate.change(per_second=0.001, burst=1)
    try:
        done = run(live, place, "limited.mjs")
    finally:
        rate.change(usual.requests_per_second, usual.requests_burst)
    assert done.stdout == b"limited\n", done.stderr.decode()
