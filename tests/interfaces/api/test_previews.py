"""Previews through the one public port, with a real server in a sandbox."""

import asyncio
import json

import pytest
from multidict import CIMultiDict
from yarl import URL

from paddock.domain.errors import Unavailable
from paddock.services.verbs import ref_of
from paddock.settings import ServerConfig, Settings
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable
from tests.harness.ports import free_port

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = str(self.headers).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.headers.add_header("asked-for", self.path)
        self.do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Site:
    """A server in a sandbox, and a browser that keeps its cookies."""

    def __init__(self, plane, box, port):
        self.plane, self.box, self.port = plane, box, port
        self.host = f"{port}-{box['id'].replace('_', '-')}.preview.localhost"
        self.path = f"/v1/sandboxes/{box['id']}"

    async def get(self, target="/", host=None, **headers):
        async with self.plane.session.get(
            self.plane.url + target,
            headers={"Host": host or self.host, **headers},
            allow_redirects=False,
        ) as answer:
            return answer.status, await answer.text(), answer.headers

    async def until(self, status, **headers):
        async with asyncio.timeout(20):
            while True:
                found = await self.get(**headers)
                if found[0] == status:
                    return found
                await asyncio.sleep(0.05)


@pytest.fixture
async def site(plane, box):
    port = free_port()
    made = Site(plane, box, port)
    wish = {"cmd": ["python3", "-c", SERVER, str(port)]}
    await plane.admin.post(f"{made.path}/commands", wish)
    await made.until(200, **{"X-Paddock-Token": plane.admin.token})
    return made


@pytest.mark.proves("V1", "V5")
async def test_a_preview_is_private_until_a_link_opens_it(plane, site):
    status, body, _ = await site.get()
    assert status == 401
    assert "private" in body
    link = await plane.admin.post(f"{site.path}/ports/{site.port}/links", {"lasts_s": 60})
    assert link.status == 201
    address, _, query = link["url"].partition("/?")
    assert address.startswith(f"http://{site.host}:")
    status, _, headers = await site.get(f"/deep/page?x=1&{query}")
    assert status == 303
    assert headers["location"] == "/deep/page?x=1"
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    status, seen, _ = await site.get("/deep/page?x=1", Cookie=f"own=1; {cookie.partition(';')[0]}")
    assert status == 200
    # The sandbox is not told what opened the door.
    assert "own=1" in seen
    assert "paddock_preview" not in seen


@pytest.mark.parametrize(
    "cookies",
    [
        ["own=1;paddock_preview={}"],
        ["paddock_preview={};own=1"],
        ["own=1;  paddock_preview = {} ; more=2"],
        ["own=1", "paddock_preview={}"],
        ["own=1; paddock_preview={}", "paddock_preview={}"],
    ],
)
async def test_the_sandbox_is_not_told_the_cookie_however_it_is_written(plane, site, cookies):
    """Issue: preview cookie leaking to the sandbox."""
    link = await plane.admin.post(f"{site.path}/ports/{site.port}/links", {})
    word = link["url"].partition("paddock_link=")[2]
    headers = CIMultiDict([("Host", site.host)])
    for line in cookies:
        headers.add("Cookie", line.format(word))
    async with plane.session.get(plane.url, headers=headers) as answer:
        seen = await answer.text()
    assert answer.status == 200, seen
    assert "own=1" in seen
    assert word not in seen
    assert "paddock_preview" not in seen


async def test_the_sandbox_is_not_told_the_link_of_a_post(plane, site):
    """Issue: preview link leaking to the sandbox."""
    link = await plane.admin.post(f"{site.path}/ports/{site.port}/links", {})
    word = link["url"].partition("paddock_link=")[2]
    for query, kept in (
        (f"paddock_link={word}", "/hook"),
        (f"a=%ff+b&paddock_link={word}&c", "/hook?a=%ff+b&c"),
        (f"paddock%5flink={word}&paddock_link=", "/hook"),
    ):
        url = URL(f"{plane.url}/hook?{query}", encoded=True)
        async with plane.session.post(url, headers={"Host": site.host}, data=b"x") as answer:
            seen = await answer.text()
        assert answer.status == 200, seen
        assert f"asked-for: {kept}\n" in seen
        assert word not in seen


@pytest.mark.parametrize(
    "path", ["//evil.example/", "/\\evil.example/", "/\\/evil.example", "/\\\\e"]
)
async def test_a_link_leads_to_no_other_host(plane, site, path):
    """Issue: open redirect on preview links."""
    link = await plane.admin.post(f"{site.path}/ports/{site.port}/links", {})
    query = link["url"].partition("/?")[2]
    url = URL(f"{plane.url}{path}?x=1&{query}", encoded=True)
    headers = {"Host": site.host}
    async with plane.session.get(url, headers=headers, allow_redirects=False) as answer:
        where = answer.headers["location"]
    assert answer.status == 303
    assert where == "/" + path.lstrip("/\\") + "?x=1"


