"""Fuzz target: HTTP heads in both directions mean the same to a strict parser when passed on."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.interfaces.preview import Edits, FrontConfig
from paddock.interfaces.preview.forwarding import Forwarding, split_host
from paddock.interfaces.preview.heads import FORWARDED, HOP_BY_HOP
from paddock.interfaces.preview.intake import Intake
from paddock.interfaces.preview.refusal import Garbled, Refusal
from paddock.interfaces.preview.request import Request, read_request
from paddock.interfaces.preview.response import read_response
from tests.harness.fuzz import fuzzed

_CONFIG = FrontConfig()
_FORWARDING = Forwarding()
_BAD = st.sampled_from(
    [
        b"\r",
        b"\n",
        b"\0",
        b"\t",
        b" ",
        b":",
        b",",
        b";",
        b"\x0b",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"\r\n ",
    ]
)
_NAMES = st.sampled_from(
    b"Host|host|Content-Length|Content-Length |Transfer-Encoding|Transfer_Encoding|Connection|"
    b"Upgrade|TE|Trailer|Expect|Cookie|X-Forwarded-For|X_Forwarded_For|Forwarded|Keep-Alive|"
    b"X-Paddock-Token|Proxy-Connection|X|:x|Set-Cookie|Content-Type|Date|Location|".split(b"|")
)
_VALUES = st.sampled_from(
    b"a.example|3000-web.preview.localhost|a:80|[::1]:7070|0|5|+5|0x5|5, 5|5,6|chunked|Chunked|"
    b"gzip, chunked|identity|chunked, chunked|close|keep-alive, X|Upgrade|websocket|h2c|"
    b"host, content-length|100-continue|a=1; Domain=x; Path=/|a=1;domain=.y|/|".split(b"|")
)
_PIECES = st.one_of(_VALUES, _VALUES, _VALUES, st.binary(max_size=6))
_LINES = st.builds(lambda *parts: b"".join(parts), _NAMES, st.just(b": "), _PIECES)
_LINES = st.one_of(
    _LINES, _LINES, st.builds(lambda a, b: a + b, _LINES, _BAD), st.binary(max_size=8)
)
_TARGETS = st.one_of(
    st.sampled_from(
        [b"/", b"/a?b", b"*", b"http://a.example/x", b"https://b", b"//x", b"/\\x", b"a:1"]
    ),
    st.binary(min_size=1, max_size=6),
)
_METHODS = st.sampled_from(
    [b"GET", b"POST", b"HEAD", b"OPTIONS", b"CONNECT", b"PRI", b"get", b"X-Y"]
)
_VERSIONS = st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2", b"HTTP/1.10", b""])


def _head(start: list[bytes], lines: list[bytes], *, hosted: bool) -> bytes:
    host = [b"Host: a.example"] if hosted else []
    return b"\r\n".join([b" ".join(start), *host, *lines, b"", b""])


_REQUESTS = st.builds(
    lambda method, target, version, lines, hosted: _head(
        [method, target, version], lines, hosted=hosted
    ),
    _METHODS,
    _TARGETS,
    _VERSIONS,
    st.lists(_LINES, max_size=5),
    st.booleans(),
)
_STATUS = st.sampled_from(
    [b"200 OK", b"200", b"204 No", b"304 x", b"101 Up", b"103 H", b"099 x", b"abc"]
)
_RESPONSES = st.builds(
    lambda version, status, lines: _head([version, status], lines, hosted=False),
    _VERSIONS,
    _STATUS,
    st.lists(_LINES, max_size=5),
)


def read(raw: bytes) -> Request | None:
    """As the listener does: the first head in the bytes, or None if it is refused."""
    intake = Intake(_CONFIG)
    intake.transport = _Transport()
    try:
        head = intake.head(raw)
        if head is None:
            return None
        return read_request(head, _CONFIG, lambda host, _: _FORWARDING.direct("192.0.2.1", host))
    except Refusal as refusal:
        assert 400 <= refusal.status < 500
        assert refusal.message
        return None


class _Transport:
    """Enough of one to hold back what comes after the head."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def understood(head: bytes) -> h11.Request:
    """What a strict server makes of it."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(head)
    event = server.next_event()
    assert isinstance(event, h11.Request), event
    return event


@fuzzed(600)
@given(_REQUESTS)
def test_a_request_is_refused_or_means_the_same_upstream(raw: bytes) -> None:
    request = read(raw)
    if request is None:
        return
    passed = request.for_upstream(Edits(remove=frozenset({b"x-paddock-token"})))
    event = understood(passed)
    assert event.method == request.head.method.encode()
    assert event.target == request.head.target
    assert event.target.startswith(b"/") or event.target == b"*"
    names = [name for name, _ in event.headers]
    assert names.count(b"host") == 1
    assert b"x-paddock-token" not in names
    values = dict(event.headers)
    assert split_host(values[b"host"].decode("latin-1")) is not None
    lengths = names.count(b"content-length") + names.count(b"transfer-encoding")
    assert lengths <= 1
    assert (values.get(b"transfer-encoding") == b"chunked") is (request.length is None)
    assert int(values.get(b"content-length", b"0")) == (request.length or 0)
    # The front's own forwarding headers are there once, and nobody else's.
    assert values[b"x-forwarded-for"] == b"192.0.2.1"
    for name in FORWARDED & set(names):
        assert names.count(name) == 1
        assert b"_" not in name
    assert not (HOP_BY_HOP - {b"upgrade", b"connection"}) & set(names)
    assert (b"upgrade" in names) is bool(request.upgrade)


@fuzzed(600)
@given(_RESPONSES)
def test_an_answer_is_refused_or_means_the_same_to_the_client(raw: bytes) -> None:
    end = raw.find(b"\r\n\r\n") + 4
    try:
        response = read_response(raw[:end])
    except Garbled as error:
        assert str(error)
        return
    passed = response.for_client(Edits(), b"")
    if response.status == 101:
        return  # h11 knows of no upgrade that was asked for
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(passed)
    event = client.next_event()
    assert isinstance(event, h11.Response | h11.InformationalResponse), event
    assert event.status_code == response.status
    names = [name for name, _ in event.headers]
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    for name, value in event.headers:
        if name == b"set-cookie":
            attributes = value.lower().split(b";")[1:]
            assert not [each for each in attributes if each.strip().startswith(b"domain")]


@fuzzed(300)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_refused(raw: bytes) -> None:
    read(raw)
    read(b"GET / HTTP/1.1\r\nHost: a\r\n" + raw + b"\r\n\r\n")
    with pytest.raises(Garbled):
        read_response(b"\0" + raw)
