"""Fuzz target: whatever a guest answers, the client returns a value or raises a domain error."""

import asyncio
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paddock.guest_client
from paddock.domain.errors import PaddockError
from paddock.domain.guest import GuestAddress
from paddock.services.transfers import Span, TransferGuest
from tests.harness.fuzz import fuzzed

_SOURCES = [each.read_text() for each in Path(paddock.guest_client.__path__[0]).glob("*.py")]
_FIELDS = sorted({name for text in _SOURCES for name in re.findall(r'"([a-z][A-Za-z]+)"', text)})
"""Every name that the client could look for."""

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["exited", "EVENT_TYPE_CREATE", "FILE_TYPE_FILE", "eA==", "/..", "\ud800", "²"]
    ),
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=6)
    return st.one_of(objects, st.lists(inner, max_size=4))


_MESSAGES = st.dictionaries(
    st.sampled_from(_FIELDS), st.recursive(_SCALARS, _nested, max_leaves=12), max_size=6
).map(lambda each: json.dumps(each).encode())
_BODIES = st.one_of(_MESSAGES, st.binary(max_size=60), st.just(b"[" * 5000))


def _framed(flags: int, body: bytes, length: int | None) -> bytes:
    return struct.pack(">BI", flags, len(body) if length is None else length) + body


_LENGTHS = st.one_of(st.none(), st.none(), st.none(), st.integers(0, (1 << 32) - 1))
_STREAMS = st.lists(
    st.builds(_framed, st.sampled_from([0, 0, 1, 2, 255]), _BODIES, _LENGTHS), max_size=5
).map(b"".join)
_HEADERS = st.lists(
    st.sampled_from(
        [
            b"content-type: application/json",
            b"content-type: application/connect+json",
            b"content-length: 5",
            b"content-length: -1",
            b"content-length: 18446744073709551616",
            b"transfer-encoding: chunked",
            b"transfer-encoding: gzip, chunked",
            b"content-encoding: gzip",
            b"content-range: bytes 0-1/x",
            b'etag: "a"',
            b"etag: " + b"x" * 200,
            b"set-cookie: a=b",
            b"location: http://127.0.0.1:1/",
            b"connection: upgrade",
            b"upgrade: x",
            b"x\0y: z",
            b" folded",
            b"no colon",
        ]
    ),
    max_size=5,
)


def _answer(status: int, headers: list[bytes], body: bytes, whole: bool) -> bytes:
    length = [b"content-length: %d" % len(body)] if whole else []
    return b"\r\n".join([b"HTTP/1.1 %d X" % status, *headers, *length, b"", body])


_ANSWERS = st.one_of(
    st.builds(
        _answer,
        st.one_of(st.just(200), st.sampled_from([100, 101, 204, 206, 302, 400, 404, 500, 999])),
        _HEADERS,
        st.one_of(_BODIES, _STREAMS),
        st.booleans(),
    ),
    st.builds(_answer, st.just(200), st.just([]), st.one_of(_BODIES, _STREAMS), st.just(True)),
    st.binary(max_size=100),
)


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


_CALLS = {
    "health": lambda guest: guest.health(),
    "init": lambda guest: guest.init(token="t"),
    "exec": lambda guest: guest.exec(["true"], timeout=2),
    "start": lambda guest: _all(guest.start(["true"])),
    "ports": lambda guest: guest.ports(),
    "usage": lambda guest: guest.usage(),
    "commands": lambda guest: guest.commands.list(),
    "run": lambda guest: guest.runs.get("k"),
    "runs": lambda guest: guest.runs.list(),
    "tail": lambda guest: _all(guest.runs.tail("k")),
    "read run": lambda guest: guest.runs.read("k", {"stdout": 0}),
    "messages": lambda guest: guest.messages.list("k"),
    "processes": lambda guest: guest.processes.list(),
    "logs": lambda guest: _all(guest.processes.logs("p")),
    "desk": lambda guest: guest.desks.open("k"),
    "desk calls": lambda guest: guest.desks.take("k", 0, wait_s=0),
    "read": lambda guest: guest.files.read("/x", limit=1000),
    "list": lambda guest: guest.files.list("/x"),
    "stat": lambda guest: guest.files.stat("/x"),
    "watch": lambda guest: _all(guest.files.watch("/x")),
    "attributes": lambda guest: guest.posix.stat("/x", ""),
    "scan": lambda guest: _all(guest.posix.scan("/x", "")),
    "link": lambda guest: guest.posix.read_link("/x", ""),
    "space": lambda guest: guest.posix.space("/x", ""),
    "part": lambda guest: _all(TransferGuest.open_file(guest, "/x", "", Span("bytes=0-1"))),
    "changes": lambda guest: _all(TransferGuest.watch(guest, "/x", "", recursive=True)),
}


class Pretender:
    """A guest that gives the same bytes to whatever it is asked."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.said = b""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.said)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture(scope="module")
def pretender(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Pretender, asyncio.Runner]]:
    made = Pretender(str(tmp_path_factory.mktemp("guest") / "s"))
    with asyncio.Runner() as runner:
        server = runner.run(_listen(made))
        yield made, runner
        server.close()


async def _listen(pretender: Pretender) -> asyncio.Server:
    return await asyncio.start_unix_server(pretender.answer, pretender.path)


@fuzzed(250)
@given(st.sampled_from(sorted(_CALLS)), _ANSWERS)
def test_any_answer_is_a_value_or_an_error_of_the_domain(
    pretender: tuple[Pretender, asyncio.Runner], call: str, answer: bytes
) -> None:
    made, runner = pretender
    made.said = answer

    async def ask() -> None:
        async with asyncio.timeout(10), TransferGuest(GuestAddress(socket=made.path)) as guest:
            try:
                await _CALLS[call](guest)
            except PaddockError as error:
                assert error.message
                error.message.encode()

    runner.run(ask())
