"""The command blocks of documentation pages, run line by line as a reader would run them.

Of a page that is named here every line of its shell blocks runs, but for those that are listed with
the reason why they cannot.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interfaces.cli.conftest import clean_environment
from tests.interfaces.cli.remote.conftest import PADDOCK
from tests.repository.checkout import ROOT
from tests.repository.test_docs import commands
from tests.wiring_server import Server, server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MAKEFILE = "test:\n\t@mkdir -p out && echo fine > out/result && echo pdf > report.pdf\n"
PACKAGE = '{"name": "demo", "version": "1.0.0", "scripts": {"dev": "echo serving"}}\n'
NOT_RUN = {
    "paddock exec -it demo -- bash": "needs a terminal, which test_walk_through.py has",
    "git clone <this repository> paddock": "this is the checkout",
    "cd paddock": "this is the checkout",
    "make up": "would start a server at the usual port",
}
ENDS_WITH = {
    "sh -c 'exit 7'": 7,
    "http://169.254.169.254/": 7,
    "mount -t tmpfs": 2,
    "bomb()": 124,
}
"""Exit codes of lines that show a failure."""
REFERENCE = re.compile(r"\blocal/[0-9a-z]{26}\b")


@pytest.fixture(scope="module")
async def plane(need):
    if os.geteuid() != 0:
        need("root", "the local provider makes namespaces and mounts")
    async with server() as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A reader's working directory, with a repository and `paddock` in the PATH."""
    place = tmp_path / "project"
    (place / "src").mkdir(parents=True)
    (place / "src" / "main.py").write_text("print(42)\n")
    (place / "Makefile").write_text(MAKEFILE)
    (place / "package.json").write_text(PACKAGE)
    for name in ("long.sh", "flaky.sh"):
        (place / name).write_text("#!/bin/sh\necho done\n")
        (place / name).chmod(0o755)
    for program in (tmp_path / "bin" / "paddock", place / ".venv" / "bin" / "paddock"):
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec {" ".join(PADDOCK)} "$@"\n')
        program.chmod(0o755)
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "Makefile"), (*author, "commit", "-q", "-m", "first")):
        subprocess.run(["git", "-C", str(place), *words], check=True, timeout=30)
    return place


def page(name: str) -> list[str]:
    return [line for line in commands((ROOT / "docs" / name).read_text()) if line not in NOT_RUN]


def run(plane: Server, place: Path, line: str) -> subprocess.CompletedProcess[str]:
    env = clean_environment(
        PADDOCK_URL=plane.url,
        PADDOCK_TOKEN=(plane.data / "admin-token").read_text().strip(),
        PADDOCK_LOCAL__DATA_DIR=str(plane.data),
    )
    return subprocess.run(
        ["bash", "-c", line],
        env={**env, "PATH": f"{place.parent / 'bin'}:{env['PATH']}"},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


async def ran(plane: Server, place: Path, lines: list[str], changes: Mapping[str, str]) -> str:
    """All of it, in order; what every line printed. `changes` are what a reader would fill in."""
    told, found = "", dict(changes)
    for line in lines:
        for placeholder, value in found.items():
            line = line.replace(placeholder, value)
        done = await asyncio.to_thread(run, plane, place, line)
        expected = next((code for part, code in ENDS_WITH.items() if part in line), 0)
        assert done.returncode == expected, f"{line}: {done.stdout}{done.stderr}"
        told += done.stdout + done.stderr
        if names := REFERENCE.findall(done.stdout + done.stderr):
            found.setdefault("SANDBOX", names[0])
            found["FORK"] = names[-1]
    return told


async def sandboxes(plane: Server, place: Path) -> set[str]:
    listed = await asyncio.to_thread(run, plane, place, "paddock sandbox ls")
    assert listed.returncode == 0, listed.stderr
    return set(REFERENCE.findall(listed.stdout))


async def test_the_page_about_the_command_line_works_from_top_to_bottom(plane, project):
    told = await ran(
        plane,
        project,
        page("how-to/use-the-command-line.md"),
        {"https://example.org/project.git": f"file://{project}"},
    )
    assert "serving" in told
    assert (project / "report.pdf").read_text() == "pdf\n"
    assert (project / "out" / "result").read_text() == "fine\n"


async def test_the_tutorial_works_from_top_to_bottom_and_leaves_nothing(plane, project):
    before = await sandboxes(plane, project)
    told = await ran(plane, project, page("tutorial/first-sandbox.md"), {})
    assert "hello from the paddock" in told
    assert "kept" in told
    assert await sandboxes(plane, project) == before


def test_lines_that_are_not_run_are_still_on_a_page():
    pages = ("how-to/use-the-command-line.md", "tutorial/first-sandbox.md")
    lines = {line for name in pages for line in commands((ROOT / "docs" / name).read_text())}
    assert set(NOT_RUN) <= lines
