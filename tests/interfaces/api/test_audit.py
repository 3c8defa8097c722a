"""The audit log over HTTP: what it says, to whom, and that tampering shows."""

import json
from pathlib import Path

import pytest

from paddock.testing.reference import ReferenceProvider
from tests.control_plane import remove_all, running
from tests.databases import by_hand

EVERY_DATABASE = True


@pytest.mark.proves("U5")
async def test_the_audit_log_says_who_did_what(plane, box):
    await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["echo", "s3cret"]})
    exported = (await plane.admin.get("/v1/audit/export")).body.decode()
    entries = [json.loads(line) for line in exported.splitlines()]
    mine = [entry for entry in entries if entry["subject"] == box["id"]]
    assert [entry["action"] for entry in mine] == ["sandbox.create", "command.run"]
    assert mine[1]["detail"]["program"] == "echo"
    assert "s3cret" not in exported
    viewer = await plane.member(role="viewer")
    for path in ("/v1/audit", "/v1/audit/export", "/v1/audit/verify"):
        assert (await viewer.get(path)).status == 403


async def test_pages_of_it_go_on_by_the_teams_own_numbers(plane):
    other = await plane.team("pages")
    for name in ("a", "b", "c"):
        await other.post("/v1/tokens", {"name": name})
        await plane.admin.post("/v1/tokens", {"name": name})
    found, cursor = [], ""
    while cursor is not None:
        page = await other.get(f"/v1/audit?limit=2&cursor={cursor}")
        found += page["items"]
        cursor = page["next_cursor"]
    assert [entry["seq"] for entry in found] == list(range(1, len(found) + 1))


@pytest.mark.proves("U5")
async def test_each_team_verifies_its_own_and_operators_all(plane, box):
    other = await plane.team("verifying")
    ours, theirs = [(await who.get("/v1/audit/verify")).body for who in (plane.admin, other)]
    for verdict in (ours, theirs):
        assert (verdict["holds"], verdict["first_break"]) == (True, None)
        assert verdict["entries"] == verdict["head"]["seq"]
    whole = (await plane.admin.get("/v1/audit/verify?everything=true")).body
    assert whole["holds"]
    assert whole["entries"] >= ours["entries"] + theirs["entries"]
    assert (await other.get("/v1/audit/verify?everything=true")).status == 403
    head = theirs["head"]
    expected = await other.get(f"/v1/audit/verify?expect={head['seq']}:{head['hash']}")
    assert expected["holds"]
    beyond = await other.get(f"/v1/audit/verify?expect={head['seq'] + 1}:{head['hash']}")
    assert beyond["first_break"]["seq"] == head["seq"] + 1
    assert "cut off" in beyond["first_break"]["problem"]
    assert (await other.get("/v1/audit/verify?expect=1:zz")).status in (400, 422)


@pytest.mark.proves("U5")
async def test_what_was_done_to_it_between_two_starts_is_told(tmp_path, empty_database):
    place = empty_database or str(tmp_path / "data" / "paddock.db")
    async with running(tmp_path, ReferenceProvider, database=empty_database) as plane:
        other = await plane.team("other")
        status = (await plane.admin.get("/v1/system/status"))["audit"]
        assert (status["holds"], status["breaks"]) == (True, 0)
        assert (await other.get("/v1/system/status"))["audit"] is None
        assert "paddock_audit_breaks 0.0" in (await plane.admin.get("/metrics")).body.decode()
    await by_hand(
        place,
        "UPDATE audit SET actor = 'somebody-else' WHERE seq = 1",
        "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)",
    )
    async with running(tmp_path, ReferenceProvider, database=empty_database) as plane:
        status = (await plane.admin.get("/v1/system/status"))["audit"]
        assert (status["holds"], status["breaks"]) == (False, 2)
        assert status["first_break"] == {"seq": 1, "problem": "its content was changed"}
        events = (await plane.admin.get("/v1/events?kind=audit.broken"))["items"]
        assert [event["data"]["entry"] for event in events] == [1]
        assert "paddock_audit_breaks 2.0" in (await plane.admin.get("/metrics")).body.decode()
        assert (await plane.admin.get("/readyz")).status == 200
        await remove_all(plane)
    assert [each.stat().st_mode & 0o77 for each in Path(tmp_path, "data").glob("audit-head.*")] == [
        0
    ]
