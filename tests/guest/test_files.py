"""/files: download and upload, byte for byte."""

import asyncio
import gzip
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from paddock.domain.errors import InvalidRequest, LimitExceeded, NotFound, Unauthenticated
from paddock.guest_client import Guest
from tests.guest.conftest import StartGuest, StartPacked
from tests.guest.forms import GuestForm
from tests.guest.raw import Answer, Raw

pytestmark = pytest.mark.timeout(60)

OCTETS = {"content-type": "application/octet-stream"}


def multipart(*files: tuple[str, bytes], name: str = "file") -> tuple[dict[str, str], bytes]:
    boundary = "----a-boundary"
    body = b"".join(
        b'--%s\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\n'
        b"Content-Type: text/plain\r\n\r\n%s\r\n"
        % (boundary.encode(), name.encode(), filename.encode(), data)
        for filename, data in files
    )
    header = {"content-type": f'multipart/form-data; boundary="{boundary}"'}
    return header, body + f"--{boundary}--\r\n".encode()


async def _post(raw: Raw, path: str, data: bytes, **headers: str) -> Answer:
    fields = OCTETS | {name.replace("_", "-"): value for name, value in headers.items()}
    return await raw("POST", f"/files?path={quote(path)}", headers=fields, body=data)


async def test_a_file_comes_back_as_it_was_sent(guest: Guest) -> None:
    for size in (0, 1, 65536, (1 << 20) + 1, 5_000_003):
        data = os.urandom(size)
        await guest.files.write("back", data)
        assert await guest.files.read("back") == data


async def test_a_download_says_its_length_and_is_not_chunked(raw: Raw) -> None:
    await _post(raw, "empty", b"")
    answer = await raw("GET", "/files?path=empty")
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "0", b"")
    await _post(raw, "five", b"12345")
    answer = await raw("GET", "/files?path=five")
    assert answer.headers["content-length"] == "5"
    head = await raw("HEAD", "/files?path=five")
    assert (head.status, head.headers["content-length"], head.body) == (200, "5", b"")


async def test_a_part_is_given_of_the_version_that_was_meant(raw: Raw, guest: Guest) -> None:
    await _post(raw, "version", b"0123456789")
    whole = await raw("GET", "/files?path=version")
    tag = whole.headers["etag"]
    headers = {"range": "bytes=4-", "if-range": tag}
    part = await raw("GET", "/files?path=version", headers=headers)
    assert (part.status, part.body, part.headers["etag"]) == (206, b"456789", tag)
    script = "touch -r version kept; printf 9876543210 > version; touch -r kept version"
    await guest.exec(["sh", "-c", script])  # as long as before, and of the same time
    other = await raw("GET", "/files?path=version", headers=headers)
    assert (other.status, other.body) == (200, b"9876543210")
    assert other.headers["etag"] != tag


async def test_a_range_gives_a_part(raw: Raw) -> None:
    await _post(raw, "ranged", b"0123456789")
    for header, status, body, said in (
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=5-100", 206, b"56789", "bytes 5-9/10"),
        ("bytes=0-9", 200, b"0123456789", None),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=1-2,4-5", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=x-y", 200, b"0123456789", None),
    ):
        answer = await raw("GET", "/files?path=ranged", headers={"range": header})
        found = (answer.status, answer.body, answer.headers.get("content-range"))
        assert found == (status, body, said), header


async def test_what_cannot_be_downloaded_says_why(raw: Raw) -> None:
    await raw.rpc("paddock.Guest/Exec", {"cmd": ["mkfifo", "pipe"]})
    for path, status, text in (
        ("/no/such", 404, "no such file"),
        ("/tmp", 400, "is a directory"),
        ("/etc/passwd/x", 400, "not a directory"),
        ("pipe", 400, "not a regular file"),
        ("/dev/zero", 400, "not a regular file"),
        ("~root/x", 400, "only the user's own home"),
    ):
        answer = await raw("GET", f"/files?path={quote(path)}")
        body = answer.json()
        assert (answer.status, body["code"]) == (status, status), path
        assert text in body["message"]


