"""Archives over HTTP."""

import asyncio
import gzip
import io
import os
import tarfile
import zipfile
from contextlib import contextmanager

import aiohttp
import pytest

from tests.interfaces.api.memory import MIB


@pytest.fixture
def box(box, home):
    return {**box, "home": home}


def path(box, rest):
    """`~` stands for the sandbox's own directory."""
    return f"/v1/sandboxes/{box['id']}/{rest}".replace("~", box["home"])


@contextmanager
def archive():
    """A tar that is being made; what it is at the end is in `.data`."""

    class Made:
        data = b""

        def add(self, name, content=b"", **more):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in more.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))

    made, buffer = Made(), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        yield made
    made.data = buffer.getvalue()


async def names(plane, box, where):
    """None when there is no such directory."""
    listed = await plane.admin.get(path(box, f"files/list?path=~/{where}&depth=9"))
    if listed.status == 404:
        return None
    return [item["path"].rpartition(f"/{where}/")[2] for item in listed["items"]]


async def put(plane, box, where, data):
    return await plane.admin.call("PUT", path(box, f"archive?path=~/{where}"), data=data)


async def until_begun(plane, box):
    """The server is at work in the sandbox."""
    async with asyncio.timeout(20):
        while not plane.services.inside._activity.doing(box["id"]):
            await asyncio.sleep(0.01)


async def until_ended(plane, box):
    async with asyncio.timeout(20):
        while plane.services.inside._activity.doing(box["id"]):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["tar", "tar.gz"])
async def test_a_tar_goes_in_and_comes_out_again_as_it_was(plane, box, compress):
    with archive() as made:
        made.add("src", type=tarfile.DIRTYPE, mode=0o755)
        made.add("src/run.sh", b"#!/bin/sh\necho ran\n", mode=0o755)
        made.add("src/link", type=tarfile.SYMTYPE, linkname="run.sh")
        made.add("src/absolute", type=tarfile.SYMTYPE, linkname="/usr/bin/env")
        made.add("caf\udce9", b"odd")
    answer = await put(plane, box, "in", compress(made.data))
    assert answer.status == 200, answer.body
    assert answer.body == {"files": 2, "directories": 1, "links": 2, "bytes": 22}
    ran = await plane.admin.post(path(box, "exec"), {"cmd": ["in/src/link"]})
    assert ran["stdout"] == "ran\n"
    assert not [name for name in await names(plane, box, "in") if "paddock" in name]
    out = await plane.admin.get(path(box, "archive?path=~/in"))
    assert (out.status, out.headers["content-type"]) == (200, "application/x-tar")
    with tarfile.open(fileobj=io.BytesIO(out.body)) as tar:
        found = {member.name: member for member in tar}
        assert found["./src/run.sh"].mode & 0o111
        assert found["./src/absolute"].linkname == "/usr/bin/env"
        assert tar.extractfile("./caf\udce9").read() == b"odd"


async def test_a_zip_has_the_same_content(plane, box):
    with archive() as made:
        made.add("d", type=tarfile.DIRTYPE, mode=0o755)
        made.add("d/run", b"x" * 100_000, mode=0o755)
        made.add("d/hard", type=tarfile.LNKTYPE, linkname="d/run")
        made.add("d/soft", type=tarfile.SYMTYPE, linkname="run")
    assert (await put(plane, box, "z", made.data)).status == 200
    out = await plane.admin.get(path(box, "archive?path=~/z&format=zip"))
    assert (out.status, out.headers["content-type"]) == (200, "application/zip")
    with zipfile.ZipFile(io.BytesIO(out.body)) as made_zip:
        assert made_zip.testzip() is None
        assert set(made_zip.namelist()) == {"d/", "d/run", "d/hard", "d/soft"}
        modes = {name: made_zip.getinfo(name).external_attr >> 16 for name in made_zip.namelist()}
        # Of a file with two names, the one that tar meets second is the link.
        assert sorted((modes["d/run"], modes["d/hard"])) == [0o100755, 0o120777]
        whole = {made_zip.read("d/run"), made_zip.read("d/hard")}
        assert b"x" * 100_000 in whole
        assert made_zip.read("d/soft") == b"run"


async def test_one_file_is_an_archive_too(plane, box):
    await plane.admin.call("PUT", path(box, "files?path=~/-odd-name"), data=b"one")
    out = await plane.admin.get(path(box, "archive?path=~/-odd-name"))
    with tarfile.open(fileobj=io.BytesIO(out.body)) as tar:
        assert tar.getnames() == ["./-odd-name"]


