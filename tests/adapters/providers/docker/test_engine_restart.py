"""An engine that goes away and comes back: its sandboxes are stopped ones, never lost ones."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.domain.errors import Unavailable
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.docker.conftest import TINY, Installation
from tests.daemons import CannotStart
from tests.docker_engine import OwnDocker, end_containers, new_directory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SPEC = SandboxSpec(template=TINY, env={"KEPT": "yes"}, labels={"role": "kept"})
WORK = "/home/user/work.txt"


@pytest.fixture
def own_engine(as_root: None, need: Any) -> Iterator[OwnDocker]:
    """One that nobody else uses, to be ended at will."""
    engine = OwnDocker(new_directory())
    try:
        try:
            engine.start()
        except (CannotStart, OSError) as error:
            need("docker", str(error))
        yield engine
        end_containers(engine.socket)
    finally:
        engine.stop()
        engine.remove()


@pytest.fixture
async def restarted(
    own_engine: OwnDocker, tiny_root: Path, short_directory: Path
) -> AsyncIterator[Installation]:
    yield Installation(own_engine.address, short_directory)


@pytest.mark.proves("L11", "P6")
@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_sandboxes_are_found_stopped_and_start_again_with_their_work(
    own_engine: OwnDocker, restarted: Installation, end: str
) -> None:
    async with restarted.opened(guest="joined") as provider:
        running = await provider.create("running", SPEC)
        async with Guest(await provider.guest(running.ref)) as guest:
            await guest.files.write(WORK, b"precious")
        paused = await provider.create("paused", SPEC)
        await provider.pause(paused.ref)
        stopped = await provider.create("stopped", SPEC)
        await provider.stop(stopped.ref, Reason.IDLE)

        getattr(own_engine, end)()
        with pytest.raises(Unavailable, match="no Docker engine answers") as caught:
            await provider.observe(running.ref)
        assert "start" in caught.value.remediation
        own_engine.start()

        found = {seen.key: seen async for seen in provider.find({"role": "kept"})}
        assert {seen.state for seen in found.values()} == {SandboxState.STOPPED}
        assert found["running"].reason is found["paused"].reason is Reason.PROVIDER_LOST
        assert found["stopped"].reason is Reason.IDLE

        assert (await provider.start(running.ref)).state is SandboxState.RUNNING
        async with Guest(await provider.guest(running.ref)) as guest:
            assert await guest.files.read(WORK) == b"precious"
            assert (await guest.exec(["sh", "-c", "echo $KEPT"])).text == "yes\n"
        for seen in found.values():
            await provider.destroy(seen.ref)
    assert await restarted.left() == {}
