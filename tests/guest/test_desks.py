"""The desk of a run: what programs inside ask, and what they are answered."""

import asyncio
import json

import pytest

from paddock.domain.errors import NotFound
from paddock.guest_client import Guest

pytestmark = pytest.mark.timeout(60)

ASK = """
import http.client, sys
desk = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
for body in sys.argv[2:]:
    desk.request("POST", "/x", body, {"Authorization": "Bearer abc"})
    said = desk.getresponse()
    print(said.status, said.read().decode(), flush=True)
"""


async def ask(guest: Guest, port: int, *bodies: str) -> list[str]:
    ran = await guest.exec(["python3", "-c", ASK, str(port), *bodies])
    return ran.stdout.decode().splitlines()


@pytest.mark.proves("M10")
async def test_a_program_is_answered_by_whoever_has_opened_the_desk(guest: Guest) -> None:
    port = await guest.desks.open("d1")
    assert await guest.desks.open("d1") == port
    assert port not in [each.port for each in await guest.ports()]
    asking = asyncio.create_task(ask(guest, port, "first", "second"))
    (call,) = await guest.desks.take("d1", 0, wait_s=30)
    assert (call.method, call.path, call.body) == ("POST", "/x", b"first")
    assert call.headers["authorization"] == "Bearer abc"
    again = await guest.desks.take("d1", 0, wait_s=0)
    assert [each.id for each in again] == [call.id]
    assert await guest.desks.take("d1", call.number, wait_s=0) == []
    await guest.desks.answer("d1", call.id, 200, b'{"n": 1}')
    (later,) = await guest.desks.take("d1", call.number, wait_s=30)
    await guest.desks.answer("d1", later.id, 403, b"{}")
    await guest.desks.answer("d1", "nobody", 200, b"{}")
    assert await asking == ['200 {"n": 1}', "403 {}"]
    await guest.desks.close("d1")
    await guest.desks.close("d1")
    with pytest.raises(NotFound, match="has no desk"):
        await guest.desks.take("d1", 0, wait_s=0)
    assert await ask(guest, port, "late") == []


async def test_too_much_and_too_many_are_refused(guest: Guest) -> None:
    port = await guest.desks.open("d2")
    (told,) = await ask(guest, port, "x" * (65 << 10))
    assert told.startswith("429 ")
    assert "larger than" in json.loads(told[4:])["error"]["message"]
    waiting = [asyncio.create_task(ask(guest, port, str(number))) for number in range(16)]
    async with asyncio.timeout(30):
        while len(await guest.desks.take("d2", 0, wait_s=1)) < 16:
            pass
    (told,) = await ask(guest, port, "one too many")
    assert told.startswith("429 ")
    await guest.desks.close("d2")
    assert await asyncio.gather(*waiting) == [[]] * 16
