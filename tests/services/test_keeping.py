"""Snapshots that Paddock takes and lets go by itself, of real sandboxes."""

import time
from dataclasses import replace

import pytest
from sqlalchemy import update

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.store.schema import sandbox as sandbox_table
from paddock.domain.keeping import Keeping
from paddock.domain.lifetime import DAY
from paddock.wiring.providers import layered
from tests.control_plane import disposable
from tests.engines import local_config

SECRET = "swordfish-of-the-deep"


@pytest.fixture(scope="module")
async def plane():
    provider = await LocalProvider.open(local_config())
    await provider.prepare("base")
    async with disposable(provider=lambda _: layered(provider)) as made:
        yield made
        for each in (await made.admin.get("/v1/snapshots"))["items"]:
            await made.admin.delete(f"/v1/snapshots/{each['id']}")


@pytest.fixture
async def box(plane):
    answer = await plane.admin.post("/v1/sandboxes")
    assert answer.status == 201, answer.body
    yield answer.body
    await plane.admin.delete(f"/v1/sandboxes/{answer['id']}?force=true")


@pytest.fixture
def keeping(plane):
    """Everything counts as idle at once, while a test lasts."""
    snapshots = plane.services.snapshots
    snapshots.keeping = Keeping(idle_after_s=0.0)
    yield snapshots
    snapshots.keeping = Keeping()


async def automatic(plane, box):
    found = (await plane.admin.get(f"/v1/snapshots?sandbox={box['id']}"))["items"]
    return [each for each in found if each["automatic"]]


@pytest.mark.proves("N5")
async def test_what_idles_is_kept_once_with_an_end_and_again_after_it_was_used(plane, box, keeping):
    look = plane.rounds.housekeeping.look
    await look()
    await look()
    (kept,) = await automatic(plane, box)
    assert kept["expires_at"] is not None
    events = (await plane.admin.get("/v1/events?kind=snapshot.created"))["items"]
    assert events[-1]["actor"] == "paddock/keeper"
    await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["true"]})
    await look()
    assert len(await automatic(plane, box)) == 2
    keeping.keeping = replace(keeping.keeping, idle_after_s=None, most=1)
    await look()
    (left,) = await automatic(plane, box)
    assert left["id"] != kept["id"]


@pytest.mark.proves("N5")
async def test_what_was_used_lately_is_left_alone(plane, box):
    await plane.rounds.housekeeping.look()
    assert await automatic(plane, box) == []


@pytest.mark.proves("N5")
async def test_starts_of_the_server_say_nothing_about_how_long_one_idles(plane, box):
    """They neither put off that it is kept, nor is it kept once more after one."""
    activity, store = plane.services.inside._activity, plane.services.store
    now, since = time.time(), activity._since

    def used(tx):
        last = update(sandbox_table).where(sandbox_table.c.id == box["id"])
        tx._connection.execute(last.values(active_at=now - 3 * DAY))

    await store.write(used)
    activity.forget(box["id"])
    try:
        activity._since = now
        await plane.rounds.housekeeping.look()
        (kept,) = await automatic(plane, box)
        snapshot = await store.read(lambda tx: tx.snapshots.get("", kept["id"]))
        taken = replace(snapshot, created_at=now - 2 * DAY)
        await store.write(lambda tx: tx.snapshots.replace(taken))
        activity._since = now - 1.5 * DAY
        await plane.rounds.housekeeping.look()
        assert len(await automatic(plane, box)) == 1
    finally:
        activity._since = since


@pytest.mark.proves("N5", "L6")
async def test_a_sandbox_that_is_deleted_is_kept_first_where_that_is_wanted(plane):
    values = {"snapshots.before_delete": "always"}
    assert (await plane.admin.call("PATCH", "/v1/settings", {"values": values})).status == 200
    try:
        made = (await plane.admin.post("/v1/sandboxes")).body
        path = f"/v1/sandboxes/{made['id']}"
        await plane.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", "echo dear > ~/note"]})
        assert (await plane.admin.delete(f"{path}?force=true")).status == 200
    finally:
        reset = {"reset": ["snapshots.before_delete"]}
        await plane.admin.call("PATCH", "/v1/settings", reset)
    (kept,) = await automatic(plane, made)
    again = await plane.admin.post("/v1/sandboxes", {"snapshot": kept["id"]})
    ran = await plane.admin.post(
        f"/v1/sandboxes/{again['id']}/exec", {"cmd": ["sh", "-c", "cat ~/note"]}
    )
    assert ran["stdout"] == "dear\n"
    assert (await plane.admin.delete(f"/v1/sandboxes/{again['id']}?force=true")).status == 200
    assert await automatic(plane, again.body) == []


