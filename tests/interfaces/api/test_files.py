"""Files over HTTP."""

import asyncio
import json
import os
from urllib.parse import quote, quote_from_bytes

import pytest


@pytest.fixture
def box(box, home):
    return {**box, "home": home}


def path(box, rest):
    """`~` stands for the sandbox's own directory."""
    return f"/v1/sandboxes/{box['id']}/{rest}".replace("~", box["home"])


async def put(client, box, name, data, **more):
    where = path(box, f"files?path=~/{quote(name)}")
    return await client.call("PUT", where, data=data, **more)


@pytest.mark.proves("S11", "S12")
async def test_a_file_is_written_read_moved_listed_and_removed(plane, box, home):
    admin, content = plane.admin, bytes(range(256)) * 10
    made = await put(admin, box, "a/b/note.bin", content)
    assert made.status == 200
    assert (made["name"], made["kind"], made["size"]) == ("note.bin", "file", 2560)
    read = await admin.get(path(box, "files?path=~/a/b/note.bin"))
    assert (read.status, read.body) == (200, content)
    assert read.headers["content-length"] == "2560"
    assert read.headers["x-content-type-options"] == "nosniff"
    moved = await admin.post(
        path(box, "files/move"),
        {"source": f"{home}/a/b/note.bin", "destination": f"{home}/c/n.bin"},
    )
    assert (moved.status, moved["name"]) == (200, "n.bin")
    directory = await admin.post(path(box, "files/directory"), {"path": f"{home}/c/d/e"})
    assert (directory.status, directory["kind"]) == (201, "directory")
    again = await admin.post(path(box, "files/directory"), {"path": f"{home}/c/d/e"})
    assert again.status == 409
    shallow = await admin.get(path(box, "files/list?path=~/c"))
    assert [item["name"] for item in shallow["items"]] == ["d", "n.bin"]
    deep = await admin.get(path(box, "files/list?path=~/c&depth=3"))
    assert [item["name"] for item in deep["items"]] == ["d", "e", "n.bin"]
    stat = await admin.get(path(box, "files/stat?path=~/c/n.bin"))
    assert (stat["size"], stat["mode"]) == (2560, "644")
    for _ in range(2):
        assert (await admin.delete(path(box, "files?path=~/c"))).status == 204
    gone = await admin.get(path(box, "files?path=~/c/n.bin"))
    assert (gone.status, gone.error["code"]) == (404, "not_found")
    assert gone.error["remediation"]
    audit = await admin.get("/v1/audit?limit=500")
    acts = [item["action"] for item in audit["items"] if item["subject"] == box["id"]]
    assert {"file.write", "file.move", "file.directory", "file.remove"} <= set(acts)


async def test_a_part_of_a_file_is_read_by_range(plane, box):
    await put(plane.admin, box, "digits", b"0123456789")
    cases = {
        "bytes=2-4": (206, b"234", "bytes 2-4/10"),
        "bytes=-3": (206, b"789", "bytes 7-9/10"),
        "bytes=8-": (206, b"89", "bytes 8-9/10"),
        "bytes=0-9": (200, b"0123456789", None),
        "lines=1-2": (200, b"0123456789", None),
    }
    for span, (status, body, shown) in cases.items():
        got = await plane.admin.get(path(box, "files?path=~/digits"), headers={"range": span})
        assert (got.status, got.body, got.headers.get("content-range")) == (status, body, shown)
    past = await plane.admin.get(path(box, "files?path=~/digits"), headers={"range": "bytes=10-"})
    assert (past.status, past.headers["content-range"]) == (416, "bytes */10")
    assert past.error["remediation"]


