"""Answers that are written anew, without values, and framed as they were."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gateway.credentials import Matchers
from paddock.gateway.protocol import Credential
from paddock.gateway.redacting import Matcher
from paddock.gateway.responses import Responses, Unreadable
from tests.domain.test_masking import WRITERS

MATCHER = Matcher({b"the-value": b"placeholder"})
OK = b"HTTP/1.1 200 OK\r\n"


def answers(*methods: str) -> Responses:
    made = Responses(lambda: MATCHER)
    for method in methods:
        made.expect(method)
    return made


def byte_by_byte(made: Responses, data: bytes) -> bytes:
    return b"".join(made.feed(bytes([each])) for each in data) + made.end()


@pytest.mark.parametrize("feed", [lambda made, data: made.feed(data) + made.end(), byte_by_byte])
@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b"Content-Length: 9\r\n\r\nthe-value", b"Content-Length: 9\r\n\r\nplacehold"),
        (
            b"X: the-value\r\nContent-Length: 0\r\n\r\n",
            b"X: placeholder\r\nContent-Length: 0\r\n\r\n",
        ),
        (b"\r\nthe-value.", b"Connection: close\r\n\r\nplaceholder."),
    ],
)
def test_one_answer(feed, sent: bytes, got: bytes):
    assert feed(answers("GET"), OK + sent) == OK + got


def unchunked(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        out, body = out + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return out


def test_chunks_are_cut_anew():
    made = answers("GET", "GET")
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    said = made.feed(head + b"4\r\nthe-\r\n5;x=y\r\nvalue\r\n0\r\nTrailer: x\r\n\r\n" + head)
    assert said.endswith(head)
    first = said.removesuffix(head).removeprefix(head)
    assert unchunked(first) == b"placeholder"
    assert first.endswith(b"0\r\n\r\n")
    assert b"Trailer" not in said


def test_what_is_packed_is_unpacked():
    packed = gzip.compress(b"it is the-value" * 1000)
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    said = byte_by_byte(answers("GET"), head + packed)
    got, _, body = said.partition(b"\r\n\r\n")
    assert b"Content-Encoding" not in got
    assert b"Transfer-Encoding: chunked" in got
    assert unchunked(body) == b"it is placeholder" * 1000


def packed_head(packed: bytes, encoding: bytes = b"gzip") -> bytes:
    return OK + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding, len(packed))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_every_member_of_what_is_packed_is_unpacked(step: int):
    """Issue: gzip members after the first were dropped."""
    packed = b"".join(map(gzip.compress, (b"it is ", b"", b"the-", b"value."))) + bytes(9)
    sent, made = packed_head(packed) + packed, answers("GET")
    said = b"".join(made.feed(sent[at : at + step]) for at in range(0, len(sent), step))
    assert unchunked(said.partition(b"\r\n\r\n")[2]) == b"it is placeholder."
    assert made.is_idle


@pytest.mark.parametrize(
    ("packed", "encoding"),
    [
        (gzip.compress(b"x" * 100)[:-1], b"gzip"),
        (gzip.compress(b"x") + gzip.compress(b"y")[:9], b"gzip"),
        (gzip.compress(b"x") + b"garbage", b"gzip"),
        (zlib.compress(b"x") + zlib.compress(b"y"), b"deflate"),
    ],
    # Packed data has the time in it, and workers must collect the same names.
    ids=["cut off", "cut off in the second", "garbage behind", "two of deflate"],
)
def test_what_is_packed_and_incomplete_or_followed_by_something_is_not_passed_on_as_whole(
    packed: bytes, encoding: bytes
):
    made = answers("GET")
    with pytest.raises(Unreadable):
        made.feed(packed_head(packed, encoding) + packed)
    assert not made.is_between, "the client is not told that this was all"
    until_close = answers("GET")
    until_close.feed(OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"x")[:-1])
    with pytest.raises(Unreadable):
        until_close.end()


def test_answers_without_a_body_end_with_their_head():
    made = answers("HEAD", "GET", "GET", "GET")
    head = OK + b"Content-Length: 100\r\n\r\n"
    assert made.feed(head) == head
    none = b"HTTP/1.1 204 No Content\r\n\r\n"
    unchanged = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"
    going = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert made.feed(none + unchanged + going) == none + unchanged + going
    assert not made.is_idle
    assert made.feed(OK + b"Content-Length: 1\r\n\r\nx").endswith(b"\r\n\r\nx")
    assert made.is_idle


def test_after_a_switch_bytes_pass_without_values():
    made = answers("GET")
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
    assert made.feed(head + b"\x81\x09the-value") == head + b"\x81\x09placehold"
    assert made.spliced


def test_where_answers_are_counted_nothing_is_switched_to():
    made = answers("GET")
    made.may_splice = False
    with pytest.raises(Unreadable, match="another protocol"):
        made.feed(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Content-Encoding: br\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc",
        OK + b"X: " + b"x" * 200_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        OK + b"Content-Length: 0\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    ],
)
def test_what_could_be_read_in_two_ways_is_not_passed_on(sent: bytes):
    with pytest.raises(Unreadable):
        answers("GET").feed(sent)


def test_a_bomb_does_not_fill_memory():
    packed = gzip.compress(bytes(1 << 28))
    with pytest.raises(Unreadable, match="fill memory"):
        answers("GET").feed(OK + b"Content-Encoding: gzip\r\n\r\n" + packed)


PACKED = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "": lambda data: data,
}
SECRET = "sk-a/b+c=d&e<f>'g\" 0123456789"


@pytest.mark.proves("K9")
@given(st.sampled_from(sorted(WRITERS)), st.sampled_from(sorted(PACKED)), st.integers(1, 97))
def test_no_form_of_a_value_comes_back_however_it_is_packed(writer: str, packing: str, step: int):
    said = WRITERS[writer](SECRET).encode()
    credential = Credential("KEY", "pdk-KEY-0123", ["a.example"], "header", value=SECRET)
    matcher = Matchers().of([(SECRET.encode(), credential.placeholder.encode())])
    made = Responses(lambda: matcher)
    made.expect("GET")
    packed = PACKED[packing](b"before " + said + b" between " + said + b" after")
    encoding = b"Content-Encoding: %b\r\n" % packing.encode() if packing else b""
    head = OK + b"X-Said: " + said.replace(b"\n", b"") + b"\r\n" + encoding
    sent = head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed
    got = b"".join(made.feed(sent[at : at + step]) for at in range(0, len(sent), step))
    plain = unchunked(got.partition(b"\r\n\r\n")[2]) if packing else got
    assert said not in got
    assert said not in plain
    assert got.count(b"pdk-KEY") + plain.count(b"pdk-KEY") >= 3


@pytest.mark.parametrize("packing", [b"br", b"zstd", b"compress", b"gzip, br"])
def test_what_cannot_be_unpacked_is_refused(packing: bytes):
    with pytest.raises(Unreadable, match="packed as"):
        answers("GET").feed(OK + b"Content-Encoding: " + packing + b"\r\n\r\nabcd")