async def test_files_of_proc_are_read_though_they_have_no_size(guest: Guest) -> None:
    assert b"MemTotal" in await guest.files.read("/proc/meminfo")


async def test_paths_start_at_the_users_home(guest: Guest) -> None:
    await guest.files.write("a/rel", b"1")
    await guest.files.write("~/tilde", b"2")
    await guest.files.write("by-root", b"3", user="root")
    assert await guest.files.read("/home/user/a/rel") == b"1"
    assert await guest.files.read("/home/user/tilde") == b"2"
    assert await guest.files.read("/root/by-root", user="root") == b"3"


async def test_an_upload_makes_its_directories_and_gives_all_to_the_user(guest: Guest) -> None:
    await guest.files.write("/home/user/x1/y/z", b"")
    for path, mode in (("x1", 0o755), ("x1/y", 0o755), ("x1/y/z", 0o644)):
        entry = await guest.files.stat(path)
        assert (entry.owner, entry.group, entry.mode) == ("user", "user", mode), path
    await guest.files.write("/opt/r1/s", b"", user="root")
    assert (await guest.files.stat("/opt/r1")).owner == "root"


@pytest.mark.parametrize("size", [5, 3 << 20])
async def test_an_existing_file_keeps_its_mode_and_its_owner(guest: Guest, size: int) -> None:
    script = "echo a-long-content > /opt/theirs; chmod 767 /opt/theirs"
    await guest.exec(["sh", "-c", script], user="root")
    await guest.files.write("/opt/theirs", b"x" * size)
    entry = await guest.files.stat("/opt/theirs")
    assert (entry.owner, entry.mode, entry.size) == ("root", 0o767, size)


async def test_an_upload_follows_a_link_to_a_file(guest: Guest) -> None:
    await guest.files.write("target", b"old")
    await guest.exec(["ln", "-sf", "target", "link"])
    await guest.files.write("link", b"new")
    assert await guest.files.read("target") == b"new"
    assert (await guest.files.stat("link")).symlink_target == "/home/user/target"


async def test_multipart_takes_the_full_path_from_the_file_name(raw: Raw) -> None:
    headers, body = multipart(("/tmp/m1/one", b"1"), ("m2/two", b"2" * 100_000), ("m3", b""))
    answer = await raw("POST", "/files", headers=headers, body=body)
    assert answer.status == 200
    assert answer.json() == [
        {"path": "/tmp/m1/one", "name": "one", "type": "file"},
        {"path": "/home/user/m2/two", "name": "two", "type": "file"},
        {"path": "/home/user/m3", "name": "m3", "type": "file"},
    ]
    assert (await raw("GET", "/files?path=m2/two")).body == b"2" * 100_000
    assert (await raw("GET", "/files?path=m3")).body == b""


async def test_multipart_with_a_path_takes_the_path(raw: Raw) -> None:
    headers, body = multipart(("ignored", b"data"))
    answer = await raw("POST", "/files?path=by-query", headers=headers, body=body)
    assert [item["path"] for item in answer.json()] == ["/home/user/by-query"]


async def test_multipart_data_may_look_like_a_boundary(raw: Raw) -> None:
    data = b"\r\n------a-boundar\r\n--x\r\n\r\n------a-boundary" + b"\r" * 70_000 + b"\r\n"
    headers, body = multipart(("tricky", data.replace(b"----a-boundary", b"----a-boundarz")))

    async def one_byte_and_more() -> AsyncIterator[bytes]:
        for at in range(2000):
            yield body[at : at + 1]
        yield body[2000:]

    answer = await raw("POST", "/files", headers=headers, body=one_byte_and_more())
    assert answer.status == 200
    found = (await raw("GET", "/files?path=tricky")).body
    assert found == data.replace(b"----a-boundary", b"----a-boundarz")