async def test_a_name_that_is_no_text_survives_both_ways(plane, box):
    odd = b"caf\xe9 \xff%.txt"
    query = quote_from_bytes(odd)
    answer = await plane.admin.call("PUT", path(box, f"files?path=~/odd/{query}"), data=b"x")
    assert answer.status == 200, answer.body
    assert os.fsencode(answer["name"]) == odd
    listed = await plane.admin.get(path(box, "files/list?path=~/odd"))
    name = listed["items"][0]["path"]
    assert os.fsencode(name).endswith(odd)
    content = json.dumps({"source": name, "destination": name + "\udcfe"}).encode()
    headers = {"content-type": "application/json"}
    moved = await plane.admin.call("POST", path(box, "files/move"), data=content, headers=headers)
    assert moved.status == 200, moved.body
    assert os.fsencode(moved["name"]) == odd + b"\xfe"
    missing = await plane.admin.get(path(box, f"files/stat?path=~/odd/{query}"))
    assert missing.status == 404
    assert "\\udcff" in missing.error["message"]


@pytest.mark.parametrize(
    ("method", "rest", "status"),
    [
        ("GET", "files", 400),
        ("GET", "files?path=", 400),
        ("GET", "files?path=a%00b", 400),
        ("GET", "files?path=" + "x" * 5000, 400),
        ("GET", "files?path=.", 400),
        ("PUT", "files?path=.", 400),
        ("PUT", "files?path=~/dir/", 400),
        ("GET", "files/list?path=/no/such", 404),
        ("GET", "files/list?path=.&depth=0", 400),
        ("GET", "files/list?path=.&depth=x", 400),
        ("GET", "files/stat?path=/no/such", 404),
        ("GET", "files/watch?path=/no/such", 404),
        ("GET", "archive?path=/no/such", 404),
        ("GET", "archive?path=.&format=rar", 400),
        ("GET", "files?path=x&user=nobody-here", 400),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_way_out(plane, box, method, rest, status):
    more = {"data": b"x"} if method == "PUT" else {}
    answer = await plane.admin.call(method, path(box, rest), **more)
    assert answer.status == status, answer.body
    assert answer.error["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("size", [1000, 5 << 20])
@pytest.mark.parametrize("before", [None, b"as it was"])
async def test_a_half_sent_upload_leaves_what_was_there(plane, box, size, before):
    if before is not None:
        await put(plane.admin, box, "half", before)
    host, port = plane.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"PUT {path(box, 'files?path=~/half')} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {plane.admin.token}\r\nContent-Length: {size * 2}\r\n\r\n".encode()
    )
    writer.write(b"n" * size)
    await writer.drain()
    async with asyncio.timeout(10):
        while not plane.services.inside._activity.doing(box["id"]):
            await asyncio.sleep(0.01)
    writer.close()
    await writer.wait_closed()
    del reader
    async with asyncio.timeout(10):
        while plane.services.inside._activity.doing(box["id"]):
            await asyncio.sleep(0.05)
    left = await plane.admin.get(path(box, "files?path=~/half"))
    assert left.status == (404 if before is None else 200)
    assert before is None or left.body == before
    await plane.admin.delete(path(box, "files?path=~/half"))


async def test_a_watch_tells_every_change_from_its_first_message_on(plane, box, home):
    await plane.admin.post(path(box, "files/directory"), {"path": f"{home}/seen/in"})
    seen = []
    watch = plane.admin.lines(
        "GET", path(box, "files/watch?path=~/seen&recursive=true&format=ndjson")
    )
    async with asyncio.timeout(20):
        async for line in watch:
            seen.append(line)
            if line["type"] == "watching":
                await put(plane.admin, box, "seen/in/new", b"x")
            if line.get("name") == "in/new" and line["change"] == "write":
                break
    changes = [(line["name"], line["change"]) for line in seen if line["type"] == "change"]
    assert ("in/new", "create") in changes
    assert plane.services.inside._activity.doing(box["id"]) == {"watch": 1}
    await watch.aclose()


async def test_what_changes_a_stopped_sandbox_says_so(plane, box):
    await plane.admin.post(path(box, "stop"))
    for method, rest in (("PUT", "files?path=~/x"), ("GET", "archive?path=.")):
        answer = await plane.admin.call(method, path(box, rest))
        assert (answer.status, answer.error["code"]) == (409, "conflict")
        assert "start it first" in answer.error["remediation"]
