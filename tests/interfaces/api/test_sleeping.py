"""Files of sandboxes that sleep, over HTTP."""

import os

import pytest

from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable


@pytest.fixture(scope="module")
async def showing(need):
    """A control plane whose provider can show the disk of what sleeps."""
    if os.geteuid() != 0:
        need("root", "only root can mount a disk for reading alone")
    async with disposable(provider=SimulatedProvider) as made:
        yield made


async def a_box(plane):
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    assert made.status == 201, made.body
    path = f"/v1/sandboxes/{made['id']}"
    home = (await plane.admin.post(f"{path}/exec", {"cmd": ["pwd"]}))["stdout"].strip()
    await plane.admin.call("PUT", f"{path}/files?path={home}/d/note", data=b"0123456789")
    return path, home


@pytest.mark.proves("S11")
@pytest.mark.parametrize("verb", ["stop", "pause"])
async def test_a_sleeping_sandbox_is_read_and_sleeps_on(showing, verb):
    admin = showing.admin
    path, home = await a_box(showing)
    await admin.post(f"{path}/{verb}")
    asleep = await admin.get(path)
    state = asleep["state"]
    listed = await admin.get(f"{path}/files/list?path={home}&depth=2")
    assert [item["name"] for item in listed["items"]] == ["d", "note"]
    stat = await admin.get(f"{path}/files/stat?path={home}/d/note")
    assert stat["size"] == 10
    text = await admin.get(f"{path}/files/text?path={home}/d/note")
    assert text["text"] == "0123456789"
    where = f"{path}/files?path={home}/d/note"
    part = await admin.get(where, headers={"range": "bytes=3-5", "if-range": text["etag"]})
    assert (part.status, part.body) == (206, b"345")
    for answer in (listed, stat, text, part):
        assert answer.headers["x-paddock-state"] == state
        assert "x-paddock-woken" not in answer.headers
    absent = await admin.get(f"{path}/files/text?path={home}/none")
    assert (absent.status, absent.error["code"]) == (404, "not_found")
    after = (await admin.get(path)).body
    assert after == asleep.body, "it was only looked at"
    refused = await admin.call("PUT", where, data=b"x")
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    await admin.post(f"{path}/{'start' if verb == 'stop' else 'resume'}")
    awake = await admin.get(where)
    assert (awake.body, awake.headers["x-paddock-state"]) == (b"0123456789", "running")
    await admin.delete(path)


@pytest.mark.proves("S11")
async def test_an_archived_one_is_woken_only_when_asked_and_says_so(showing):
    admin = showing.admin
    path, home = await a_box(showing)
    await admin.post(f"{path}/stop")
    await admin.post(f"{path}/archive")
    where = f"{path}/files?path={home}/d/note"
    refused = await admin.get(where)
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert "archived" in refused.error["message"]
    assert "wake=true" in refused.error["remediation"]
    assert (await admin.get(path))["state"] == "archived"
    woken = await admin.get(f"{where}&wake=true")
    assert (woken.status, woken.body) == (200, b"0123456789")
    assert (woken.headers["x-paddock-state"], woken.headers["x-paddock-woken"]) == (
        "running",
        "true",
    )
    assert (await admin.get(path))["state"] == "running"
    again = await admin.get(f"{where}&wake=true")
    assert "x-paddock-woken" not in again.headers
    await admin.delete(path)


@pytest.mark.proves("S11")
async def test_where_nobody_can_look_it_is_woken_only_when_asked(plane, box, home):
    """The reference provider has no way to show what sleeps."""
    path = f"/v1/sandboxes/{box['id']}"
    await plane.admin.call("PUT", f"{path}/files?path={home}/note", data=b"kept")
    await plane.admin.post(f"{path}/stop")
    for rest in ("files?", "files/text?", "files/stat?", "files/list?"):
        refused = await plane.admin.get(f"{path}/{rest}path={home}/note")
        assert (refused.status, refused.error["code"]) == (409, "conflict")
        assert "stopped" in refused.error["message"]
        assert "wake=true" in refused.error["remediation"]
    assert (await plane.admin.get(path))["state"] == "stopped"
    stat = await plane.admin.get(f"{path}/files/stat?path={home}/note&wake=true")
    assert (stat.status, stat.headers["x-paddock-woken"]) == (200, "true")


@pytest.mark.proves("U1")
async def test_another_team_sees_nothing_of_it(showing):
    path, home = await a_box(showing)
    await showing.admin.post(f"{path}/stop")
    other = await showing.team("others")
    for rest in ("files?", "files/text?", "files/stat?", "files/list?"):
        answer = await other.get(f"{path}/{rest}path={home}/d/note&wake=true")
        assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert (await showing.admin.get(path))["state"] == "stopped"
    await showing.admin.delete(path)
