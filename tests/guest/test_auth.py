"""Who may call: tokens on TCP, trust on the unix socket, signatures on file URLs."""

import base64
import hashlib
import time
from urllib.parse import quote, urlencode

import pytest
import pytest_asyncio

from paddock.domain.errors import Unauthenticated
from paddock.domain.guest import GuestAddress
from paddock.guest_client import Guest
from tests.guest.conftest import StartPacked
from tests.guest.forms import TOKEN, GuestForm
from tests.guest.raw import Raw

pytestmark = pytest.mark.timeout(30)


def sign(
    path: str, operation: str, user: str = "", expiration: int | None = None, token: str = TOKEN
) -> str:
    text = f"{path}:{operation}:{user}:{token}" + ("" if expiration is None else f":{expiration}")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@pytest_asyncio.fixture
async def tcp(start_packed: StartPacked, free_port: int) -> Raw:
    form = await start_packed(port=free_port)
    async with Raw(form.address) as client:
        yield client


async def test_over_tcp_everything_but_health_needs_the_token(tcp: Raw) -> None:
    assert (await tcp("GET", "/health")).status == 204
    said = "unauthorized access, please provide a valid access token or method signing if supported"
    for verb, path in (
        ("GET", "/envs"),
        ("GET", "/metrics"),
        ("POST", "/init"),
        ("POST", "/paddock.Guest/Exec"),
        ("POST", "/process.Process/Start"),
        ("POST", "/filesystem.Filesystem/Stat"),
        ("GET", "/no/such/path"),
    ):
        answer = await tcp(verb, path)
        assert (answer.status, answer.json()["message"]) == (401, said), path
        wrong = await tcp(verb, path, headers={"x-access-token": TOKEN + "x"})
        assert wrong.status == 401, path
    assert (await tcp("GET", "/envs", headers={"x-access-token": TOKEN})).status == 200


async def test_the_client_sends_its_token(tcp: Raw) -> None:
    async with Guest(tcp.address) as guest:
        assert (await guest.exec(["echo", "hi"])).text == "hi\n"
        await guest.files.write("f", b"1")
        assert [e async for e in guest.start(["true"])]
    async with Guest(GuestAddress(url=tcp.address.url, token="wrong")) as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.exec(["true"])
        await stranger.health()


async def test_the_unix_socket_is_trusted_but_a_wrong_token_is_not(
    raw: Raw, shared: GuestForm
) -> None:
    assert (await raw("GET", "/envs")).status == 200
    assert (await raw("GET", "/envs", headers={"x-access-token": "wrong"})).status == 401
    assert (await raw("GET", "/envs", headers={"x-access-token": shared.token})).status == 200
    # Who comes through a proxy with a signature is judged by it.
    assert (await raw("GET", "/files?path=/etc/hostname&signature=v1_wrong")).status == 401
    good = quote(sign("/etc/passwd", "read", token=shared.token), safe="")
    assert (await raw("GET", f"/files?path=/etc/passwd&signature={good}")).status == 200


async def test_a_signature_opens_one_file_for_one_thing(tcp: Raw) -> None:
    def url(path: str, signature: str, **more: str) -> str:
        return "/files?" + urlencode(
            {"path": path, "signature": signature, **more}, quote_via=quote
        )

    octets = {"content-type": "application/octet-stream"}
    stored = await tcp("POST", url("s é", sign("s é", "write")), headers=octets, body=b"signed")
    assert stored.status == 200
    assert (await tcp("GET", url("s é", sign("s é", "read")))).body == b"signed"
    as_root = url("/home/user/s é", sign("/home/user/s é", "read", "root"), username="root")
    assert (await tcp("GET", as_root)).body == b"signed"
    later = int(time.time()) + 60
    timed = url("s é", sign("s é", "read", "", later), signature_expiration=str(later))
    assert (await tcp("GET", timed)).body == b"signed"
    past = int(time.time()) - 1
    expired = url("s é", sign("s é", "read", "", past), signature_expiration=str(past))
    for target, said in (
        ("/files?path=x", "missing signature query parameter"),
        (url("s é", sign("s é", "write")), "invalid signature"),
        (url("other", sign("s é", "read")), "invalid signature"),
        (url("s é", sign("s é", "read"), username="root"), "invalid signature"),
        (url("s é", sign("s é", "read", "", later)), "invalid signature"),
        (url("s é", sign("s é", "read"), signature_expiration=str(later)), "invalid signature"),
        (expired, "signature is already expired"),
    ):
        answer = await tcp("GET", target)
        assert answer.status == 401
        assert answer.json() == {"code": 401, "message": said}, target
    wrong = await tcp("GET", url("s é", sign("s é", "read")), headers={"x-access-token": "wrong"})
    assert wrong.json()["message"] == "access token present in header but does not match"


async def test_init_needs_the_current_token_and_can_change_it(tcp: Raw) -> None:
    body = b'{"accessToken":"changed","envVars":{"A":"1"}}'
    assert (await tcp("POST", "/init", body=body)).status == 401
    assert (await tcp("POST", "/init", headers={"x-access-token": TOKEN}, body=body)).status == 204
    assert (await tcp("GET", "/envs", headers={"x-access-token": TOKEN})).status == 401
    answer = await tcp("GET", "/envs", headers={"x-access-token": "changed"})
    assert answer.json() == {"A": "1"}


async def test_a_token_is_never_in_an_answer_or_a_listing(guest: Guest) -> None:
    assert TOKEN not in repr(GuestAddress(token=TOKEN))
    result = await guest.exec(
        ["sh", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline"], user="root"
    )
    assert TOKEN.encode() not in result.stdout
