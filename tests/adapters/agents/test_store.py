"""Agents on the host: installed once, whole or not at all, and mended when they are broken."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.adapters.agents.store import NpmAgentStore
from paddock.domain.agent import AGENTS, Package
from paddock.domain.errors import Broken, PaddockError, Refused, Unavailable
from tests.adapters.agents.npm_registry import ANSWERS, Registry, serving
from tests.conftest import Need
from tests.engines import REPOSITORY

pytestmark = pytest.mark.timeout(300)

AGENT = Package("@acme/agent", "1.0.0", "@acme/agent/bin/agent*")
_INSTALL = """
import asyncio, sys
from pathlib import Path
from paddock.adapters.agents.store import NpmAgentStore
from tests.adapters.agents.test_store import AGENT
store = NpmAgentStore(Path(sys.argv[1]))
asyncio.run(store.install(AGENT, lambda text, _: print(text, flush=True)))
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: Need) -> Iterator[Registry]:
    if not shutil.which("npm"):
        need("npm", "not installed")
    with serving() as made:
        monkeypatch.setenv("npm_config_registry", made.url)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """One that only its owner can come to, as many data directories are."""
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data" / "agents"


@pytest.fixture
def store(place: Path) -> NpmAgentStore:
    return NpmAgentStore(place)


async def _installed(store: NpmAgentStore, package: Package = AGENT) -> list[str]:
    said: list[str] = []
    await store.install(package, lambda text, _: said.append(text))
    return said


def _left(place: Path) -> list[str]:
    return sorted(entry.name for entry in place.iterdir() if entry.name != "bin")


async def test_it_is_there_for_everyone_to_read_and_execute(
    registry: Registry, store: NpmAgentStore, place: Path
) -> None:
    registry.publish(AGENT.name, mode=0o4700, **{"bin/agent": ANSWERS})
    assert await store.find(AGENT) is None
    said = await _installed(store)
    found = await store.find(AGENT)
    assert found is not None
    assert said[0] == "npm installs @acme/agent 1.0.0"
    assert found.inside == f"{AGENTS}/acme-agent-1.0.0/node_modules/@acme/agent/bin/agent"
    assert _left(place) == ["acme-agent-1.0.0"]
    link = place / "bin" / "agent"
    assert link.resolve() == (place / found.program).resolve()
    assert not link.readlink().is_absolute(), "sandboxes see it at another place"
    link.unlink()
    assert await store.find(AGENT) == found
    assert link.is_symlink(), "also of one that was installed before"
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (place / found.program).parents[0:3]}
    assert modes == {0o755}
    assert stat.S_IMODE((place / found.program).stat().st_mode) == 0o755
    assert (place / found.program).stat().st_uid == os.geteuid()