@pytest.mark.proves("V5")
async def test_a_link_opens_only_what_it_is_for_and_ends(plane, site, box):
    link = await plane.admin.post(f"{site.path}/ports/{site.port}/links", {})
    word = link["url"].partition("paddock_link=")[2]
    other_port = f"{site.port + 1}-{site.host.partition('-')[2]}"
    assert (await site.get(host=other_port, Cookie=f"paddock_preview={word}"))[0] == 401
    changed = word[:-1] + ("A" if word[-1] != "A" else "B")
    for wrong in (changed, "", "x", "a.b.c.d.e"):
        assert (await site.get(Cookie=f"paddock_preview={wrong}"))[0] == 401
    assert (await site.get(Cookie=f"paddock_preview={word}"))[0] == 200
    assert (await plane.admin.delete(f"{site.path}/links")).status == 200
    assert (await site.get(Cookie=f"paddock_preview={word}"))[0] == 401
    short = await plane.admin.post(f"{site.path}/ports/{site.port}/links", {"lasts_s": 1})
    await asyncio.sleep(1.2)
    status, body, _ = await site.get("/?" + short["url"].partition("/?")[2])
    assert status == 401
    assert "expired" in body


@pytest.mark.proves("U1")
async def test_another_teams_token_finds_no_preview(plane, site):
    stranger = await plane.team("nosy")
    theirs = {"X-Paddock-Token": stranger.token, "X-Request-Id": "the-same"}
    status, seen, _ = await site.get(**theirs)
    assert status == 404
    nowhere = f"{site.port}-sbx-{'0' * 26}.preview.localhost"
    missing = json.loads((await site.get(host=nowhere, **theirs))[1])["error"]
    hidden = json.loads(seen)["error"]
    del missing["request_id"], hidden["request_id"]
    assert hidden == missing
    status, seen, _ = await site.get(**{"X-Paddock-Token": plane.admin.token})
    assert status == 200
    assert plane.admin.token not in seen


@pytest.mark.proves("V1")
async def test_a_port_can_be_made_public_and_private_again(plane, site):
    await plane.admin.call("PATCH", site.path, {"public_ports": [site.port]})
    status, seen, _ = await site.get(host=site.host.upper())
    assert status == 200
    assert "X-Forwarded-For: 127.0.0.1" in seen
    ports = await plane.admin.get(f"{site.path}/ports/{site.port}")
    assert ports["public"] is True
    await plane.admin.call("PATCH", site.path, {"public_ports": []})
    assert (await site.get())[0] == 401


@pytest.mark.proves("V6")
async def test_errors_are_honest(plane, site, box):
    token = {"X-Paddock-Token": plane.admin.token}
    silent = f"{free_port()}-{site.host.partition('-')[2]}"
    status, body, headers = await site.get(host=silent, **token)
    assert (status, headers["content-type"]) == (502, "application/json")
    assert f"port {site.port}" in body
    status, page, headers = await site.get(host=silent, Accept="text/html", **token)
    assert headers["content-type"].startswith("text/html")
    assert f"{site.port}-{box['id'].replace('_', '-')}" in page
    unknown = f"{site.port}-sbx-{'0' * 26}.preview.localhost"
    assert (await site.get(host=unknown, **token))[0] == 404
    await plane.admin.delete(site.path)
    assert (await site.get(**token))[0] == 410


@pytest.mark.proves("V3", "V4")
async def test_a_visit_wakes_a_stopped_sandbox_once_and_says_that_it_is_waking(plane, site):
    token = {"X-Paddock-Token": plane.admin.token}
    # What is supervised comes back with its sandbox; here the port is all that matters.
    await plane.admin.post(f"{site.path}/stop")
    status, body, headers = await site.get(**token)
    assert (status, headers["retry-after"]) == (503, "1")
    assert "waking" in body
    pages = await asyncio.gather(*(site.get(Accept="text/html", **token) for _ in range(8)))
    assert {status for status, _, _ in pages} <= {503, 502}
    await site.until(502, **token)
    assert (await plane.admin.get(site.path))["state"] == "running"
    events = await plane.admin.get(f"/v1/events?subject={site.box['id']}")
    woken = [e for e in events["items"] if e["actor"] == "paddock/preview"]
    assert [event["kind"] for event in woken] == ["sandbox.running"]


@pytest.mark.proves("V5")
async def test_who_may_not_see_a_preview_cannot_wake_it(plane, site):
    await plane.admin.post(f"{site.path}/stop")
    assert (await site.get())[0] == 401
    await asyncio.sleep(0.3)
    assert (await plane.admin.get(site.path))["state"] == "stopped"


