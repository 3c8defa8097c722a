"""A token that ends ends what is open on it: every stream, terminal, watch and preview."""

import asyncio
import json
import time
from dataclasses import replace

import aiohttp
import pytest

from tests.interfaces.api.test_previews import free_port

SOON_S = 2.0
"""How long the end may take to be noticed, on a machine that has other things to do."""

ECHO = """
import asyncio, base64, hashlib, sys
async def serve(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\\r\\n")[1:-2])
    key = {name.lower(): value for name, value in fields.items()}.get(b"sec-websocket-key")
    if key is None:
        writer.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        writer.write(b"5\\r\\nhello\\r\\n")
    else:
        told = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        writer.write(b"HTTP/1.1 101 X\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n")
        writer.write(b"Sec-WebSocket-Accept: " + base64.b64encode(told) + b"\\r\\n\\r\\n")
        writer.write(b"\\x82\\x05hello")
    await reader.read()
    writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()
asyncio.run(main())
"""


class Streamed:
    """An NDJSON stream."""

    def __init__(self, method, path, body=None):
        self.wanted = (method, path, body)

    async def run(self, plane, box, token, opened):
        method, path, body = self.wanted
        where = plane.url + path.format(**box) + "format=ndjson"
        headers = {"authorization": f"Bearer {token}"}
        async with plane.session.request(method, where, json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            opened.set()
            lines = [json.loads(line) async for line in answer.content if line.strip()]
            return lines[-1]["type"], lines[-1]


class Terminal:
    async def run(self, plane, box, token, opened):
        where = f"{plane.url}/v1/sandboxes/{box['id']}/terminal?cmd=cat"
        headers = {"authorization": f"Bearer {token}"}
        async with plane.session.ws_connect(where, headers=headers) as socket:
            assert "started" in await socket.receive_json()
            opened.set()
            last = json.loads((await socket.receive()).data)
            end = await socket.receive()
            assert (end.type, socket.close_code) == (aiohttp.WSMsgType.CLOSE, 1008)
            return "error" if "error" in last else "", last["error"]


class Preview:
    """What goes through the front byte by byte can only be cut."""

    def __init__(self, *, upgraded):
        self.upgraded = upgraded

    async def run(self, plane, box, token, opened):
        headers = {"Host": box["host"], "X-Paddock-Token": token}
        if self.upgraded:
            async with plane.session.ws_connect(plane.url, headers=headers) as socket:
                assert await socket.receive_bytes() == b"hello"
                opened.set()
                assert (await socket.receive()).type is not aiohttp.WSMsgType.BINARY
                return "cut", {}
        async with plane.session.get(plane.url, headers=headers) as answer:
            assert await answer.content.read(5) == b"hello"
            opened.set()
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.content.read()
            return "cut", {}


SLEEP = {"cmd": ["sleep", "60"]}
OPEN = {
    "events": Streamed("GET", "/v1/events/stream?"),
    "exec": Streamed("POST", "/v1/sandboxes/{id}/exec/stream?", SLEEP),
    "output": Streamed("GET", "/v1/sandboxes/{id}/commands/{command}/output?"),
    "watch": Streamed("GET", "/v1/sandboxes/{id}/files/watch?path={home}&"),
    "terminal": Terminal(),
    "preview stream": Preview(upgraded=False),
    "preview socket": Preview(upgraded=True),
}


@pytest.fixture
async def served(plane, box, home):
    """The sandbox with a command that goes on and a server inside."""
    path, port = f"/v1/sandboxes/{box['id']}/commands", free_port()
    command = await plane.admin.post(path, SLEEP)
    await plane.admin.post(path, {"cmd": ["python3", "-c", ECHO, str(port)]})
    host = f"{port}-{box['id'].replace('_', '-')}.preview.localhost"
    async with asyncio.timeout(20):
        while port not in [each["port"] for each in await ports(plane, box)]:
            await asyncio.sleep(0.05)
    return {**box, "home": home, "command": command["id"], "host": host}


async def ports(plane, box):
    return (await plane.admin.get(f"/v1/sandboxes/{box['id']}/ports"))["items"]


async def opened(plane, served, token):
    """All of them open at once; each ends with how it was ended and what was said."""
    events = {name: asyncio.Event() for name in OPEN}
    tasks = {
        name: asyncio.create_task(each.run(plane, served, token, events[name]), name=name)
        for name, each in OPEN.items()
    }
    async with asyncio.timeout(20):
        for event in events.values():
            await event.wait()
    await asyncio.sleep(0.1)
    assert not [name for name, task in tasks.items() if task.done()]
    return tasks


async def check(tasks, says):
    before = time.monotonic()
    done, late = await asyncio.wait(tasks.values(), timeout=10)
    took = time.monotonic() - before
    for task in late:
        task.cancel()
    assert not late, f"still open: {[task.get_name() for task in late]}"
    assert took < SOON_S
    for task in done:
        kind, said = task.result()
        if task.get_name().startswith("preview"):
            assert kind == "cut"
        else:
            assert (kind, said["code"]) == ("error", "unauthenticated"), task.get_name()
            assert says in said["message"]
            assert said["remediation"]


@pytest.mark.proves("U2")
async def test_a_revoked_token_ends_what_is_open_on_it(plane, served):
    made = await plane.admin.post("/v1/tokens", {"name": "short", "role": "member"})
    other = await plane.member()
    tasks = await opened(plane, served, made["token"])
    staying = asyncio.create_task(OPEN["events"].run(plane, served, other.token, asyncio.Event()))
    await asyncio.sleep(0.2)
    assert (await plane.admin.delete(f"/v1/tokens/{made['id']}")).status == 200
    await check(tasks, "was revoked")
    assert not staying.done(), "another's is left alone"
    staying.cancel()
    command = f"/v1/sandboxes/{served['id']}/commands/{served['command']}"
    assert (await plane.admin.get(command))["exit_code"] is None, (
        "only who looked at it was cut off"
    )


@pytest.mark.proves("U2")
async def test_a_token_that_expires_ends_what_is_open_on_it(plane, served):
    wish = {"name": "brief", "role": "member", "lifetime_s": 8}
    made = await plane.admin.post("/v1/tokens", wish)
    tasks = await opened(plane, served, made["token"])
    token = await plane.services.store.read(lambda tx: tx.tokens.get(made["id"]))
    await asyncio.sleep(max(0.0, token.expires_at - time.time()))
    await check(tasks, "has expired")


async def test_what_another_process_revoked_ends_here_too(plane, served):
    made = await plane.admin.post("/v1/tokens", {"name": "far", "role": "member"})
    tasks = await opened(plane, served, made["token"])

    def revoke(tx):
        tx.tokens.replace(replace(tx.tokens.get(made["id"]), revoked_at=time.time()))

    await plane.services.store.write(revoke)
    await check(tasks, "was revoked")
