"""Requests as they come in and as they go out, whatever the pieces they come in."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gateway.injecting import Head
from paddock.gateway.requests import Denied, Malformed, Request, Requests, split_host
from paddock.gateway.sniffing import Spoken, spoken


def reading(host: str = "a.example", *, once: bool = False) -> tuple[Requests, list[Request]]:
    seen: list[Request] = []

    def judge(request: Request) -> None:
        seen.append(request)
        if request.host not in ("", host):
            raise Denied(request.host)

    return Requests(judge, host, once=once), seen


GET = b"GET /x?y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n"
POST = (
    b"POST /p HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
)


def test_a_head_is_written_anew_without_what_is_for_this_hop():
    requests, seen = reading()
    raw = (
        b"GET /x HTTP/1.1\r\nhost: A.Example\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n"
        b"Proxy-Authorization: secret\r\nKeep: yes\r\n\r\n"
    )
    assert requests.feed(raw).data == b"GET /x HTTP/1.1\r\nHost: a.example\r\nKeep: yes\r\n\r\n"
    assert seen == [Request("a.example", None, "GET", "/x")]


@given(st.lists(st.integers(1, len(GET + POST + GET)), max_size=12))
def test_the_pieces_do_not_matter(cuts):
    whole = GET + POST + GET
    edges = sorted({0, len(whole), *cuts})
    requests, seen = reading()
    sent = b""
    for first, last in itertools.pairwise(edges):
        sent += requests.feed(whole[first:last]).data
    assert [each.method for each in seen] == ["GET", "POST", "GET"]
    assert sent.startswith(b"GET /x?y HTTP/1.1\r\nHost: a.example\r\n")
    assert sent.count(b"Host: a.example\r\n") == 3
    assert b"Trailer" not in sent
    body = sent.split(b"chunked\r\n\r\n")[1].split(b"GET")[0]
    assert _unchunked(body) == b"hello world"


def test_the_size_of_a_body_is_known_however_it_is_framed():
    heads: list[Head] = []

    def rewrite(head: Head) -> Head:
        heads.append(head)
        return head

    requests = Requests(lambda _request: None, "a.example", rewrite=rewrite)
    requests.feed(GET + POST)
    requests.feed(b"PUT /q HTTP/1.1\r\nHost: a.example\r\nContent-Length: 7\r\n\r\nseven b")
    assert [each.size.bytes for each in heads] == [0, 11, 7]


def _unchunked(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        found, body = found + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return found


@pytest.mark.proves("P16")
@given(st.integers(1, len(GET) + 20))
def test_nothing_of_a_denied_request_is_passed_on(cut):
    denied = b"GET /secret HTTP/1.1\r\nHost: b.example\r\n\r\n"
    requests, _ = reading()
    whole, sent = GET + denied, b""
    with pytest.raises(Denied):
        for piece in (whole[:cut], whole[cut:]):
            sent += requests.feed(piece).data
    assert b"secret" not in sent
    assert b"b.example" not in sent


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
        b"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"\x00\x01\x02",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(raw):
    requests, _ = reading()
    with pytest.raises((Malformed, Denied)):
        requests.feed(raw)


def test_a_head_without_end_is_cut_off():
    requests, _ = reading()
    requests.feed(b"GET / HTTP/1.1\r\nHost: a.example\r\n")
    with pytest.raises(Malformed):
        for number in range(100):
            requests.feed(b"X-%d: %b\r\n" % (number, b"y" * 1000))


def test_a_websocket_waits_and_other_upgrades_are_not_offered():
    requests, _ = reading()
    raw = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\nmore"
    output = requests.feed(raw % b"websocket")
    assert (output.upgraded, output.rest) == (True, b"more")
    assert b"Upgrade: websocket\r\n" in output.data
    requests, _ = reading()
    output = requests.feed((raw % b"h2c").removesuffix(b"more"))
    assert not output.upgraded
    assert b"pgrade" not in output.data
    assert requests.feed(GET).data


def test_a_proxys_request_loses_its_host_part_and_is_the_last():
    requests, seen = reading(once=True)
    raw = b"GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n"
    sent = requests.feed(raw).data
    assert sent == b"GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
    assert seen[0].host == "a.example"


@pytest.mark.parametrize(
    ("authority", "host", "port"),
    [
        ("A.example.", "a.example", None),
        ("a.example:8080", "a.example", 8080),
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("a.example:", "a.example", None),
        ("user@a.example", "?", None),
        ("a.example:80:80", "?", 80),
        ("[::1]:80", "?", 80),
        ("0x7f.1", "?", None),
        ("", "", None),
    ],
)
def test_hosts_of_requests_are_read_in_one_way(authority, host, port):
    assert split_host(authority) == (host, port)


@given(st.binary(max_size=300))
def test_anything_may_be_sent(raw):
    requests, seen = reading()
    try:
        requests.feed(raw)
    except (Malformed, Denied):
        return
    assert all(request.host in ("", "a.example") for request in seen)


@pytest.mark.parametrize(
    ("beginning", "what"),
    [
        (b"\x16\x03\x01", Spoken.TLS),
        (b"GET / HTTP/1.1\r\n", Spoken.HTTP),
        (b"get / http/1.1\n", Spoken.HTTP),
        (b"  \r\n\tPOST /x HTTP/1.0", Spoken.HTTP),
        (b"PRI * HTTP/2.0\r\n", Spoken.HTTP),
        (b"SSH-2.0-OpenSSH_9\r\n", Spoken.SSH),
        (b"SSH- /admin\r\n", Spoken.HTTP),
        *((bytes([kind]), Spoken.TLS) for kind in range(0x14, 0x19)),
        (b"\x80", Spoken.UNKNOWN_YET),
        (b"\x80\x2e", Spoken.UNKNOWN_YET),
        (b"\x80\x2e\x01", Spoken.TLS),
        (b"\x80\x2e\x00", Spoken.SOMETHING_ELSE),
        (b"EHLO me\r\n", Spoken.SOMETHING_ELSE),
        (b"\x00\x00\x00\x08", Spoken.SOMETHING_ELSE),
        (b"T\x00\x00\x01", Spoken.SOMETHING_ELSE),
        (b"GET /", Spoken.UNKNOWN_YET),
        (b"", Spoken.UNKNOWN_YET),
        (b"x" * 8192, Spoken.HTTP),
        (b"GET /" + b"x" * 8192, Spoken.HTTP),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n", Spoken.HTTP),
        (b" " * 8192, Spoken.HTTP),
        (b'{"text": "' + b"x" * 8192, Spoken.SOMETHING_ELSE),
        (b"GET\t/\tHTTP/1.1\r\n", Spoken.HTTP),
        (b"GET\x0b/\x0cHTTP/1.1\r\n", Spoken.HTTP),
        (b"GET\x0b", Spoken.UNKNOWN_YET),
        (b"GET /admin\r\n", Spoken.HTTP),
        (b"GET\t http://b.example/\n", Spoken.HTTP),
        (b"GET /\0", Spoken.HTTP),
        (b"GET key\r\n", Spoken.SOMETHING_ELSE),
    ],
)
def test_what_is_spoken_is_told_by_the_beginning(beginning, what):
    assert spoken(beginning) is what
