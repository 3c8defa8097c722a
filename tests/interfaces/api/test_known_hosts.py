"""Issue: DNS rebinding with --no-auth. Without tokens only names of this machine are answered."""

import aiohttp
import pytest

from paddock.settings import ServerConfig, Settings
from tests.control_plane import disposable

_PATHS = ("/v1/sandboxes", "/v1/version", "/v2/sandboxes", "/health", "/nothing")
_REBOUND = ("evil.example", "localhost.evil.example", "127.0.0.1.nip.example", "10.0.0.7")


@pytest.fixture(scope="module")
async def plane():
    settings = Settings(server=ServerConfig(public_url="http://paddock.example"))
    async with disposable(auth=False, settings=settings) as made:
        yield made


async def ask(plane, host, path="/v1/sandboxes", method="GET", **headers):
    headers = {"Host": host, **headers}
    async with plane.session.request(method, plane.url + path, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("host", _REBOUND)
async def test_a_page_whose_name_was_bound_to_this_machine_gets_nothing(plane, host):
    port = plane.url.rpartition(":")[2]
    for path in _PATHS:
        for name in (host, f"{host}:{port}", f"{host.upper()}.:{port}"):
            status, said = await ask(plane, name, path)
            assert (status, "forbidden" in said) == (403, True), (path, name, said)
    # A browser sends the page's own origin, which is the host that it believes to talk to.
    own = {"Origin": f"http://{host}:{port}", "Content-Type": "application/json"}
    status, said = await ask(plane, f"{host}:{port}", "/v1/teams", "POST", **own)
    assert status == 403
    assert "server.public_url" in said


async def test_it_gets_no_terminal_and_no_way_into_a_sandbox(plane):
    box = (await plane.client("").post("/v1/sandboxes", {"template": "plain"})).body
    path = f"{plane.url}/v1/sandboxes/{box['id']}/terminal?cmd=cat"
    headers = {"Host": "evil.example", "Origin": "http://evil.example"}
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await plane.session.ws_connect(path, headers=headers)
    assert refused.value.status == 403
    routed = {"E2b-Sandbox-Id": box["id"].replace("_", "")}
    status, said = await ask(plane, "evil.example", "/health", **routed)
    assert (status, "forbidden" in said) == (403, True)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.8.9.1:80",
        "[::1]:7070",
        "localhost:7070",
        "LOCALHOST.",
        "api.preview.localhost",
        "paddock.example",
    ],
)
async def test_names_of_this_machine_and_its_public_name_are_answered(plane, host):
    assert (await ask(plane, host))[0] == 200


@pytest.mark.parametrize("name", ["X-Forwarded-Host", "Forwarded"])
async def test_a_forwarding_header_makes_no_other_host_known(name):
    """A page may add it, and a proxy on the loopback is trusted with it."""
    config = ServerConfig(public_url="http://paddock.example", trusted_proxies=("127.0.0.0/8",))
    async with disposable(auth=False, settings=Settings(server=config)) as plane:
        value = "host=localhost" if name == "Forwarded" else "localhost"
        assert (await ask(plane, "evil.example", **{name: value}))[0] == 403
        assert (await ask(plane, "localhost", **{name: value}))[0] == 200


async def test_with_tokens_every_name_is_answered_as_before():
    async with disposable() as plane:
        headers = {"Authorization": f"Bearer {plane.admin.token}"}
        assert (await ask(plane, "any.example", **headers))[0] == 200
        assert (await ask(plane, "any.example"))[0] == 401
