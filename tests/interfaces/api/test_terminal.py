"""A terminal over a WebSocket."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.control_plane import disposable


class Screen:
    """What a client sees of a terminal."""

    def __init__(self, socket):
        self.socket = socket
        self.shown = b""
        self.told = []

    async def read(self, until):
        async with asyncio.timeout(30):
            while not until(self):
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.shown += message.data
                elif message.type is aiohttp.WSMsgType.TEXT:
                    self.told.append(json.loads(message.data))
                else:
                    raise AssertionError(f"{message.type} after {self.shown!r} {self.told!r}")
        return self

    async def shows(self, text):
        return await self.read(lambda screen: text in screen.shown)

    async def tells(self, kind):
        await self.read(lambda screen: any(kind in one for one in screen.told))
        return next(one[kind] for one in self.told if kind in one)


@asynccontextmanager
async def terminal(plane, box, query="", **more):
    where = plane.url.replace("http", "ws") + f"/v1/sandboxes/{box['id']}/terminal?{query}"
    more.setdefault("headers", {"authorization": f"Bearer {plane.admin.token}"})
    async with plane.session.ws_connect(where, **more) as socket:
        yield Screen(socket)


@pytest.mark.proves("E5", "E6")
async def test_a_shell_answers_is_resized_and_ends_with_its_code(plane, box):
    async with terminal(plane, box, "columns=100&rows=30&cmd=sh") as screen:
        started = await screen.tells("started")
        assert started["id"].startswith("cmd_")
        assert started["offset"] == 0
        await screen.socket.send_bytes(b"stty size; echo $TERM\r")
        await screen.shows(b"30 100")
        await screen.shows(b"xterm-256color")
        await screen.socket.send_str('{"resize": {"columns": 120, "rows": 40}}')
        await screen.socket.send_bytes(b"stty size\r")
        await screen.shows(b"40 120")
        assert plane.services.inside._activity.doing(box["id"])["terminal"] == 1
        await screen.socket.send_bytes("printf 'é\\377'; exit 7\r".encode())
        ended = await screen.tells("exit")
        assert (ended["exit_code"], ended["reason"]) == (7, "exited")
        assert b"\xc3\xa9\xff" in screen.shown
        assert (await screen.socket.receive()).type is aiohttp.WSMsgType.CLOSE
    async with asyncio.timeout(5):
        while "terminal" in plane.services.inside._activity.doing(box["id"]):
            await asyncio.sleep(0.02)


@pytest.mark.proves("E6", "E12")
async def test_who_comes_back_finds_it_running_and_misses_nothing(plane, box):
    script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.05; done"
    seen, offset, command = b"", 0, ""
    for _ in range(20):
        query = f"command={command}&cursor=pty:{offset}" if command else ""
        query = query or f"cmd=sh&cmd=-c&cmd={script.replace(' ', '%20').replace('+', '%2B')}"
        async with terminal(plane, box, query) as screen:
            command = (await screen.tells("started"))["id"]
            await screen.read(lambda s: len(s.shown) > 40 or any("exit" in t for t in s.told))
            seen += screen.shown
            offset += len(screen.shown)
            if any("exit" in one for one in screen.told):
                break
    whole = b"".join(b"line %d\r\n" % number for number in range(1, 41))
    assert seen == whole
    # Also after its end.
    async with terminal(plane, box, f"command={command}&cursor=pty:0") as screen:
        await screen.tells("exit")
        assert screen.shown == whole


async def test_a_browser_says_who_it_is_by_a_protocol(plane, box):
    token = f"paddock.token.{plane.admin.token}"
    for protocols, taken in (
        (("paddock.terminal", token), "paddock.terminal"),
        ((token,), token),
    ):
        async with terminal(
            plane, box, "cmd=echo&cmd=hi", protocols=protocols, headers={}
        ) as screen:
            await screen.shows(b"hi")
            assert screen.socket.protocol == taken


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("columns=0", 400),
        ("cols=100", 400),
        ("columns=100&width=3", 400),
        ("cursor=100", 400),
        ("command=nonsense", 404),
        ("command=cmd_01m7gtyyx9nwfrs92mc398zrgh", 404),
        ("cmd=/no/such/program", 400),
        ("user=nobody-here&cmd=sh", 400),
    ],
)
async def test_what_makes_no_sense_is_an_ordinary_answer(plane, box, query, status):
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with terminal(plane, box, query):
            pass
    assert refused.value.status == status


async def test_strangers_and_nobody_get_no_terminal(plane, box):
    stranger = await plane.team("peepers")
    for headers, status in (
        ({}, 401),
        ({"authorization": "Bearer nonsense"}, 401),
        ({"authorization": f"Bearer {stranger.token}"}, 404),
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with terminal(plane, box, headers=headers):
                pass
        assert refused.value.status == status
    plain = await plane.admin.get(f"/v1/sandboxes/{box['id']}/terminal")
    assert plain.status == 426
    assert plain.error["remediation"]


async def test_a_message_that_makes_no_sense_ends_nothing(plane, box):
    async with terminal(plane, box, "cmd=cat") as screen:
        for text in ("nonsense", "[]", '{"resize": {"columns": 0, "rows": 1}}', '{"unknown": 1}'):
            screen.told.clear()
            await screen.socket.send_str(text)
            assert (await screen.tells("error"))["code"] == "invalid_request"
        await screen.socket.send_bytes(b"still here\r")
        await screen.shows(b"still here")


async def test_the_end_of_the_sandbox_is_told(plane, box):
    async with terminal(plane, box, "cmd=cat") as screen:
        await screen.tells("started")
        await plane.admin.post(f"/v1/sandboxes/{box['id']}/stop")
        error = await screen.tells("error")
        assert error["code"] == "conflict"
        assert "stopped" in error["message"]


async def test_without_tokens_a_page_of_somewhere_else_gets_no_terminal():
    async with disposable(auth=False) as plane:
        box = (await plane.client("").post("/v1/sandboxes", {"template": "plain"})).body
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with terminal(plane, box, headers={"origin": "https://evil.example"}):
                pass
        assert refused.value.status == 403
        async with terminal(plane, box, "cmd=cat", headers={"origin": plane.url}) as screen:
            await screen.tells("started")
