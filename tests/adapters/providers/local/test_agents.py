"""What sandboxes see of the host's agents, and what of it is nowhere else."""

from pathlib import Path

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.agent import AGENTS
from paddock.domain.ids import new_ulid
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.local.conftest import Installation

pytestmark = pytest.mark.timeout(120)


async def _opened(installation: Installation, **more: object) -> LocalProvider:
    config = installation.config(warm=more.pop("warm", {}))
    return await LocalProvider.open(config, **more)  # type: ignore[arg-type]


async def _say(provider: LocalProvider, script: str) -> str:
    seen = await provider.create(new_ulid(), SandboxSpec(template="tiny"))
    try:
        async with Guest(await provider.guest(seen.ref)) as guest:
            done = await guest.exec(["sh", "-c", script])
        upper = provider._life.volume(seen.ref.id) / "upper"
        assert [each.name for each in upper.rglob("*")] == []
        return done.text.strip()
    finally:
        await provider.destroy(seen.ref)


@pytest.mark.parametrize("warm", [{}, {"tiny": 1}], ids=["made anew", "made ahead"])
async def test_they_are_seen_and_nothing_of_them_is_on_the_disk(
    installation: Installation, tmp_path: Path, warm: dict[str, int]
) -> None:
    agents = tmp_path / "agents"
    provider = await _opened(installation, agents=agents, warm=warm)
    try:
        await provider.warmed()
        (agents / "one").write_text("seen")
        assert provider.capabilities.agents
        assert await _say(provider, f"cat {AGENTS}/one") == "seen"
        mounts = await _say(provider, "cat /proc/self/mounts")
        (options,) = [line.split()[3] for line in mounts.splitlines() if f" {AGENTS} " in line]
        assert {"ro", "nosuid", "nodev"} <= set(options.split(","))
    finally:
        await provider.aclose()


async def test_their_programs_are_on_the_path_behind_those_of_the_template(
    installation: Installation, tmp_path: Path
) -> None:
    agents = tmp_path / "agents"
    provider = await _opened(installation, agents=agents)
    try:
        program = agents / "acme-1.0" / "hello"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho from the host\n")
        program.chmod(0o755)
        (agents / "bin").mkdir()
        for name in ("hello", "cat"):
            (agents / "bin" / name).symlink_to("../acme-1.0/hello")
        assert await _say(provider, "hello") == "from the host"
        assert await _say(provider, "echo of the template | cat") == "of the template"
        assert await _say(provider, "PATH=/bin; command -v hello || echo none") == "none"
    finally:
        await provider.aclose()


async def test_without_them_there_is_no_trace_of_them(installation: Installation) -> None:
    provider = await _opened(installation)
    try:
        assert not provider.capabilities.agents
        assert await _say(provider, "ls -d /opt/paddock || echo none") == "none"
    finally:
        await provider.aclose()
