"""A guest that leaves its socket holds nothing, and comes back as whom the letter says."""

import asyncio
import json
from pathlib import Path

import pytest

from paddock.domain.errors import PaddockError, Unavailable, Unsupported
from paddock.domain.guest import GuestAddress
from paddock.guest import door
from paddock.guest_client import Guest
from tests.guest.conftest import StartPacked
from tests.guest.forms import PackedGuest
from tests.guest.joined import JoinedGuest

pytestmark = pytest.mark.timeout(60)

STATE = "/run/paddock/state"


async def leave(form: PackedGuest) -> Path:
    """The guest's state directory as the host sees it, once the guest has left."""
    state = form.base / "run/state"
    async with Guest(form.address) as guest:
        await guest.let_go()
        while not (state / door.LEFT).exists():
            await asyncio.sleep(0.01)
    return state


async def bring_back(state: Path, token: str, sandbox_id: str) -> GuestAddress:
    place = state / door.PLACE
    place.mkdir()
    (state / "draft").write_text(json.dumps({"token": token, "sandboxId": sandbox_id}))
    (state / "draft").rename(place / door.LETTER)
    address = GuestAddress(socket=str(place / door.SOCKET), token=token)
    for _ in range(500):
        try:
            async with Guest(address) as guest:
                await guest.health()
                return address
        except Unavailable:
            await asyncio.sleep(0.01)
    raise AssertionError("the guest did not come back")


async def test_it_comes_back_as_another_and_everything_goes_on(start_packed: StartPacked) -> None:
    form = await start_packed(state_dir=STATE)
    async with Guest(form.address) as guest:
        await guest.runs.start("steady", ["sh", "-c", "while :; do echo on; sleep 0.05; done"])
        waiting = asyncio.create_task(
            guest.exec(["sh", "-c", "touch /tmp/begun; sleep 1; touch /tmp/done"])
        )
        while (await guest.exec(["test", "-e", "/tmp/begun"])).exit_code:
            await asyncio.sleep(0.01)
        state = await leave(form)
        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable):
            await guest.health()
    before = (await _sizes(state))["steady"]
    address = await bring_back(state, "another token", "sbx_another")
    async with Guest(address) as guest:
        assert (await guest.exec(["printenv", "PADDOCK_SANDBOX_ID"])).text == "sbx_another\n"
        while (await guest.exec(["test", "-e", "/tmp/done"])).exit_code:
            await asyncio.sleep(0.05)
        assert [run.key for run in await guest.runs.list()] == ["steady"]
    assert (await _sizes(state))["steady"] > before
    async with Guest(GuestAddress(socket=address.socket, token=form.token)) as guest:
        with pytest.raises(PaddockError, match="does not match"):
            await guest.usage()


async def _sizes(state: Path) -> dict[str, int]:
    """How much the runs have written."""
    runs = state / "runs"
    return {
        run.name: sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
        for run in runs.iterdir()
    }


async def test_it_may_leave_as_often_as_it_is_asked(start_packed: StartPacked) -> None:
    form = await start_packed(state_dir=STATE)
    for number in range(3):
        state = await leave(form)
        (state / door.LEFT).unlink()
        address = await bring_back(state, f"token {number}", "sbx_test")
        Path(address.socket).rename(form.base / "run/guest.sock")
        (state / door.PLACE / door.LETTER).unlink()
        (state / door.PLACE).rmdir()
        form.address = GuestAddress(socket=form.address.socket, token=f"token {number}")
        async with Guest(form.address) as guest:
            assert (await guest.exec(["echo", str(number)])).text == f"{number}\n"


async def test_one_that_waits_for_its_letter_can_be_ended(start_packed: StartPacked) -> None:
    form = await start_packed(state_dir=STATE)
    await leave(form)
    await asyncio.wait_for(form.stop(), 10)


async def test_one_that_could_not_come_back_does_not_leave(
    start_packed: StartPacked, rootfs: Path, free_port: int
) -> None:
    listening = await start_packed(port=free_port)
    async with JoinedGuest(rootfs) as joined:
        for form in (listening, joined):
            async with Guest(form.address) as guest:
                with pytest.raises(Unsupported):
                    await guest.let_go()
                await guest.health()
