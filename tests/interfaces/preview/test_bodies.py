"""The end of a body is found exactly, however its bytes arrive."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.interfaces.preview.bodies import Chunked, Sized
from paddock.interfaces.preview.refusal import Refusal

payloads = st.lists(st.binary(min_size=1, max_size=200), max_size=6)
trailers = st.sampled_from([b"", b"X-Sum: 1\r\n", b"A: b\r\nC:\t d \r\n"])
extensions = st.sampled_from([b"", b";a", b";a=b", b';a="b;c"'])


def framed(pieces: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    chunks = [b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces]
    return b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


@settings(deadline=None)
@given(payloads, extensions, trailers, st.lists(st.integers(0, 5000), max_size=12), st.binary())
def test_a_chunked_body_ends_at_its_last_byte(pieces, extension, trailer, cuts, after):
    wire = framed(pieces, extension, trailer)
    body = Chunked(keep=True)
    payload, position = b"", 0
    for part in split(wire + after, cuts):
        if body.done:
            break
        position += body.take(part)
        payload += body.payload()
    assert body.done
    assert position == len(wire)
    assert payload == b"".join(pieces)


@settings(deadline=None)
@given(st.integers(0, 500), st.lists(st.integers(0, 5000), max_size=5))
def test_a_sized_body_ends_at_its_last_byte(length, cuts):
    body, position = Sized(length), 0
    for part in split(b"x" * 600, cuts):
        if not body.done:
            position += body.take(part)
    assert body.done
    assert position == length


BAD = [
    b"g\r\n",
    b"-1\r\n",
    b"+1\r\nx\r\n",
    b"0x1\r\nx\r\n",
    b" 1\r\nx\r\n",
    b"1 \r\nx\r\n",
    b"1_0\r\n" + b"x" * 16 + b"\r\n",
    b"\r\n",
    b";a\r\n",
    b"1\nx\n0\n\n",
    b"1\r\nx\n",
    b"1\r\nxx\r\n",
    b"1\r\nx\r\r\n",
    b"2\r\nx\r\n0\r\n\r\n",
    b"1;a\nb\r\nx\r\n",
    b"1;a\0\r\nx\r\n",
    b"ffffffffffffffff\r\n",
    b"10000000000000000\r\n",
    b"1;" + b"a" * 5000 + b"\r\nx\r\n",
    b"1" + b";" * 5000,
    b"0\r\nX\r\n\r\n",
    b"0\r\nX : y\r\n\r\n",
    b"0\r\n y: z\r\n\r\n",
    b"0\r\nContent-Length: 4\r\n\r\n",
    b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"0\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
    b"0\r\n" + b"X: y\r\n" * 4000 + b"\r\n",
]


@pytest.mark.parametrize("wire", BAD)
def test_what_could_be_read_in_two_ways_is_refused(wire):
    body = Chunked()
    with pytest.raises(Refusal):
        assert body.take(wire) == len(wire) and body.done


@settings(deadline=None)
@given(st.sampled_from(BAD), st.lists(st.integers(0, 5000), max_size=8))
def test_it_is_refused_in_pieces_too(wire, cuts):
    body = Chunked()
    with pytest.raises(Refusal):
        for part in split(wire, cuts):
            body.take(part)
        assert body.done
        body.take(b"")


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_httptools_and_the_scanner_never_disagree(wire):
    body = Chunked()
    try:
        end = body.take(b"1\r\nx\r\n" + wire)
    except Refusal as refusal:
        assert "ambiguous" not in refusal.message
    else:
        assert end <= len(wire) + 6
