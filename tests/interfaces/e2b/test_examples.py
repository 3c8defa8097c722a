"""The examples in the SDKs' own documentation, as the installed packages carry them, and the cells
of our page about them.

They are run as they are, with the environment that `paddock connect e2b` prints; only where one
writes a key and E2B's own domain into the code, it is given ours.
"""

import os
import re
import subprocess
import sys
import time
from importlib.metadata import metadata

import pytest

from tests.interfaces.e2b.javascript import installed, node
from tests.repository.checkout import ROOT

pytestmark = [pytest.mark.timeout(900)]  # the first run on a machine builds a template
PAGE = ROOT / "docs/how-to/use-e2b-sdks.md"
PACKAGES = ("e2b", "e2b-code-interpreter")
JS_PACKAGES = {"e2b": "e2b", "@e2b/code-interpreter": "e2b-code-interpreter"}
WRITTEN = r"""(api_?[kK]ey)(\s*[=:]\s*)['"]e2b_\*\*\*['"],\s*domain\2['"]e2b\.dev['"]"""
RUN = """
import ast, asyncio, inspect, sys
code = compile(sys.stdin.read(), "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
found = eval(code, {"__name__": "__main__"})
if inspect.iscoroutine(found):
    asyncio.run(found)
"""


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def python_examples():
    for package in PACKAGES:
        described = metadata(package)
        text = described.get_payload() or described["Description"]
        for number, code in enumerate(blocks(text, "py"), 1):
            yield pytest.param(code, id=f"{package} {number}")
    (cells,) = [code for code in blocks(PAGE.read_text(), "python") if "run_code" in code]
    yield pytest.param(cells, id="our page", marks=pytest.mark.slow)


def test_there_are_examples():
    assert len(list(python_examples())) >= 5


@pytest.fixture
def team(live):
    """One of its own, so that what an example calls `my-volume` is new; nothing of it is left."""
    admin = live.do(live.plane.team(f"example-{time.time_ns()}"))
    yield admin
    client = live.client(api_key=admin.token)
    for box in client.Sandbox.list().next_items():
        client.Sandbox.kill(box.sandbox_id)
    for volume in client.Volume.list():
        client.Volume.destroy(volume.volume_id)


def variables(live, team):
    names = ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL")
    local = {"NO_PROXY": "127.0.0.1,localhost"}
    return {"E2B_API_KEY": team.token, **dict.fromkeys(names, live.url), **local}


@pytest.mark.parametrize("code", list(python_examples()))
def test_python(live, team, interpreter, code):
    ours = rf'\1\2"{team.token}"'
    kept = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=re.sub(WRITTEN, ours, code).encode(),
        env={**kept, **variables(live, team)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert_said(code, "#", done.stdout.decode())


def assert_said(code, comment, output):
    """What an example says that it prints."""
    for said in re.findall(rf"(?:print|log)\(.*\)\s*{comment} (?:outputs )?(.+)", code):
        assert said in output


@pytest.mark.slow
@pytest.mark.parametrize("package", JS_PACKAGES)
def test_javascript(live, team, interpreter, need, package):
    place = installed(need)
    text = (place / "node_modules" / package / "README.md").read_text()
    found = blocks(text, "ts")
    assert len(found) >= 2
    for number, code in enumerate(found):
        file = place / f"example-{package.replace('/', '-')}-{number}.mjs"
        # A script that has done its work waits for connections that are kept open.
        ended = "\nprocess.exit(0)\n"
        file.write_text(re.sub(WRITTEN, rf"\1\2'{team.token}'", code) + ended)
        done = node(place, file.name, **variables(live, team))
        file.unlink()
        assert done.returncode == 0, f"{code}\n{done.stderr.decode()}"
        assert_said(code, "//", done.stdout.decode())
        for volume in live.client(api_key=team.token).Volume.list():
            live.client(api_key=team.token).Volume.destroy(volume.volume_id)