@pytest.mark.proves("N5")
async def test_pruning_leaves_what_people_took_unless_they_say_so(plane, box, keeping):
    mine = await plane.admin.post(f"/v1/sandboxes/{box['id']}/snapshots")
    await plane.rounds.housekeeping.look()
    keeping.keeping = Keeping()
    wish = {"keep_last": 0, "sandbox": box["id"]}
    gone = await plane.admin.post("/v1/snapshots/prune", wish)
    assert [each["automatic"] for each in gone["items"]] == [True]
    assert (await plane.admin.get(f"/v1/snapshots/{mine['id']}")).status == 200
    kept = await plane.admin.post(
        "/v1/snapshots/prune", {**wish, "older_than_s": 60, "kind": "all"}
    )
    assert kept["items"] == []
    gone = await plane.admin.post("/v1/snapshots/prune", {**wish, "kind": "manual"})
    assert [each["id"] for each in gone["items"]] == [mine["id"]]
    assert (await plane.admin.post("/v1/snapshots/prune", {})).status == 400


@pytest.mark.proves("N1")
async def test_nothing_is_left_out_of_a_snapshot_whatever_it_is_called(plane, box):
    names = "out .next node_modules .venv __pycache__ .cache build dist target tmp"
    script = f"cd ~ && for d in {names}; do mkdir -p src/$d && echo $d > src/$d/mine; done"
    path = f"/v1/sandboxes/{box['id']}"
    await plane.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", script]})
    kept = await plane.admin.post(f"{path}/snapshots")
    copy = await plane.admin.post("/v1/sandboxes", {"snapshot": kept["id"]})
    look = {"cmd": ["sh", "-c", "cd ~/src && cat $(ls -A | sort | sed s,$,/mine,)"]}
    ran = await plane.admin.post(f"/v1/sandboxes/{copy['id']}/exec", look)
    assert sorted(ran["stdout"].split()) == sorted(names.split())
    await plane.admin.delete(f"/v1/sandboxes/{copy['id']}?force=true")


@pytest.mark.proves("N6")
async def test_a_base_for_development_has_its_tools_everywhere_and_no_token(plane):
    """Made ready with a secret of its app at hand; what is made of it has the tools in every kind
    of shell, and nothing on the disk has the secret."""
    wish = {"value": SECRET, "policy": "runtime_access"}
    await plane.admin.call("PUT", "/v1/secrets/DEEP?app=dev", wish)
    made = (await plane.admin.post("/v1/sandboxes", {"app": "dev"})).body
    path = f"/v1/sandboxes/{made['id']}"
    install = """test -n "$DEEP" && cd /usr/local/bin && chmod 755 . &&
        printf '#!/bin/sh\\necho tool works\\n' > tool && chmod 755 tool"""
    done = await plane.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", install], "user": "root"})
    assert done["exit_code"] == 0, done.body
    assert (await plane.admin.post(f"{path}/snapshots", {"name": "dev-base"})).status == 201
    await plane.admin.delete(f"{path}?force=true")
    copy = (await plane.admin.post("/v1/sandboxes", {"snapshot": "dev-base"})).body
    path = f"/v1/sandboxes/{copy['id']}"
    for cmd in (["tool"], ["sh", "-c", "tool"], ["sh", "-lc", "tool"], ["bash", "-lic", "tool"]):
        ran = await plane.admin.post(f"{path}/exec", {"cmd": cmd})
        assert ran["stdout"] == "tool works\n", (cmd, ran.body)
    look = f"grep -rIl '[{SECRET[0]}]{SECRET[1:]}' /etc /home /root /tmp /var /run /usr/local; env"
    found = await plane.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", look], "user": "root"})
    names = [line for line in found["stdout"].splitlines() if line.startswith("/")]
    assert (names, "DEEP=" in found["stdout"]) == ([], False)
    await plane.admin.delete(f"{path}?force=true")
    await plane.admin.delete("/v1/snapshots/dev-base")
