"""Headers that stay behind, that the owner changes, and that say where a request goes."""

import pytest

from paddock.interfaces.preview import Edits
from tests.interfaces.preview.running import (
    HOST,
    OK,
    answering,
    fetch,
    get,
    to_port,
)


async def test_hop_by_hop_headers_stay_behind_in_both_directions(serve):
    answer = (
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Inner\r\nKeep-Alive: timeout=5\r\n"
        b"X-Inner: secret\r\nProxy-Authenticate: Basic\r\nX-Outer: o\r\nContent-Length: 2\r\n\r\nok"
    )
    sent = get(
        "/",
        "Connection: close, X-Hop, Host",
        "X-Hop: 1",
        "Keep-Alive: 5",
        "TE: trailers",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic eA==",
        "Upgrade: h2c",
        "HTTP2-Settings: AAA",
        "X-End: 2",
    )
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port))
        got = await fetch(front.port, sent)
    names = {name.lower() for name, _ in got.headers}
    assert names == {"x-outer", "content-length", "connection"}
    passed = {line.partition(b":")[0].lower() for line in upstream.requests[0].split(b"\r\n")[1:]}
    forwarded = {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port"}
    assert passed == {b"host", b"x-end", b"forwarded", b"", *forwarded}


async def test_the_owner_can_change_headers_but_not_the_framing(serve):
    request = Edits(
        put=((b"Host", b"localhost:3000"), (b"X-Added", b"1"), (b"Content-Length", b"99")),
        remove=frozenset({b"cookie", b"transfer-encoding"}),
    )
    response = Edits(put=((b"X-Frame-Options", b"DENY"),), remove=frozenset({b"server"}))
    answer = (
        b"HTTP/1.1 200 OK\r\nServer: x\r\nx-frame-options: ALLOW\r\nContent-Length: 2\r\n\r\nok"
    )
    async with answering(answer) as upstream:
        front = serve(to_port(upstream.port, request=request, response=response))
        got = await fetch(front.port, get("/", "Cookie: a=b", "X-Kept: 1"))
    head = upstream.requests[0]
    hosts = [line for line in head.split(b"\r\n") if b"host: " in line.lower()]
    assert sorted(hosts) == [b"Host: localhost:3000", f"X-Forwarded-Host: {HOST}".encode()]
    assert b"X-Added: 1\r\n" in head and b"X-Kept: 1\r\n" in head
    assert b"Cookie" not in head and b"Content-Length" not in head
    assert got.get("x-frame-options") == "DENY"
    assert got.get("server") is None


async def test_the_owner_s_word_about_the_way_counts_more_than_the_front_s(serve):
    edits = Edits(put=((b"X-Forwarded-Host", b"else.test"),), remove=frozenset({b"forwarded"}))
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port, request=edits))
        await fetch(front.port, get())
    head = upstream.requests[0].lower()
    assert head.count(b"x-forwarded-host:") == 1
    assert b"x-forwarded-host: else.test\r\n" in head
    assert b"\r\nforwarded:" not in head
    assert b"x-forwarded-for: 127.0.0.1\r\n" in head


def test_edits_cannot_smuggle_a_line():
    with pytest.raises(ValueError, match="no header"):
        Edits(put=((b"X", b"a\r\nY: b"),))


async def test_a_url_in_the_request_line_becomes_a_path(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        for url in (f"http://{HOST}/x?y", f"http://{HOST.upper()}:80/x?y"):
            got = await fetch(front.port, get(url))
            assert got.status == 200
        await fetch(front.port, get(f"http://{HOST}?q"))
    targets = [request.split()[1] for request in upstream.requests]
    assert targets == [b"/x?y", b"/x?y", b"/?q"]
