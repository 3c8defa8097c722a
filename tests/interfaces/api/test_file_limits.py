"""What files may be at most, what listings and exports leave out, and in what pages lists come."""

import gzip
import io
import json
import tarfile
import zipfile
from dataclasses import replace
from itertools import chain
from urllib.parse import quote

import pytest

from paddock import AsyncSandbox, Server, TooLarge
from paddock.services.file_limits import FilesConfig
from paddock.settings import Settings
from tests.control_plane import disposable

KIB = 1 << 10


@pytest.fixture
def box(box, home):
    return {**box, "home": home}


def path(box, rest):
    """`~` stands for the sandbox's own directory."""
    return f"/v1/sandboxes/{box['id']}/{rest}".replace("~", box["home"])


async def put(client, box, name, data=b"x"):
    where = path(box, f"files?path=~/{quote(name)}")
    answer = await client.call("PUT", where, data=io.BytesIO(data))
    assert answer.status == 200, answer.body
    return answer


async def listed(client, box, where, **query):
    """Every page of it."""
    cursor, found = "", []
    while True:
        asked = "".join(f"&{name}={value}" for name, value in {**query, "cursor": cursor}.items())
        page = await client.get(path(box, f"files/list?path=~/{where}{asked}"))
        assert page.status == 200, page.body
        found.append([item["path"].rpartition(f"/{where}/")[2] for item in page["items"]])
        if (cursor := page["next_cursor"]) is None:
            return found, page["excluded"]


@pytest.mark.proves("S11")
async def test_text_comes_in_an_answer_up_to_a_size_and_says_what_to_do_beyond(plane, box):
    admin = plane.admin
    await put(admin, box, "note.txt", "grüße\n".encode())
    got = await admin.get(path(box, "files/text?path=~/note.txt"))
    assert (got["text"], got["size"], got["kind"]) == ("grüße\n", 8, "file")
    whole = await admin.get(path(box, "files?path=~/note.txt"))
    assert got["etag"] == whole.headers["etag"]
    await put(admin, box, "limit.txt", b"x" * 2048 * KIB)
    assert (await admin.get(path(box, "files/text?path=~/limit.txt"))).status == 200
    await put(admin, box, "large.txt", b"x" * (2048 * KIB + 1))
    refused = await admin.get(path(box, "files/text?path=~/large.txt"))
    assert (refused.status, refused.error["code"]) == (413, "too_large")
    assert "2097153 bytes" in refused.error["message"]
    assert "download" in refused.error["remediation"]
    assert (await admin.get(path(box, "files?path=~/large.txt"))).status == 200
    await put(admin, box, "odd", b"\xff\xfe")
    refused = await admin.get(path(box, "files/text?path=~/odd"))
    assert (refused.status, refused.error["code"]) == (400, "invalid_request")
    assert "download" in refused.error["remediation"]
    assert (await admin.get(path(box, "files/text?path=~"))).status == 400
    assert (await admin.get(path(box, "files/text?path=~/none"))).status == 404


@pytest.mark.proves("S11", "Q5")
async def test_a_listing_comes_in_pages_and_shows_what_it_did_not_enter(plane, box):
    names = ["a/1", "a/node_modules/deep/x", "a/.git/config", "b/2", "c"]
    for name in names:
        await put(plane.admin, box, f"tree/{name}")
    for limit in (1, 3, 100):
        pages, excluded = await listed(plane.admin, box, "tree", depth=9, limit=limit)
        assert list(chain(*pages)) == ["a", "a/.git", "a/1", "a/node_modules", "b", "b/2", "c"]
        assert {"node_modules", ".git"} <= set(excluded)
        assert all(len(page) == limit for page in pages[:-1])
    everything, excluded = await listed(plane.admin, box, "tree", depth=9, exclude="")
    assert excluded == []
    assert set(names) <= set(everything[0])
    some, excluded = await listed(plane.admin, box, "tree", depth=9, exclude="dee*")
    assert excluded == ["dee*"]
    assert "a/node_modules/deep" in some[0]
    assert "a/node_modules/deep/x" not in some[0]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=10001", "cursor=%00", "cursor=Li4vZXRj", "cursor=!", "cursor=AA"]
)
async def test_a_page_that_cannot_be_is_refused(plane, box, query):
    answer = await plane.admin.get(path(box, f"files/list?path=~&{query}"))
    assert (answer.status, answer.error["code"]) == (400, "invalid_request"), answer.body
    assert answer.error["remediation"]


