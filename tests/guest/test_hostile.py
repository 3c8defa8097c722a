"""Input that no honest client sends."""

import asyncio
import json
import os
import re
import shutil
import struct
import warnings
import zipfile
from pathlib import Path

import pytest

from paddock.guest import pack
from paddock.guest_client import Guest
from tests.guest.conftest import StartPacked
from tests.guest.raw import Raw, frame

pytestmark = pytest.mark.timeout(30)

STREAM = {"content-type": "application/connect+json"}


async def _send(raw: Raw, data: bytes) -> bytes:
    """Bytes as they are, and all that comes back until the guest closes or is silent."""
    reader, writer = await raw.connection()
    answer = b""
    try:
        writer.write(data)
        async with asyncio.timeout(2):
            while piece := await reader.read(65536):
                answer += piece
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return answer


async def test_what_is_not_json_is_an_invalid_argument(raw: Raw) -> None:
    for body in (b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"nul", b"1"):
        answer = await raw.rpc("paddock.Guest/Exec", body)
        assert (answer.status, answer.json()["code"]) == (400, "invalid_argument"), body[:20]
        streamed = await raw("POST", "/process.Process/Start", headers=STREAM, body=frame(body))
        assert streamed.status == 200
        assert streamed.body[0] == 2
        assert json.loads(streamed.body[5:])["error"]["code"] == "invalid_argument"


async def test_fields_of_the_wrong_kind_are_an_invalid_argument(raw: Raw) -> None:
    good = {"cmd": ["true"]}
    for wrong in (
        {"cmd": "true"},
        {"cmd": [1]},
        {"cmd": ["a\0b"]},
        {"cmd": ["\ud800"]},
        {"env": {"A": 1}},
        {"env": {"A=B": "1"}},
        {"env": {"": "1"}},
        {"env": {"A": "\0"}},
        {"env": []},
        {"cwd": 5},
        {"cwd": "/a\0b"},
        {"user": {}},
        {"stdin": "not base64!"},
        {"timeoutMs": -1},
        {"timeoutMs": "soon"},
        {"timeoutMs": 1e300},
        {"timeoutMs": True},
        {"maxOutputBytes": 2**60},
    ):
        answer = await raw.rpc("paddock.Guest/Exec", {**good, **wrong})
        assert (answer.status, answer.json()["code"]) == (400, "invalid_argument"), wrong


async def test_a_frame_that_is_too_large_is_refused_before_it_is_read(raw: Raw) -> None:
    body = struct.pack(">BI", 0, 0xFFFFFFFF) + b"x" * 1000
    answer = await raw("POST", "/process.Process/Start", headers=STREAM, body=body)
    error = json.loads(answer.body[5:])["error"]
    assert error["code"] == "resource_exhausted"
    assert "frame of 4294967295 bytes" in error["message"]


async def test_broken_frames_are_refused(raw: Raw) -> None:
    for body in (b"", b"\0\0", frame(b"{}")[:-1], frame(b"{}", 1), frame(b"{}", 2)):
        answer = await raw("POST", "/process.Process/Start", headers=STREAM, body=body)
        assert json.loads(answer.body[5:])["error"]["code"] == "invalid_argument", body


async def test_unknown_paths_and_verbs_have_clear_answers(raw: Raw) -> None:
    for verb, path, status in (
        ("GET", "/", 404),
        ("GET", "/nothing", 404),
        ("POST", "/paddock.Guest/Nothing", 404),
        ("POST", "/process.Process/Nothing", 404),
        ("GET", "/paddock.Guest/Exec", 501),
        ("DELETE", "/files", 501),
        ("POST", "/filesx", 404),
        ("GET", "/freeze", 404),
    ):
        answer = await raw(verb, path)
        assert answer.status == status, path
        assert set(answer.json()) == {"code", "message"}


async def test_headers_without_end_are_cut_off(raw: Raw) -> None:
    answer = await _send(raw, b"GET /health HTTP/1.1\r\n" + b"x: " + b"y" * (200 << 10))
    assert b" 431 " in answer.split(b"\r\n")[0]
    many = b"".join(b"h%d: v\r\n" % n for n in range(20_000))
    answer = await _send(raw, b"GET /health HTTP/1.1\r\nhost: g\r\n" + many + b"\r\n")
    assert b" 431 " in answer.split(b"\r\n")[0]


async def test_what_is_not_http_is_refused(raw: Raw) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nbad header: 1\r\n\r\n",
    ):
        answer = await _send(raw, data + b"\r\n\r\n")
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), data


