"""Memory on disk, modelled: the checks hold where it is claimed, and what is beyond is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.adapters.providers.layers import standard_layers
from paddock.domain.errors import Refused
from paddock.guest_client import Guest
from paddock.ports.clock import SystemClock
from paddock.ports.provider import Provider, Ref, SandboxSpec
from paddock.testing.checkpointing import CheckpointingProvider
from paddock.testing.conformance import checkpointing, health, probes, run_conformance, snapshots
from paddock.testing.conformance.check import checks_of
from paddock.testing.reference import TEMPLATE

CHECKS = [check for module in (health, snapshots, checkpointing) for check in checks_of(module)]


class Impatient(CheckpointingProvider):
    """Does not wait long for what will never come."""

    patience_s = 1.0


@pytest.fixture
def provider(fresh_place: Path) -> CheckpointingProvider:
    return Impatient(fresh_place)


@pytest.fixture
async def ref(provider: CheckpointingProvider) -> AsyncIterator[Ref]:
    seen = await provider.create("k", SandboxSpec(template=TEMPLATE))
    yield seen.ref
    await provider.destroy(seen.ref)


async def tell(provider: Provider, ref: Ref, *words: str) -> str:
    async with Guest(await provider.guest(ref)) as guest:
        result = await guest.exec(list(words))
        assert result.exit_code == 0, result.stderr
        return result.text.strip()


async def start(provider: Provider, ref: Ref, program: str) -> None:
    """As a daemon, which writes the file `diary`."""
    await tell(provider, ref, "python3", "-c", probes.DAEMON_OF, "x", program, "diary")


@pytest.mark.parametrize(
    "layers",
    [pytest.param(False, id="alone"), pytest.param(True, id="in layers", marks=pytest.mark.slow)],
)
async def test_what_claims_to_keep_memory_keeps_it(fresh_place, layers):
    async def open_it() -> Provider:
        made = CheckpointingProvider(fresh_place)
        if not layers:
            return made
        return standard_layers(made, clock=SystemClock(), observer=lambda *_: None)

    outcomes = await run_conformance(open_it, TEMPLATE, checks=CHECKS)
    assert [(one.name, one.problem) for one in outcomes if not one.passed] == []
    assert not any(one.refused for one in outcomes)


async def test_what_came_back_can_be_kept_again(provider, ref):
    await start(provider, ref, probes.DIARY)
    first = await provider.snapshot(ref, "first", memory=True)
    copy = await provider.create("copy", SandboxSpec(snapshot=first.ref))
    await asyncio.sleep(0.1)
    second = await provider.snapshot(copy.ref, "second", memory=True)
    await provider.destroy(copy.ref)
    again = await provider.create("again", SandboxSpec(snapshot=second.ref))
    await asyncio.sleep(0.1)
    lines = (await tell(provider, again.ref, "cat", "diary")).splitlines()
    assert [int(line.split()[1]) for line in lines] == list(range(1, len(lines) + 1))
    assert len({line.split()[0] for line in lines}) == 1
    await provider.destroy(again.ref)


async def test_a_stopped_copy_starts_without_what_it_had_in_memory(provider, ref):
    await start(provider, ref, probes.DIARY)
    taken = await provider.snapshot(ref, "s", memory=True)
    copy = await provider.create("copy", SandboxSpec(snapshot=taken.ref))
    await provider.stop(copy.ref)
    await provider.start(copy.ref)
    before = await tell(provider, copy.ref, "cat", "diary")
    await asyncio.sleep(0.1)
    assert await tell(provider, copy.ref, "cat", "diary") == before
    await provider.destroy(copy.ref)


@pytest.mark.parametrize(
    "program",
    [
        "import os; os.execvp('sh', ['sh', '-c', 'echo x > diary; while sleep 0.1; do :; done'])",
        "import sys, time; open(sys.argv[1], 'w'); odd = object()\nwhile True: time.sleep(0.01)",
        "import sys, time\nfor _ in range(6000):\n    open(sys.argv[1], 'w'); time.sleep(0.01)",
    ],
    ids=["no Python", "not plain", "within a block"],
)
async def test_what_cannot_be_written_down_is_refused_and_goes_on(
    provider, ref, fresh_place, program
):
    await start(provider, ref, program)
    running = [proc.pid for proc in provider._record(ref).family.members()]
    with pytest.raises(Refused, match="cannot be kept"):
        await provider.snapshot(ref, "s", memory=True)
    assert list((fresh_place / "snp").iterdir()) == []
    assert not (fresh_place / "sbx" / ref.id / "memory").exists()
    assert [proc.pid for proc in provider._record(ref).family.members()][:2] == running[:2]
    assert not (await provider.snapshot(ref, "s")).memory