@pytest.mark.proves("Q5")
async def test_every_list_is_in_pages_or_has_an_end_by_nature(plane):
    """The rest is as long as the configuration, or as the ports that a sandbox listens on."""
    bounded = {
        "/v1/settings",
        "/v1/providers",
        "/v1/egress/presets",
        "/v1/bindings",
        "/v1/sandboxes/{sandbox}/credentials",
        "/v1/sandboxes/{sandbox}/ports",
    }
    document = (await plane.admin.get("/v1/openapi.json")).body
    shapes = document["components"]["schemas"]
    unpaged = set()
    for where, methods in document["paths"].items():
        said = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        name = said.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
        if "items" not in shapes.get(name, {}).get("properties", {}):
            continue
        known = {each["name"] for each in methods["get"].get("parameters", ())}
        told = shapes[name]["properties"]
        forwards = {"limit", "cursor"} <= known and "next_cursor" in told
        both_ways = {"limit", "before"} <= known and "older" in told
        if not (forwards or both_ways):
            unpaged.add(where)
    assert unpaged == bounded


@pytest.mark.proves("Q5")
async def test_commands_come_in_pages(plane, box):
    ids = []
    for number in range(5):
        headers = {"Idempotency-Key": f"z{9 - number}"}
        wish = {"cmd": ["true"]}
        made = await plane.admin.post(path(box, "commands"), wish, headers=headers)
        ids.append(made["id"])
    found, cursor = [], ""
    while cursor is not None:
        page = await plane.admin.get(path(box, f"commands?limit=2&cursor={quote(cursor)}"))
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert found == ids


@pytest.mark.proves("S13")
async def test_an_export_has_no_caches_and_nothing_that_a_link_leads_to(plane, box):
    for name in ("app/main.py", "app/node_modules/lib/x.js", "app/__pycache__/m.pyc", "app/.gitx"):
        await put(plane.admin, box, name)
    await put(plane.admin, box, "secret", b"of somebody else")
    script = "cd app; ln -s ../secret out; ln -s .. up; ln -s /etc/passwd host; ln -s main.py in"
    await plane.admin.post(path(box, "exec"), {"cmd": ["sh", "-c", script]})
    out = await plane.admin.get(path(box, "archive?path=~/app&format=zip"))
    assert "node_modules" in out.headers["x-paddock-excluded"].split(", ")
    with zipfile.ZipFile(io.BytesIO(out.body)) as made:
        assert set(made.namelist()) == {"main.py", ".gitx", "out", "up", "host", "in"}
        links = {name: made.read(name) for name in ("out", "up", "host", "in")}
        assert links == {"out": b"../secret", "up": b"..", "host": b"/etc/passwd", "in": b"main.py"}
        assert all(made.getinfo(name).external_attr >> 28 == 0o12 for name in links)
        assert b"of somebody else" not in b"".join(made.read(name) for name in made.namelist())
    everything = await plane.admin.get(path(box, "archive?path=~/app&format=zip&exclude="))
    assert everything.headers["x-paddock-excluded"] == ""
    with zipfile.ZipFile(io.BytesIO(everything.body)) as made:
        assert "node_modules/lib/x.js" in made.namelist()
    tar = await plane.admin.get(path(box, "archive?path=~/app&exclude=*.py"))
    with tarfile.open(fileobj=io.BytesIO(tar.body)) as made:
        assert "./main.py" not in made.getnames()
        assert "./node_modules/lib/x.js" in made.getnames()