async def test_requests_on_one_connection_are_answered_in_order(raw: Raw) -> None:
    reader, writer = await raw.connection()
    body = b'{"cmd":["sleep","0.2"]}'
    writer.write(
        b"POST /paddock.Guest/Exec HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n%s"
        % (len(body), body)
        + b"GET /health HTTP/1.1\r\nhost: g\r\n\r\n" * 3
        + b"GET /nothing HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n"
    )
    async with asyncio.timeout(5):
        answer = await reader.read(-1)
    writer.close()
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", answer)
    assert statuses == [b"200", b"204", b"204", b"204", b"404"]


async def test_a_connection_is_used_again_after_an_error_whose_body_was_not_read(raw: Raw) -> None:
    reader, writer = await raw.connection()
    body = b"z" * 300_000
    for _ in range(3):
        head = b"POST /files?path=/tmp HTTP/1.1\r\nhost: g\r\ncontent-type: text/plain\r\n"
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        async with asyncio.timeout(5):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
    writer.write(b"GET /health HTTP/1.1\r\nhost: g\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
    writer.close()


async def test_a_client_that_waits_for_100_continue_gets_it(raw: Raw) -> None:
    reader, writer = await raw.connection()
    writer.write(
        b"POST /files?path=hundred HTTP/1.1\r\nhost: g\r\n"
        b"content-type: application/octet-stream\r\ncontent-length: 4\r\n"
        b"expect: 100-continue\r\n\r\n"
    )
    async with asyncio.timeout(5):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"data")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_clients_that_vanish_at_any_moment_do_no_harm(raw: Raw, guest: Guest) -> None:
    body = frame(json.dumps({"process": {"cmd": "yes"}}).encode())
    whole = (
        b"POST /process.Process/Start HTTP/1.1\r\nhost: g\r\n"
        b"content-type: application/connect+json\r\ncontent-length: %d\r\n\r\n" % len(body)
    ) + body
    for cut in range(1, len(whole) + 1, 9):
        _, writer = await raw.connection()
        writer.write(whole[:cut])
        await writer.drain()
        writer.transport.abort()
    _, writer = await raw.connection()
    writer.write(whole)
    await asyncio.sleep(0.2)
    writer.transport.abort()
    await asyncio.sleep(0.2)
    assert (await guest.exec(["echo", "fine"])).text == "fine\n"
    await guest.exec(["pkill", "-9", "yes"])


async def test_an_unread_body_without_end_breaks_the_connection_in_time(raw: Raw) -> None:
    _, writer = await raw.connection()
    writer.write(b"POST /files?path=/tmp HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n" % (1 << 20) + b"z" * (1 << 20) + b"\r\n"
    sent = 0
    try:
        async with asyncio.timeout(10):
            while sent < 200:
                writer.write(chunk)
                await writer.drain()
                sent += 1
    except ConnectionError:
        pass
    assert sent < 40
    writer.transport.abort()


async def test_a_guest_that_cannot_work_says_so_instead_of_hanging(
    start_packed: StartPacked,
) -> None:
    form = await start_packed()
    await form.kill()
    os.unlink(form.base / "run/guest.zip")
    shutil.copy(_with_fault(form.base), form.base / "run/guest.zip")
    await form.start()
    async with Raw(form.address) as raw:
        assert (await raw("GET", "/health")).status == 204
        for _ in range(2):
            answer = await raw("GET", "/envs")
            assert (answer.status, answer.json()["code"]) == (500, "internal")
            assert "deliberate" in answer.json()["message"]


def _with_fault(directory: Path) -> Path:
    """A guest whose services fail to load."""
    target = directory / "faulty.zip"
    pack.build(str(target), compiled=False)
    with zipfile.ZipFile(target, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the later one of two equal names counts
        archive.writestr("paddock/guest/state.py", "raise RuntimeError('deliberate')")
    return target


async def test_nothing_was_said_on_standard_error(start_packed: StartPacked) -> None:
    """After all kinds of misuse the guest has nothing to complain about itself."""
    form = await start_packed()
    async with Raw(form.address) as raw:
        await test_what_is_not_json_is_an_invalid_argument(raw)
        await test_what_is_not_http_is_refused(raw)
        async with Guest(form.address) as guest:
            await test_clients_that_vanish_at_any_moment_do_no_harm(raw, guest)
    assert form.stderr == ""
