"""A token that ends ends what is open on it: every stream, terminal, watch and preview."""

import asyncio
import json
import time
from dataclasses import replace

import aiohttp
import pytest

from tests.harness.ports import free_port

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

    def __init__(self, *, upgraded, shows=lambda token: {"X-Paddock-Token": token}):
        self.upgraded = upgraded
        self.shows = shows

    async def run(self, plane, box, token, opened):
        headers = {"Host": box["host"], **self.shows(token)}
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


class Download:
    """What is not whole is broken off, so that nobody takes it for the whole."""

    def __init__(self, path):
        self.path = path

    async def run(self, plane, box, token, opened):
        headers = {"authorization": f"Bearer {token}"}
        where = plane.url + self.path.format(**box)
        async with plane.session.get(where, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert await answer.content.read(1)
            opened.set()
            with pytest.raises(aiohttp.ClientPayloadError):
                while await answer.content.read(1 << 16):
                    await asyncio.sleep(0.01)
            return "cut", {}


SLEEP = {"cmd": ["sleep", "60"]}
OPEN = {
    "events": Streamed("GET", "/v1/events/stream?"),
    "exec": Streamed("POST", "/v1/sandboxes/{id}/exec/stream?", SLEEP),
    "output": Streamed("GET", "/v1/sandboxes/{id}/commands/{command}/output?"),
    "watch": Streamed("GET", "/v1/sandboxes/{id}/files/watch?path={home}&"),
    "terminal": Terminal(),
    "download": Download("/v1/sandboxes/{id}/files?path={home}/large"),
    "download of an archive": Download("/v1/sandboxes/{id}/archive?path={home}/large"),
    "preview stream": Preview(upgraded=False),
    "preview socket": Preview(upgraded=True),
}


@pytest.fixture
async def served(plane, box, home):
    """The sandbox with a command that goes on and a server inside."""
    path, port = f"/v1/sandboxes/{box['id']}/commands", free_port()
    command = await plane.admin.post(path, SLEEP)
    await plane.admin.post(path, {"cmd": ["python3", "-c", ECHO, str(port)]})
    large = {"cmd": ["truncate", "-s", "4G", f"{home}/large"]}
    assert (await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", large))["exit_code"] == 0
    host = f"{port}-{box['id'].replace('_', '-')}.preview.localhost"
    async with asyncio.timeout(20):
        while port not in [each["port"] for each in await ports(plane, box)]:
            await asyncio.sleep(0.05)
    return {**box, "home": home, "command": command["id"], "host": host, "port": port}


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
    done, late = await asyncio.wait(tasks.values(), timeout=10)
    for task in late:
        task.cancel()
    assert not late, f"still open: {[task.get_name() for task in late]}"
    for task in done:
        kind, said = task.result()
        if task.get_name().startswith(("preview", "download")):
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
    wish = {"name": "brief", "role": "member", "lifetime_s": 3600}
    made = await plane.admin.post("/v1/tokens", wish)
    tasks = await opened(plane, served, made["token"])

    def expire_soon(tx):
        tx.tokens.replace(replace(tx.tokens.get(made["id"]), expires_at=time.time() + 0.5))

    await plane.services.store.write(expire_soon)
    await check(tasks, "has expired")


async def test_what_another_process_revoked_ends_here_too(plane, served):
    made = await plane.admin.post("/v1/tokens", {"name": "far", "role": "member"})
    tasks = await opened(plane, served, made["token"])

    def revoke(tx):
        tx.tokens.replace(replace(tx.tokens.get(made["id"]), revoked_at=time.time()))

    await plane.services.store.write(revoke)
    await check(tasks, "was revoked")


async def seen_by(plane, served, shows):
    """A stream and a socket of the preview, both open."""
    tasks = []
    async with asyncio.timeout(20):
        for upgraded in (False, True):
            open_, event = Preview(upgraded=upgraded, shows=lambda _: shows), asyncio.Event()
            name = f"preview {upgraded=}"
            tasks.append(asyncio.create_task(open_.run(plane, served, "", event), name=name))
            await event.wait()
    await asyncio.sleep(0.7)
    assert not [task for task in tasks if task.done()]
    return {task.get_name(): task for task in tasks}


async def shared(plane, served, **wish):
    path = f"/v1/sandboxes/{served['id']}/ports/{served['port']}/links"
    link = await plane.admin.post(path, wish)
    return {"Cookie": f"paddock_preview={link['url'].partition('paddock_link=')[2]}"}


@pytest.mark.proves("V5")
async def test_a_revoked_link_ends_what_is_open_by_it(plane, served):
    tasks = await seen_by(plane, served, await shared(plane, served))
    assert (await plane.admin.delete(f"/v1/sandboxes/{served['id']}/links")).status == 200
    await check(tasks, "")


@pytest.mark.slow
@pytest.mark.proves("V5")
async def test_a_link_that_expires_ends_what_is_open_by_it(plane, served):
    before = time.time()
    tasks = await seen_by(plane, served, await shared(plane, served, lasts_s=5))
    lasting = await seen_by(plane, served, await shared(plane, served))
    await asyncio.sleep(max(0.0, before + 4.5 - time.time()))
    await check(tasks, "")
    assert time.time() - before > 3.5, "not before its time"
    assert not [task for task in lasting.values() if task.done()], "another link is another's"
    for task in lasting.values():
        task.cancel()


@pytest.mark.proves("V5")
async def test_a_port_that_is_private_again_is_left_by_all(plane, served):
    path = f"/v1/sandboxes/{served['id']}"
    for public in ([served["port"]], []):
        changed = await plane.admin.call("PATCH", path, {"public_ports": public})
        assert changed.status == 200, changed.body
        if public:
            tasks = await seen_by(plane, served, {})
    await check(tasks, "")