async def test_nothing_of_what_leads_outside_is_unpacked(plane, box):
    cases = [
        {"name": "../escaped"},
        {"name": "a/../../escaped"},
        {"name": "/tmp/paddock-escaped"},
        {"name": "hard", "type": tarfile.LNKTYPE, "linkname": "../../etc/passwd"},
        {"name": "hard", "type": tarfile.LNKTYPE, "linkname": "/etc/passwd"},
        {"name": "pipe", "type": tarfile.FIFOTYPE},
        {"name": "device", "type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3},
    ]
    for case in cases:
        with archive() as made:
            made.add("harmless", b"x")
            made.add(**case)
        answer = await put(plane, box, "safe", made.data)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request"), case
        assert answer.error["remediation"]
        assert await names(plane, box, "safe") is None, case
    with archive() as made:
        made.add("door", type=tarfile.SYMTYPE, linkname="..")
        made.add("door/escaped", b"x")
    answer = await put(plane, box, "safe", made.data)
    assert "behind a symbolic link" in answer.error["message"]
    listed = await plane.admin.get(path(box, "files/stat?path=~/escaped"))
    assert listed.status == 404


async def test_what_is_no_archive_is_refused_and_leaves_nothing(plane, box):
    with archive() as made:
        made.add("file", b"x" * 5000)
    huge_header = tarfile.TarInfo("x")
    huge_header.type, huge_header.size = tarfile.XHDTYPE, 1 << 33
    sparse = tarfile.TarInfo("x")
    sparse.type = tarfile.GNUTYPE_SPARSE
    cases = {
        "not a tar": b"hello" * 1000,
        "cut": made.data[:2000],
        "cut gzip": gzip.compress(os.urandom(5000))[:3000],
        "not gzip": b"\x1f\x8bxxxxxxxxx",
        "a header that is larger than memory": huge_header.tobuf() + b"y" * 5000,
        "sparse": sparse.tobuf() + b"\0" * 5000,
    }
    for what, data in cases.items():
        answer = await put(plane, box, "bad", data)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request"), what
        assert await names(plane, box, "bad") is None, what
    assert (await plane.admin.call("PUT", path(box, "files?path=~/taken"), data=b"")).status == 200
    onto = await put(plane, box, "taken", made.data)
    assert onto.status == 409


async def test_an_archive_that_breaks_off_leaves_nothing(plane, box):
    with archive() as made:
        made.add("large", os.urandom(3 * MIB))
    host, port = plane.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"PUT {path(box, 'archive?path=~/broken')} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {plane.admin.token}\r\nTransfer-Encoding: chunked\r\n\r\n"
        f"{len(made.data):x}\r\n".encode()
    )
    writer.write(made.data[: 2 * MIB])
    await writer.drain()
    await until_begun(plane, box)
    writer.close()
    await until_ended(plane, box)
    assert await names(plane, box, "broken") is None


async def test_what_cannot_be_read_breaks_the_archive_off(plane, box):
    """What ends well is whole."""
    script = "mkdir bin part; printf '#!/bin/sh\\nprintf half; exit 2' > bin/tar; chmod +x bin/tar"
    await plane.admin.post(path(box, "exec"), {"cmd": ["sh", "-c", script]})
    home = (await plane.admin.get(path(box, "files/stat?path=~/bin")))["path"]
    await plane.admin.call("PUT", path(box, "env"), {"env": {"PATH": f"{home}:/usr/bin:/bin"}})
    with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientConnectionError)):
        await plane.admin.get(path(box, "archive?path=~/part"))
    script = "printf '#!/bin/sh\\necho no >&2; exit 2' > bin/tar"
    await plane.admin.post(path(box, "exec"), {"cmd": ["sh", "-c", script]})
    refused = await plane.admin.get(path(box, "archive?path=~/part"))
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    await plane.admin.call("PUT", path(box, "env"), {"env": {"PATH": "/nowhere"}})
    refused = await plane.admin.get(path(box, "archive?path=~/part"))
    assert (refused.status, refused.error["code"]) == (501, "unsupported")
    assert "tar" in refused.error["remediation"]


async def test_who_goes_away_takes_the_packing_with_them(plane, box):
    await plane.admin.post(
        path(box, "exec"), {"cmd": ["sh", "-c", "head -c 104857600 /dev/zero > zeros"]}
    )
    headers = {"authorization": f"Bearer {plane.admin.token}"}
    for form in ("tar", "zip"):
        async with plane.session.get(
            plane.url + path(box, f"archive?path=~/zeros&format={form}"), headers=headers
        ) as answer:
            await answer.content.readexactly(1000)
    await until_ended(plane, box)


@pytest.mark.proves("S12")
async def test_an_upload_that_fails_leaves_no_directory_that_it_made(plane, box):
    with archive() as outside:
        outside.add("../outside", b"x")
    with archive() as good:
        good.add("inside", b"x")

    async def broken_off():
        yield good.data[:600]
        await until_begun(plane, box)
        raise ConnectionResetError

    for data in (outside.data, b"no tar at all" * 100, good.data[:700]):
        assert (await put(plane, box, "made/by/this", data)).status == 400
        assert (await plane.admin.get(path(box, "files/stat?path=~/made"))).status == 404
    with pytest.raises(aiohttp.ClientError):
        await put(plane, box, "made/by/this", broken_off())
    await until_ended(plane, box)
    assert (await plane.admin.get(path(box, "files/stat?path=~/made"))).status == 404
    wish = {"path": f"{box['home']}/made/before"}
    assert (await plane.admin.post(path(box, "files/directory"), wish)).status == 201
    for where in ("made/before", "made/before/this"):
        assert (await put(plane, box, where, outside.data)).status == 400
        assert await names(plane, box, "made") == ["before"], "what was there before stays"
    assert (await put(plane, box, "made/before/this", good.data)).status == 200
    assert await names(plane, box, "made") == ["before", "before/this", "before/this/inside"]
