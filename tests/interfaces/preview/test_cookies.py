"""Issue: Set-Cookie with a Domain. A sandbox sets cookies for its own host and for no other."""

import pytest

from tests.interfaces.preview.running import answering, connected, fetch, get, to_port

_GIVEN = {
    "a=1; Domain=preview.localhost; Path=/": "a=1; Path=/",
    "a=1;domain=.preview.localhost": "a=1",
    "a=1; Path=/;\tDOMAIN = x ;HttpOnly": "a=1; Path=/;HttpOnly",
    "a=1; domain; Secure": "a=1; Secure",
    "a=1; Domain=x; Domain=y; Max-Age=1": "a=1; Max-Age=1",
    "domain=mine; Path=/": "domain=mine; Path=/",
    "a=x,domain=y; SameSite=Lax": "a=x,domain=y; SameSite=Lax",
}


def answer(status, *lines):
    head = [f"HTTP/1.1 {status}", *(f"Set-Cookie: {each}" for each in _GIVEN), *lines, "", ""]
    return "\r\n".join(head).encode()


@pytest.mark.parametrize(
    ("status", "lines", "asked"),
    [
        ("200 OK", ("Content-Length: 0",), ()),
        ("302 Found", ("Content-Length: 0", "Location: /x"), ()),
        ("101 Switching", ("Upgrade: x",), ("Connection: Upgrade", "Upgrade: x")),
    ],
)
async def test_cookies_lose_their_domain_and_nothing_else(serve, status, lines, asked):
    async with answering(answer(status, *lines), close=True) as app:
        front = serve(to_port(app.port))
        if status.startswith("101"):
            async with connected(front.port) as client:
                await client.send(get("/", *asked))
                head = (await client.rest()).partition(b"\r\n\r\n")[0].decode()
                seen = [
                    line.partition(": ")[2]
                    for line in head.split("\r\n")
                    if line.startswith("Set-Cookie")
                ]
        else:
            found = await fetch(front.port, get("/"))
            seen = [value for name, value in found.headers if name.lower() == "set-cookie"]
    assert seen == list(_GIVEN.values())