@pytest.mark.proves("S12")
async def test_names_of_our_own_are_not_written_moved_or_removed(plane, box, home):
    reserved = [
        "/run/paddock/x",
        "/run//paddock",
        "/var/lib/paddock/runs",
        "~/.paddock-x",
        "~/.paddock-a/b",
    ]
    for name in reserved:
        for method in ("PUT", "DELETE"):
            answer = await plane.admin.call(method, path(box, f"files?path={name}"))
            assert (answer.status, answer.error["code"]) == (400, "invalid_request"), name
            assert "reserved" in answer.error["message"]
        real = name.replace("~", home)
        for wish in (
            {"source": f"{home}/a", "destination": real},
            {"source": real, "destination": "b"},
        ):
            assert (await plane.admin.post(path(box, "files/move"), wish)).status == 400
        assert (await plane.admin.post(path(box, "files/directory"), {"path": real})).status == 400
        assert (await plane.admin.call("PUT", path(box, f"archive?path={name}"))).status == 400
    await put(plane.admin, box, "run/paddock/mine")


@pytest.mark.proves("S12")
async def test_an_upload_is_written_where_it_leads_inside_and_as_its_user(plane, box, home):
    """A link in the way leads where the user's own programs could go, and no further."""
    await put(plane.admin, box, "real/file", b"before")
    await plane.admin.post(path(box, "exec"), {"cmd": ["ln", "-s", "real", "door"]})
    await put(plane.admin, box, "door/file", b"after")
    assert (await plane.admin.get(path(box, "files?path=~/real/file"))).body == b"after"
    await plane.admin.post(path(box, "exec"), {"cmd": ["ln", "-s", "loop", "loop"]})
    looped = await plane.admin.call("PUT", path(box, "files?path=~/loop/x"), data=b"x")
    assert looped.status == 400
    through = await plane.admin.call("PUT", path(box, "files?path=~/real/file/x"), data=b"x")
    assert through.status == 400


def packed(content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("one")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.proves("S12", "U11")
async def test_what_is_larger_than_the_setting_is_refused_and_leaves_nothing():
    config = FilesConfig(max_upload_mib=1, max_text_kib=1, excluded=("only",))
    settings = replace(Settings(), files=config)
    async with disposable(settings=settings) as plane:
        admin = plane.admin
        made = await admin.post("/v1/sandboxes", {"template": "plain"})
        where = f"/v1/sandboxes/{made['id']}"
        home = (await admin.post(f"{where}/exec", {"cmd": ["pwd"]}))["stdout"].strip()
        whole = b"x" * (1 << 20)

        async def pieces(count):
            for _ in range(count):
                yield whole

        fits = await admin.call("PUT", f"{where}/files?path={home}/fits", data=pieces(1))
        assert fits.status == 200
        for what, sent in (
            ("files", io.BytesIO(whole + b"x")),
            ("files", pieces(2)),
            ("archive", io.BytesIO(packed(whole))),
            ("archive", io.BytesIO(gzip.compress(packed(whole)))),
        ):
            answer = await admin.call("PUT", f"{where}/{what}?path={home}/huge", data=sent)
            assert (answer.status, answer.error["code"]) == (413, "too_large"), what
            assert "files.max_upload_mib" in answer.error["remediation"]
        async with Server(plane.url, admin.token) as server:
            files = (await AsyncSandbox.connect(made["id"], server=server)).files
            with pytest.raises(TooLarge):
                await files.write(f"{home}/huge", [whole] * 50)
        left = await admin.get(f"{where}/files/list?path={home}&depth=3")
        files = [item["name"] for item in left["items"] if item["kind"] == "file"]
        assert files == ["fits"]
        assert left["excluded"] == ["only"]
        shown = await admin.get("/v1/settings")
        values = {item["key"]: item["value"] for item in shown["items"]}
        assert values["files.max_upload_mib"] == 1
        assert json.dumps(values["files.excluded"]) == '["only"]'