async def test_the_api_answers_on_every_other_host(plane):
    async with plane.session.get(plane.url + "/healthz", headers={"Host": "example.org"}) as answer:
        assert answer.status == 200


@pytest.mark.proves("L8")
async def test_a_web_socket_passes_and_counts_as_work_while_it_is_open(plane, box):
    port = free_port()
    site = Site(plane, box, port)
    echo = (
        "import asyncio, sys\n"
        "async def serve(r, w):\n"
        "    head = await r.readuntil(b'\\r\\n\\r\\n')\n"
        "    w.write(b'HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: echo\\r\\n"
        "Connection: Upgrade\\r\\n\\r\\n')\n"
        "    while data := await r.read(1000):\n"
        "        w.write(data.upper())\n"
        "    w.close()\n"
        "async def main():\n"
        "    s = await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1]))\n"
        "    await s.serve_forever()\n"
        "asyncio.run(main())\n"
    )
    await plane.admin.post(f"{site.path}/commands", {"cmd": ["python3", "-c", echo, str(port)]})
    where = plane.url.removeprefix("http://").split(":")
    activity = plane.services.inside._activity
    async with asyncio.timeout(20):
        while True:
            reader, writer = await asyncio.open_connection(where[0], int(where[1]))
            writer.write(
                f"GET / HTTP/1.1\r\nHost: {site.host}\r\nX-Paddock-Token: {plane.admin.token}\r\n"
                "Upgrade: echo\r\nConnection: Upgrade\r\n\r\n".encode()
            )
            if b" 101 " in await reader.readuntil(b"\r\n\r\n"):
                break
            writer.close()
            await asyncio.sleep(0.1)
    writer.write(b"quiet")
    assert await reader.readexactly(5) == b"QUIET"
    assert activity.doing(box["id"]).get("preview") == 1
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(5):
        while "preview" in activity.doing(box["id"]):
            await asyncio.sleep(0.01)


@pytest.mark.proves("V6")
@pytest.mark.parametrize(
    "label",
    ["x-y", "99999-name", "0-name", "3000", "web", "3000-", "3000--x", "a.3000-web", "3000-we_b"],
)
async def test_a_name_that_is_no_previews_is_answered_as_a_preview_and_not_as_the_api(plane, label):
    for path in ("/", "/healthz", "/v1/version"):
        headers = {"Host": f"{label}.preview.localhost", "Accept": "text/html"}
        async with plane.session.get(plane.url + path, headers=headers) as answer:
            page = await answer.text()
            assert (answer.status, answer.content_type) == (404, "text/html"), page
            assert "No such preview" in page
            assert "PORT-SANDBOX.preview.localhost" in page
    headers = {"Host": f"{label}.preview.localhost"}
    async with plane.session.get(f"{plane.url}/v1/version", headers=headers) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (404, "not_found")


async def test_the_apis_own_name_may_be_below_the_previews_domain():
    server = ServerConfig(preview_domain="box.test", public_url="https://api.box.test:8443")
    async with disposable(settings=Settings(server=server)) as plane:
        for host, status in (("api.box.test", 200), ("box.test", 200), ("other.box.test", 404)):
            async with plane.session.get(
                f"{plane.url}/v1/version", headers={"Host": host}
            ) as answer:
                assert answer.status == status, host


@pytest.mark.proves("V6")
async def test_a_machine_that_died_unnoticed_is_noticed_by_its_visitor(plane, box):
    site = Site(plane, box, free_port())
    record = await plane.services.store.read(lambda tx: tx.sandboxes.get("", box["id"]))
    await plane.services.providers.get("").destroy(ref_of(record))
    token = {"X-Paddock-Token": plane.admin.token}
    status, said, _ = await site.get(**token)
    assert (status, "the sandbox failed: " in said) == (502, True)
    assert (await plane.admin.get(site.path))["state"] == "failed"


class Silent(ReferenceProvider):
    """Cannot be heard when it is asked for an endpoint."""

    async def endpoint(self, ref, port):
        raise Unavailable("nobody answers at 10.0.0.7", retry_after_s=2.5)


@pytest.mark.proves("V6")
async def test_a_provider_that_cannot_be_heard_is_not_a_fault_of_the_front():
    async with disposable(provider=Silent) as plane:
        box = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
        site = Site(plane, box, free_port())
        status, said, headers = await site.get(**{"X-Paddock-Token": plane.admin.token})
        assert (status, headers["retry-after"]) == (503, "3")
        assert "10.0.0.7" in said
        await plane.admin.call("PATCH", site.path, {"public_ports": [site.port]})
        status, said, headers = await site.get()
        assert (status, headers["retry-after"]) == (503, "3")
        assert "cannot be reached" in said
        assert "10.0.0.7" not in said