async def test_an_upload_that_cannot_be_meant_is_refused(raw: Raw) -> None:
    headers, body = multipart(("a", b"1"), ("b", b"2"))
    both = await raw("POST", "/files?path=one", headers=headers, body=body)
    assert both.status == 400
    nameless = await raw("POST", "/files", headers=OCTETS, body=b"x")
    assert (nameless.status, nameless.json()["code"]) == (400, 400)
    text = await raw("POST", "/files?path=x", headers={"content-type": "text/plain"}, body=b"x")
    assert text.status == 400
    assert (await _post(raw, "/tmp", b"x")).status == 400
    assert (await _post(raw, "/tmp/", b"x")).status == 400
    assert (await _post(raw, "/etc/passwd/x", b"x")).status == 400
    cut = await raw("POST", "/files", headers=headers, body=body[:-30])
    assert cut.status == 400
    no_boundary = await raw(
        "POST", "/files", headers={"content-type": "multipart/form-data"}, body=b""
    )
    assert no_boundary.status == 400


async def test_an_unknown_user_is_told_in_envds_words(raw: Raw) -> None:
    answer = await raw("GET", "/files?path=x&username=who")
    assert answer.status == 401
    assert answer.json()["message"] == "error looking up user 'who': user: unknown user who"


async def test_a_gzip_body_is_unpacked(raw: Raw) -> None:
    data = b"squeeze me " * 200_000
    answer = await _post(raw, "unzipped", gzip.compress(data), content_encoding="gzip")
    assert answer.status == 200
    assert (await raw("GET", "/files?path=unzipped")).body == data
    two = gzip.compress(b"one ") + gzip.compress(b"two")
    await _post(raw, "members", two, content_encoding="gzip")
    assert (await raw("GET", "/files?path=members")).body == b"one two"
    for bad in (b"no gzip", gzip.compress(data)[:-9]):
        answer = await _post(raw, "broken", bad, content_encoding="gzip")
        assert answer.status == 400
    assert (await raw("GET", "/files?path=broken")).status == 404
    assert (await _post(raw, "brotli", b"x", content_encoding="br")).status == 400


@pytest.mark.parametrize("size", [64 << 20, pytest.param(192 << 20, marks=pytest.mark.soak)])
async def test_a_large_file_is_never_held_in_memory(start_guest: StartGuest, size: int) -> None:
    form = await start_guest()
    digest = hashlib.sha256()

    async def pieces() -> AsyncIterator[bytes]:
        piece = os.urandom(1 << 20)
        for _ in range(size >> 20):
            digest.update(piece)
            yield piece

    async with Raw(form.address) as raw, Guest(form.address) as guest:
        answer = await raw("POST", "/files?path=large", headers=OCTETS, body=pieces())
        assert answer.status == 200
        found = hashlib.sha256()
        async for piece in guest.files.read_stream("large"):
            found.update(piece)
        assert found.digest() == digest.digest()
        with pytest.raises(LimitExceeded):
            await guest.files.read("large", limit=1000)
    assert _peak_rss(form) < 40 << 20