async def test_no_script_of_a_package_is_run(
    registry: Registry, store: NpmAgentStore, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    about = (
        f'{{"name": "{AGENT.name}", "version": "1.0.0", "scripts": {{"install": "touch {trace}"}}}}'
    )
    registry.publish(AGENT.name, **{"bin/agent": ANSWERS, "package.json": about})
    await _installed(store)
    assert not trace.exists()


@pytest.mark.usefixtures("as_root")
async def test_a_new_program_is_tried_as_nobody_and_reaches_nothing(
    registry: Registry, store: NpmAgentStore
) -> None:
    conditions = (
        '[ "$(id -u)" = 65534 ]',
        '[ "$(id -G)" = 65534 ]',
        '! grep -qv "lo:\\|Inter\\|face" /proc/net/dev',
        '! touch "$0.made"',
        'touch "$HOME/made"',
        '[ -z "$PADDOCK_MASTER_KEY" ]',
    )
    registry.publish(
        AGENT.name, **{"bin/agent": f"#!/bin/sh\n{' && '.join(conditions)} && echo 1\n"}
    )
    await _installed(store)


async def test_of_several_programs_the_first_that_answers_is_taken(
    registry: Registry, store: NpmAgentStore
) -> None:
    registry.publish(
        AGENT.name, **{"bin/agent": "#!/bin/sh\nexit 132\n", "bin/agent-baseline": ANSWERS}
    )
    await _installed(store)
    found = await store.find(AGENT)
    assert found is not None
    assert found.program.endswith("bin/agent-baseline")


async def test_two_processes_download_it_once(registry: Registry, place: Path) -> None:
    registry.publish(AGENT.name, **{"bin/agent": ANSWERS})
    registry.gate.clear()
    first = await _process(place)
    assert await asyncio.to_thread(registry.asked.wait, 80)
    second = await _process(place)
    assert second.stdout is not None
    assert b"waiting for another" in await second.stdout.readline()
    registry.gate.set()
    async with asyncio.timeout(120):
        assert [await each.wait() for each in (first, second)] == [0, 0]
    assert registry.downloads == [AGENT.name]


async def test_who_is_killed_leaves_nothing_half_made(
    registry: Registry, store: NpmAgentStore, place: Path
) -> None:
    """npm goes on without who started it, and nobody else begins before it has ended."""
    registry.publish(AGENT.name, **{"bin/agent": ANSWERS})
    registry.gate.clear()
    killed = await _process(place)
    assert await asyncio.to_thread(registry.asked.wait, 80)
    killed.send_signal(signal.SIGKILL)
    await killed.wait()
    assert _left(place) == [".acme-agent-1.0.0"]
    assert await store.find(AGENT) is None
    waiting = asyncio.create_task(_installed(store))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    registry.gate.set()
    async with asyncio.timeout(120):
        said = await waiting
    assert said[0].startswith("waiting for another")
    assert await store.find(AGENT) is not None
    assert _left(place) == ["acme-agent-1.0.0"]


async def test_who_gives_up_ends_npm_and_leaves_nothing(
    registry: Registry, store: NpmAgentStore, place: Path
) -> None:
    registry.publish(AGENT.name, **{"bin/agent": ANSWERS})
    registry.gate.clear()
    installing = asyncio.create_task(_installed(store))
    assert await asyncio.to_thread(registry.asked.wait, 80)
    installing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await installing
    assert _left(place) == []
    registry.gate.set()
    await _installed(store)


@pytest.mark.parametrize("damage", ["emptied", "removed", "locked away", "no note"])
async def test_a_broken_one_is_found_and_mended(
    registry: Registry, store: NpmAgentStore, place: Path, damage: str
) -> None:
    registry.publish(AGENT.name, **{"bin/agent": ANSWERS})
    await _installed(store)
    found = await store.find(AGENT)
    assert found is not None
    package, program = place / "acme-agent-1.0.0", place / found.program
    before = package.stat().st_ino
    match damage:
        case "emptied":
            program.write_text("")
        case "removed":
            program.unlink()
        case "locked away":
            program.chmod(0o700)
        case "no note":
            (package / "paddock.json").unlink()
    assert await store.find(AGENT) is None
    await _installed(store)
    assert await store.find(AGENT) == found
    # What works is taken as it is, whoever has put it there.
    assert (package.stat().st_ino == before) == (damage == "no note")


async def test_one_that_does_not_answer_any_more_is_installed_anew(
    registry: Registry, store: NpmAgentStore, place: Path
) -> None:
    registry.publish(AGENT.name, **{"bin/agent": ANSWERS})
    await _installed(store)
    found = await store.find(AGENT)
    assert found is not None
    program = place / found.program
    program.write_text(ANSWERS.replace("echo", "fail"))  # of the same size
    assert await store.find(AGENT) == found
    said = await _installed(store)
    assert "@acme/agent 1.0.0 is there, but does not answer" in said
    assert program.read_text() == ANSWERS
    assert _left(place) == ["acme-agent-1.0.0"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"other": ANSWERS}, "has no program for Linux on"),
        ({"bin/agent": "#!/bin/sh\necho no such libc; exit 127\n"}, "127: no such libc"),
        ({"bin/agent": "#!/bin/sh\n"}, "said nothing"),
    ],
    ids=["none for this machine", "one that fails", "one that is silent"],
)
async def test_what_does_not_work_here_is_not_kept(
    registry: Registry, store: NpmAgentStore, place: Path, files: dict[str, str], words: str
) -> None:
    registry.publish(AGENT.name, **files)
    with pytest.raises(Broken, match=words):
        await _installed(store)
    assert _left(place) == []


async def test_an_unknown_package_or_version_is_refused(
    registry: Registry, store: NpmAgentStore, place: Path
) -> None:
    registry.publish(AGENT.name, "2.0.0", **{"bin/agent": ANSWERS})
    for package in (AGENT, Package("@acme/none", "1.0.0", "x")):
        with pytest.raises(Refused, match=f"has no {package}"):
            await _installed(store, package)
    assert _left(place) == []


async def test_a_registry_that_is_not_reached_may_be_later(
    registry: Registry, store: NpmAgentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="does not reach its registry") as caught:
        await _installed(store)
    assert caught.value.retryable
    assert "npm config set registry" in caught.value.remediation


async def test_without_npm_it_says_what_to_install(
    store: NpmAgentStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert store.why_not() == "npm is not installed on this host"
    with pytest.raises(Unavailable, match="npm is not installed") as caught:
        await _installed(store)
    assert "apt-get install nodejs npm" in caught.value.remediation


async def test_a_place_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = NpmAgentStore(tmp_path / "file" / "agents")
    with pytest.raises(PaddockError, match="agents cannot be kept in"):
        await _installed(store)


async def _process(place: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _INSTALL, str(place)),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
