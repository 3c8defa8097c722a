"""The inbox of a run."""

import asyncio
import json

import pytest

from paddock.domain.errors import Conflict, InvalidRequest, LimitExceeded, NotFound
from paddock.guest_client import Guest
from paddock.guest_client.messages import MessageState
from paddock.guest_client.runs import Chunk
from tests.guest.conftest import StartGuest
from tests.guest.forms import GuestForm

pytestmark = pytest.mark.timeout(30)

# Takes each message from new to cur and prints it, until one says stop.
READER = """
import os, time
inbox = os.environ["PADDOCK_INBOX"]
while True:
    for name in sorted(os.listdir(inbox + "/new")):
        body = open(f"{inbox}/new/{name}").read()
        os.rename(f"{inbox}/new/{name}", f"{inbox}/cur/{name}")
        print(os.environ["PADDOCK_RUN_KEY"], body, flush=True)
        if body == "stop": raise SystemExit
    time.sleep(0.02)
"""


async def _end(guest: Guest, key: str) -> bytes:
    events = [event async for event in guest.runs.tail(key)]
    await guest.runs.ack(key)
    return b"".join(event.data for event in events if isinstance(event, Chunk))


@pytest.mark.proves("M2")
async def test_messages_reach_the_run_once_and_in_order(guest: Guest) -> None:
    await guest.runs.start("m1", ["python3", "-c", READER])
    await guest.messages.put("m1", "a", b"first")
    await guest.messages.put("m1", "b", {"kind": "json", "n": 2})
    for _ in range(3):
        await guest.messages.put("m1", "a", b"first")
    for _ in range(100):
        states = {m.id: m.state for m in await guest.messages.list("m1")}
        if set(states.values()) == {MessageState.DELIVERED}:
            break
        await asyncio.sleep(0.05)
    assert states == {"a": MessageState.DELIVERED, "b": MessageState.DELIVERED}
    await guest.messages.put("m1", "c", b"stop")
    lines = (await _end(guest, "m1")).decode().splitlines()
    assert lines[0] == "m1 first"
    assert json.loads(lines[1].removeprefix("m1 ")) == {"kind": "json", "n": 2}
    assert lines[2:] == ["m1 stop"]


async def test_a_message_belongs_to_the_runs_user_and_lies_in_new(
    guest: Guest, shared: GuestForm
) -> None:
    await guest.runs.start("m2", ["sleep", "30"])
    message = await guest.messages.put("m2", "x", bytes(range(256)))
    assert message.state is MessageState.NEW
    path = f"{shared.state_dir}/inboxes/m2/new/{message.file}"
    entry = await guest.files.stat(path)
    assert (entry.owner, entry.mode, entry.size) == ("user", 0o600, 256)
    assert await guest.files.read(path) == bytes(range(256))
    assert (await guest.exec(["ls", f"{shared.state_dir}/inboxes/m2"])).text.split() == [
        "cur",
        "new",
        "tmp",
    ]
    await guest.runs.end("m2", grace=0)
    await _end(guest, "m2")


async def test_a_message_that_nobody_takes_in_time_expires(guest: Guest) -> None:
    await guest.runs.start("m3", ["sleep", "30"])
    await guest.messages.put("m3", "short", b"1", ttl=0.2)
    await guest.messages.put("m3", "long", b"2", ttl=60)
    await asyncio.sleep(0.4)
    states = {m.id: m.state for m in await guest.messages.list("m3")}
    assert states == {"short": MessageState.EXPIRED, "long": MessageState.NEW}
    left = await guest.exec(["ls", "/var/lib/paddock/inboxes/m3/new"])
    assert "short" not in left.text
    again = await guest.messages.put("m3", "short", b"1", ttl=60)
    assert again.state is MessageState.EXPIRED
    await guest.runs.end("m3", grace=0)
    await _end(guest, "m3")


async def test_what_cannot_be_put_is_refused(guest: Guest) -> None:
    with pytest.raises(NotFound):
        await guest.messages.put("no-such-run", "x", b"")
    await guest.runs.start("m4", ["sleep", "30"])
    for identifier in ("../x", "", "a/b"):
        with pytest.raises(InvalidRequest):
            await guest.messages.put("m4", identifier, b"")
    with pytest.raises(LimitExceeded):
        await guest.messages.put("m4", "big", b"x" * ((1 << 20) + 1))
    await guest.runs.end("m4", grace=0)
    async for _ in guest.runs.tail("m4"):
        pass
    with pytest.raises(Conflict):
        await guest.messages.put("m4", "late", b"x")
    await guest.runs.ack("m4")


@pytest.mark.proves("S6")
async def test_an_inbox_turned_into_a_link_does_not_lead_the_guest_astray(guest: Guest) -> None:
    script = "cd $PADDOCK_INBOX; rmdir new; ln -s /etc new; echo turned; sleep 30"
    await guest.runs.start("m5", ["sh", "-c", script])
    async with asyncio.timeout(10):
        while (await guest.runs.get("m5")).streams["stdout"].end == 0:
            await asyncio.sleep(0.02)
    with pytest.raises(Conflict, match="inbox"):
        await guest.messages.put("m5", "x", b"evil")
    found = await guest.exec(["sh", "-c", "ls /etc | grep -c '\\.x$'"], user="root")
    assert found.text == "0\n"
    await guest.runs.end("m5", grace=0)
    await _end(guest, "m5")


@pytest.mark.proves("M2")
async def test_messages_survive_the_guest(start_guest: StartGuest) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        await guest.runs.start("m6", ["sleep", "30"])
        await guest.messages.put("m6", "x", b"still here")
        await form.kill()
        await form.start()
        states = {m.id: m.state for m in await guest.messages.list("m6")}
        assert states == {"x": MessageState.NEW}
        again = await guest.messages.put("m6", "x", b"still here")
        assert again.state is MessageState.NEW


async def test_a_run_that_wants_no_inbox_has_none(guest: Guest) -> None:
    await guest.runs.start("m9", ["sh", "-c", "echo ${PADDOCK_INBOX:-none}; sleep 30"], inbox=False)
    told = await guest.runs.read("m9", {"stdout": 0, "stderr": 0}, wait_s=10)
    assert [event.data for _, event in told.output if isinstance(event, Chunk)] == [b"none\n"]
    with pytest.raises(Conflict, match="has no inbox"):
        await guest.messages.put("m9", "one", b"hello")
    await guest.runs.end("m9", grace=0)
    while (await guest.runs.get("m9")).exit is None:
        await asyncio.sleep(0.02)
    await guest.runs.ack("m9")
