"""The client against guests that lie, stall, break off and talk nonsense."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from paddock.domain.errors import (
    Broken,
    Conflict,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PaddockError,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from paddock.domain.guest import GuestAddress
from paddock.guest_client import Guest

pytestmark = pytest.mark.timeout(30)

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Pretend = Callable[[bytes], GuestAddress]


@pytest_asyncio.fixture
async def pretend(tmp_path: Path) -> AsyncIterator[Pretend]:
    """A guest that gives the same bytes to whatever it is asked."""
    path = str(tmp_path / "s")
    said = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def say(data: bytes) -> GuestAddress:
        nonlocal said
        said = data
        return GuestAddress(socket=path)

    async with await asyncio.start_unix_server(answer, path):
        yield say


def http(
    body: bytes, status: int = 200, kind: str = "application/json", length: int | None = None
) -> bytes:
    size = len(body) if length is None else length
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n\r\n".encode()
        + body
    )


def frames(*messages: object, flags: int = 0) -> bytes:
    return b"".join(_frame(json.dumps(m).encode(), flags) for m in messages)


def _frame(body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(body)) + body


async def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    for address in (
        GuestAddress(socket=str(tmp_path / "nothing")),
        GuestAddress(url="http://127.0.0.1:1"),
    ):
        async with Guest(address) as guest:
            with pytest.raises(Unavailable) as raised:
                await guest.exec(["true"])
            assert raised.value.retryable


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("invalid_argument", 400, InvalidRequest),
        ("failed_precondition", 400, Conflict),
        ("already_exists", 409, Conflict),
        ("not_found", 404, NotFound),
        ("unauthenticated", 401, Unauthenticated),
        ("permission_denied", 403, Forbidden),
        ("resource_exhausted", 429, LimitExceeded),
        ("unimplemented", 501, Unsupported),
        ("deadline_exceeded", 504, TimedOut),
        ("unavailable", 503, Unavailable),
        ("internal", 500, Broken),
        ("something_new", 500, Broken),
    ],
)
async def test_each_code_has_its_error(
    pretend: Pretend, code: str, status: int, error: type[PaddockError]
) -> None:
    body = json.dumps({"code": code, "message": "because"}).encode()
    async with Guest(pretend(http(body, status))) as guest:
        with pytest.raises(error, match="because"):
            await guest.runs.get("x")
    end = _frame(json.dumps({"error": {"code": code, "message": "because"}}).encode(), 2)
    async with Guest(pretend(http(end, kind="application/connect+json"))) as guest:
        with pytest.raises(error, match="because"):
            await anext(guest.runs.tail("x"))


@pytest.mark.parametrize(
    "answer",
    [
        b"220 smtp ready\r\n",
        http(b"not json"),
        http(b"[]"),
        http(b"[" * 100_000),
        http(b"{}"),
        http(b'{"exitCode":"x","stdout":"","stderr":"","reason":"exited"}'),
        http(b'{"exitCode":true,"stdout":"","stderr":"","reason":"exited"}'),
        http(b'{"exitCode":0,"stdout":5,"stderr":"","reason":"exited"}'),
        http(b'{"exitCode":0,"stdout":"!!","stderr":"","reason":"exited"}'),
        http(b'{"exitCode":0,"stdout":"","stderr":"","reason":"because"}'),
        http(b'{"exitCode":' + b"9" * 10_000 + b"}"),
        http(b'{"exitCode":' + b"9" * 400 + b',"reason":"exited"}'),
        http('{"exitCode":"\u00b2","reason":"exited"}'.encode()),
        http(b"", 302),
    ],
)
async def test_an_impossible_answer_is_broken(pretend: Pretend, answer: bytes) -> None:
    async with Guest(pretend(answer)) as guest:
        with pytest.raises(Broken):
            await guest.exec(["true"])


async def test_an_answer_without_end_is_cut_off(pretend: Pretend) -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (9 << 20)
    async with Guest(pretend(endless)) as guest:
        with pytest.raises(LimitExceeded):
            await guest.exec(["true"], max_output=1000)
        with pytest.raises(LimitExceeded):
            await guest.files.read("/x", limit=1000)


async def test_an_answer_that_breaks_off_is_unavailable(pretend: Pretend) -> None:
    async with Guest(pretend(http(b'{"exitCode"', length=5000))) as guest:
        with pytest.raises(Unavailable):
            await guest.exec(["true"])
    async with Guest(pretend(b"")) as guest:
        with pytest.raises(Unavailable):
            await guest.exec(["true"])


async def test_a_stream_without_its_last_frame_is_unavailable(pretend: Pretend) -> None:
    body = frames({"offset": 0, "data": "eA=="})
    async with Guest(pretend(http(body))) as guest:
        tail = guest.runs.tail("x")
        assert (await anext(tail)).data == b"x"
        with pytest.raises(Unavailable, match="broke off"):
            await anext(tail)
    async with Guest(pretend(http(body[:-2]))) as guest:
        with pytest.raises(Unavailable):
            await anext(guest.runs.tail("x"))


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">BI", 0, 0xFFFFFFFF) + b"x" * 100,
        _frame(b"not json"),
        _frame(b"[]"),
        frames({"offset": 5, "data": "eA=="}),
        frames({"offset": -1, "data": "eA=="}),
        frames({"offset": 0, "data": "eA=="}, {"offset": 0, "data": "eA=="}),
        frames({"offset": 0, "data": "?"}),
        frames({"gap": {"from": 7, "to": 9}}),
        frames({"exit": {"exitCode": 0}}),
        frames({"exit": []}),
    ],
)
async def test_an_impossible_frame_is_broken(pretend: Pretend, body: bytes) -> None:
    async with Guest(pretend(http(body + _frame(b"{}", 2)))) as guest:
        with pytest.raises(Broken):
            async for _ in guest.runs.tail("x"):
                pass


async def test_a_guest_that_says_nothing_times_out(tmp_path: Path) -> None:
    path = str(tmp_path / "silent")

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_unix_server(stall, path):
        async with Guest(GuestAddress(socket=path)) as guest:
            with pytest.raises(TimedOut):
                await guest.health(timeout=0.2)


async def test_a_message_from_the_guest_cannot_grow_without_bound(pretend: Pretend) -> None:
    body = json.dumps({"code": "internal", "message": "x" * 1_000_000}).encode()
    async with Guest(pretend(http(body, 500))) as guest:
        with pytest.raises(Broken) as raised:
            await guest.exec(["true"])
    assert len(raised.value.message) < 3000


@pytest.mark.parametrize("code", [0, -1, 128, 126.0, True, "127", [127], None, 10**30])
async def test_an_exit_code_that_no_shell_gives_is_not_believed(
    pretend: Pretend, code: object
) -> None:
    told = {"code": "invalid_argument", "message": "no", "exitCode": code}
    async with Guest(pretend(http(json.dumps(told).encode(), 400))) as guest:
        with pytest.raises(InvalidRequest) as raised:
            await guest.exec(["true"])
    assert raised.value.exit_code is None


async def test_the_address_never_shows_its_token() -> None:
    assert "hush" not in repr(GuestAddress(url="http://x", token="hush"))


async def test_a_client_must_be_entered_first() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Guest(GuestAddress(socket="/x")).exec(["true"])


async def test_a_second_answer_to_one_question_is_nobodys(pretend: Pretend) -> None:
    first = http(json.dumps({"exitCode": 0, "reason": "exited"}).encode())
    second = http(json.dumps({"exitCode": 7, "reason": "exited"}).encode())
    async with Guest(pretend(first + second)) as guest:
        for _ in range(3):
            assert (await guest.exec(["true"])).exit_code == 0


async def test_a_word_in_between_is_not_the_answer(pretend: Pretend) -> None:
    """Whether it comes by itself or with the answer."""
    answer = http(json.dumps({"exitCode": 0, "reason": "exited"}).encode())
    async with Guest(pretend(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3 + answer)) as guest:
        assert (await asyncio.wait_for(guest.exec(["true"]), 10)).exit_code == 0


@pytest.mark.parametrize("value", [b"1" + b"0" * 400, b"Infinity", b"NaN", b'"1"'])
async def test_a_time_that_cannot_be_is_broken(pretend: Pretend, value: bytes) -> None:
    run = b'{"run":{"key":"x","cmd":["true"],"startedAt":' + value + b"}}"
    async with Guest(pretend(http(run))) as guest:
        with pytest.raises(Broken):
            await guest.runs.get("x")


async def test_an_error_of_the_guest_can_be_sent_on(pretend: Pretend) -> None:
    body = json.dumps({"code": "not_found", "message": "no \udcff here"}).encode()
    async with Guest(pretend(http(body, 404))) as guest:
        with pytest.raises(PaddockError, match=r"no \\udcff here") as raised:
            await guest.runs.get("x")
    assert raised.value.message.encode()


async def test_who_waits_is_told_when_the_session_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "s")

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(never, path):
        async with Guest(GuestAddress(socket=path)) as guest:
            waiting = asyncio.create_task(guest.exec(["true"]))
            await asyncio.sleep(0.1)
        with pytest.raises(Unavailable, match="has ended"):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(Unavailable, match="has ended"):
            await guest.exec(["true"])


async def test_a_head_without_end_is_refused(pretend: Pretend) -> None:
    endless = b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(20_000))
    async with Guest(pretend(endless)) as guest:
        with pytest.raises(PaddockError):
            await guest.exec(["true"])


@pytest.mark.parametrize(
    "told",
    [
        {"stream": "stdout", "offset": 1, "data": "eA=="},
        {"stream": "secret", "offset": 0, "data": "eA=="},
        {"stream": "stdout", "offset": 0, "data": ""},
        {"stream": "stdout", "gap": {"from": 0, "to": -5}},
        {"stream": "stdout", "exit": {}},
        {"stream": "stdout"},
    ],
)
async def test_output_that_cannot_follow_is_broken(pretend: Pretend, told: object) -> None:
    async with Guest(pretend(http(json.dumps({"told": [told]}).encode()))) as guest:
        with pytest.raises(Broken):
            await guest.runs.read("x", {"stdout": 0})
