"""The unmodified JavaScript SDK: every scenario of `js/`, those of one file in one process."""

import json
import re
import time
from functools import cache

import pytest

from paddock.settings import ServerConfig
from tests.interfaces.e2b.javascript import SOURCES, installed, node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first run on a machine builds a template
]
FILES = ("inside.mjs", "sandboxes.mjs", "errors.mjs", "kept.mjs", "interpreter.mjs")
NAMES = {
    file: re.findall(r"^  '([^']+)': async", (SOURCES / file).read_text(), re.M) for file in FILES
}
ALL = [
    pytest.param(file, name, id=f"{file.partition('.')[0]}: {name}")
    for file, names in NAMES.items()
    for name in names
]


@pytest.fixture(scope="module")
def place(need):
    return installed(need)


def run(live, place, *words):
    """With a second team's key beside the server's own."""
    other = live.do(live.plane.team(f"js-{time.time_ns()}"))
    return node(
        place,
        *words,
        E2B_API_KEY=live.key,
        E2B_API_URL=live.url,
        E2B_SANDBOX_URL=live.url,
        E2B_VOLUME_API_URL=live.url,
        OTHER_KEY=other.token,
    )


@pytest.fixture(scope="module")
def outcomes(live, place, request):
    """What was wrong with each scenario of a file, which is run once."""

    @cache
    def of(file):
        if file == "interpreter.mjs":
            request.getfixturevalue("interpreter")
        done = run(live, place, "run.mjs", file)
        assert done.returncode == 0, done.stderr.decode()
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        return {each["name"]: each["wrong"] for each in found}

    return of


@pytest.mark.parametrize(("file", "name"), ALL)
def test_javascript(outcomes, file, name):
    assert outcomes(file)[name] == ""


@pytest.mark.parametrize("file", FILES)
def test_every_scenario_was_run(outcomes, file):
    assert set(outcomes(file)) == set(NAMES[file])


def test_every_file_of_scenarios_is_known():
    found = {each.name for each in SOURCES.glob("*.mjs") if "const scenarios =" in each.read_text()}
    assert found == set(FILES)


def test_too_many_requests(live, place):
    rate, usual = live.plane.services.rate, ServerConfig()
    rate.change(per_second=0.001, burst=1)
    try:
        done = run(live, place, "limited.mjs")
    finally:
        rate.change(usual.requests_per_second, usual.requests_burst)
    assert done.stdout == b"limited\n", done.stderr.decode()