def _peak_rss(form: GuestForm) -> int:
    lines = Path(f"/proc/{form.host_pid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


async def _break_off(raw: Raw, path: str, size: int) -> None:
    """Promise a long upload, send part of it and hang up."""
    _, writer = await raw.connection()
    writer.write(
        f"POST /files?path={quote(path)} HTTP/1.1\r\nhost: g\r\n"
        f"content-type: application/octet-stream\r\ncontent-length: {size * 2}\r\n\r\n".encode()
    )
    writer.write(b"x" * size)
    await writer.drain()
    await asyncio.sleep(0.2)
    writer.close()
    await asyncio.sleep(0.2)


@pytest.mark.parametrize("size", [1000, 3 << 20])
async def test_an_aborted_upload_leaves_no_new_file(guest: Guest, raw: Raw, size: int) -> None:
    await _break_off(raw, f"/tmp/aborted-{size}", size)
    with pytest.raises(NotFound):
        await guest.files.stat(f"/tmp/aborted-{size}")


@pytest.mark.parametrize("size", [1000, 3 << 20])
async def test_an_aborted_upload_leaves_the_old_file_alone(
    guest: Guest, raw: Raw, size: int
) -> None:
    path = f"/tmp/kept-{size}"
    await guest.files.write(path, b"the old content")
    await _break_off(raw, path, size)
    assert await guest.files.read(path) == b"the old content"


async def test_a_large_upload_replaces_an_existing_file(guest: Guest) -> None:
    await guest.files.write("replaced", b"y" * 5_000_000)
    await guest.files.write("replaced", b"z" * 3_000_000)
    assert await guest.files.read("replaced") == b"z" * 3_000_000


async def test_names_that_are_not_utf_8_work_everywhere(guest: Guest) -> None:
    name = b"caf\xe9 \xff\x80 \xc3\xbc+%25 \n".decode("utf-8", "surrogateescape")
    await guest.files.write(f"odd/{name}", b"odd")
    assert [entry.name for entry in await guest.files.list("odd")] == [name]
    assert await guest.files.read(f"odd/{name}") == b"odd"
    assert (await guest.files.stat(f"odd/{name}")).size == 3
    await guest.files.move(f"odd/{name}", f"odd/2{name}")
    listed = await guest.exec(["ls", "-1", "--zero", "odd"])
    assert listed.stdout == b"2caf\xe9 \xff\x80 \xc3\xbc+%25 \n\0"
    await guest.files.remove(f"odd/2{name}")
    assert await guest.files.list("odd") == []


async def test_metadata_is_kept_replaced_and_cleared(start_guest: StartGuest) -> None:
    form = await start_guest()
    async with Raw(form.address) as raw, Guest(form.address) as guest:
        path = "/dev/shm/meta" if await _xattrs_on(guest, "/dev/shm") else "/home/user/meta"
        first = await _post(raw, path, b"1", X_Metadata_Owner="me", X_Metadata_Kind="ünï")
        assert first.json()[0]["metadata"] == {"owner": "me", "kind": "ünï"}
        assert (await guest.files.stat(path)).metadata == {"owner": "me", "kind": "ünï"}
        await _post(raw, path, b"1", X_Metadata_Other="x")
        assert (await guest.files.stat(path)).metadata == {"other": "x"}
        await _post(raw, path, b"1")
        assert (await guest.files.stat(path)).metadata == {}


async def _xattrs_on(guest: Guest, directory: str) -> bool:
    script = f"import os; p='{directory}/probe'; open(p,'w').close(); os.setxattr(p,'user.x',b'1')"
    return (await guest.exec(["python3", "-c", script], user="root")).exit_code == 0


async def test_the_client_says_what_kind_of_failure_it_was(guest: Guest) -> None:
    with pytest.raises(NotFound):
        await guest.files.read("/no/such")
    with pytest.raises(InvalidRequest):
        await guest.files.read("/tmp")
    with pytest.raises(Unauthenticated):
        await guest.files.read("/tmp", user="who")


async def test_a_full_disk_is_said_to_be_full(start_packed: StartPacked) -> None:
    form = await start_packed()
    async with Guest(form.address) as guest:
        with pytest.raises(LimitExceeded, match="no space left"):
            await guest.files.write("/run/small/file", b"x" * (3 << 20))
        with pytest.raises(NotFound):
            await guest.files.stat("/run/small/file")
        await guest.health()


@pytest.mark.parametrize("old", [b"old", b"o" * (600 << 10)], ids=["few bytes", "many"])
async def test_an_upload_that_finds_no_room_leaves_the_old_file_as_it_was(
    start_packed: StartPacked, old: bytes
) -> None:
    form = await start_packed()
    async with Guest(form.address) as guest:
        await guest.files.write("/run/small/kept", old)
        for size in (900 << 10, 3 << 20):
            await guest.exec(
                ["sh", "-c", "cat /dev/zero > /run/small/rest; truncate -s -64K /run/small/rest"],
                user="root",
            )
            with pytest.raises(LimitExceeded, match="no space left"):
                await guest.files.write("/run/small/kept", b"n" * size)
            assert await guest.files.read("/run/small/kept") == old
