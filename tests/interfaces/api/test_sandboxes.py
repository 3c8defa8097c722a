"""Sandboxes over HTTP."""

import asyncio

import pytest

from paddock.domain.lifetime import MAX_KEEP_ALIVE_S

EVERY_DATABASE = True


@pytest.mark.proves("L1")
async def test_a_sandbox_is_made_used_and_removed(plane):
    admin = plane.admin
    made = await admin.post(
        "/v1/sandboxes",
        {"template": "plain", "name": "first", "labels": {"a": "1"}, "env": {"COLOUR": "blue"}},
    )
    assert made.status == 201
    assert (made["state"], made["name"], made["labels"]) == ("running", "first", {"a": "1"})
    assert made["env_names"] == ["COLOUR"]
    assert "blue" not in str(made.body)
    ran = await admin.post(
        "/v1/sandboxes/first/exec", {"cmd": ["sh", "-c", "echo $COLOUR; exit 3"]}
    )
    assert (ran.status, ran["exit_code"], ran["stdout"]) == (200, 3, "blue\n")
    gone = await admin.delete("/v1/sandboxes/first")
    assert (gone.status, gone["state"], gone["reason"]) == (200, "deleted", "user")
    assert (await admin.get("/v1/sandboxes/first")).status == 404
    assert (await admin.get(f"/v1/sandboxes/{made['id']}"))["state"] == "deleted"


@pytest.mark.proves("L2")
async def test_the_same_key_is_the_same_sandbox_also_at_once(plane):
    headers = {"Idempotency-Key": "branch-main"}
    wish = {"template": "plain"}
    answers = await asyncio.gather(
        *(plane.admin.post("/v1/sandboxes", wish, headers=headers) for _ in range(8))
    )
    assert {answer.status for answer in answers} == {201}
    assert len({answer["id"] for answer in answers}) == 1
    other = await plane.admin.post(
        "/v1/sandboxes", {"template": "plain", "env": {"A": "1"}}, headers=headers
    )
    assert (other.status, other.error["code"]) == (409, "conflict")
    await plane.admin.delete(f"/v1/sandboxes/{answers[0]['id']}")


@pytest.mark.proves("L2")
async def test_the_same_wish_in_another_order_is_the_same_request(plane):
    headers = {"Idempotency-Key": "in any order"}
    labels = {"a": "1", "b": "2"}
    turned = dict(reversed(labels.items()))
    first, again = [
        await plane.admin.post(
            "/v1/sandboxes", {"template": "plain", "labels": each, "env": each}, headers=headers
        )
        for each in (labels, turned)
    ]
    assert (first.status, again.status) == (201, 201), again.body
    assert first["id"] == again["id"]
    await plane.admin.delete(f"/v1/sandboxes/{first['id']}")


@pytest.mark.proves("L7")
async def test_what_cannot_be_made_leaves_nothing_and_may_be_tried_again(plane):
    headers = {"Idempotency-Key": "hopeless"}
    for _ in range(2):
        answer = await plane.admin.post(
            "/v1/sandboxes", {"template": "no-such", "name": "lost"}, headers=headers
        )
        assert (answer.status, answer.error["code"]) == (404, "not_found")
        assert answer.error["remediation"]
    assert (await plane.admin.get("/v1/sandboxes/lost")).status == 404
    listed = await plane.admin.get("/v1/sandboxes?name_prefix=lost")
    assert listed["items"] == []
    again = await plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "lost"})
    assert again.status == 201
    await plane.admin.delete("/v1/sandboxes/lost")


@pytest.mark.proves("L4")
async def test_stop_and_start_are_idempotent_and_keep_the_disk(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    await plane.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", "echo kept > ~/note"]})
    for _ in range(2):
        stopped = await plane.admin.post(f"{path}/stop")
        assert (stopped.status, stopped["state"], stopped["reason"]) == (200, "stopped", "user")
    refused = await plane.admin.post(f"{path}/exec", {"cmd": ["true"]})
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert "start it first" in refused.error["remediation"]
    for _ in range(2):
        assert (await plane.admin.post(f"{path}/start"))["state"] == "running"
    read = await plane.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", "cat ~/note"]})
    assert read["stdout"] == "kept\n"


@pytest.mark.parametrize("keep_s", [0, -1, 1e300, 4e11])
async def test_a_snapshot_is_not_kept_for_longer_than_a_date_can_say(plane, box, keep_s):
    answer = await plane.admin.post(f"/v1/sandboxes/{box['id']}/snapshots", {"keep_s": keep_s})
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert (await plane.admin.get("/v1/snapshots"))["items"] == []


async def test_what_the_provider_cannot_do_is_said_before_anything_happens(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    for verb in ("pause", "fork", "snapshots"):
        answer = await plane.admin.post(f"{path}/{verb}")
        assert (answer.status, answer.error["code"]) == (501, "unsupported"), verb
    assert (await plane.admin.get(path))["state"] == "running"
    assert (await plane.admin.get("/v1/snapshots"))["items"] == []


@pytest.mark.proves("K10")
async def test_an_environment_set_later_reaches_later_commands_and_later_starts(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    answer = await plane.admin.call("PUT", f"{path}/env", {"env": {"MOOD": "good, really"}})
    assert answer["env_names"] == ["MOOD"]
    assert "really" not in str(answer.body)
    command = {"cmd": ["sh", "-c", "echo $MOOD"]}
    assert (await plane.admin.post(f"{path}/exec", command))["stdout"] == "good, really\n"
    await plane.admin.post(f"{path}/stop")
    await plane.admin.post(f"{path}/start")
    assert (await plane.admin.post(f"{path}/exec", command))["stdout"] == "good, really\n"


@pytest.mark.proves("Q5")
async def test_lists_are_paged_filtered_and_newest_first(plane):
    other = await plane.team("pages")
    names = [f"page-{number}" for number in range(5)]
    for number, name in enumerate(names):
        labels = {"parity": "odd" if number % 2 else "even"}
        await other.post("/v1/sandboxes", {"template": "plain", "name": name, "labels": labels})
    seen, cursor = [], ""
    while True:
        page = await other.get(f"/v1/sandboxes?limit=2&cursor={cursor}")
        seen += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == names[::-1]
    odd = await other.get("/v1/sandboxes?label=parity=odd")
    assert [item["name"] for item in odd["items"]] == ["page-3", "page-1"]
    assert (await other.get("/v1/sandboxes?state=stopped"))["items"] == []
    assert (await other.get("/v1/sandboxes?label=oops")).status == 400


@pytest.mark.proves("L9")
async def test_time_can_be_extended_and_is_shown(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    wish = {
        "timeout_s": 3600,
        "keep_alive_s": MAX_KEEP_ALIVE_S,
        "name": "renamed",
        "labels": {"k": "v"},
    }
    changed = await plane.admin.call("PATCH", path, wish)
    assert changed.status == 200
    assert changed["name"] == "renamed"
    assert changed["expires_at"] > changed["changed_at"]
    for beyond in ({"keep_alive_s": MAX_KEEP_ALIVE_S + 1}, {"keep_alive_s": 1e300}):
        for refused in (
            await plane.admin.call("PATCH", path, beyond),
            await plane.admin.post("/v1/sandboxes", {"template": "plain", **beyond}),
            await plane.admin.post(f"{path}/fork", beyond),
        ):
            assert (refused.status, refused.error["code"]) == (400, "invalid_request")
            assert f"between 0 and {MAX_KEEP_ALIVE_S:g} seconds" in refused.error["message"]
    assert changed["keep_alive_until"] <= changed["idle_at"]
    ended = await plane.admin.call("PATCH", path, {"keep_alive_s": 0})
    assert ended["keep_alive_until"] is None


@pytest.mark.proves("C6", "Q1")
@pytest.mark.parametrize(
    "wish",
    [
        {"name": "Not A Name"},
        {"name": "x" * 64},
        {"resources": {"memory_mib": 0}},
        {"resources": {"cpus": "many"}},
        {"lifetime": {"timeout_s": -1}},
        {"template": "plain", "snapshot": "x"},
        {"env": {"1BAD": "x"}},
        {"env": {"OK": "nul\0"}},
        {"labels": {"": "x"}},
        {"ports": [0]},
        {"unknown": 1},
        {"provider": "nowhere", "template": "plain"},
    ],
    ids=str,
)
async def test_a_wish_that_makes_no_sense_is_refused_with_a_way_out(plane, wish):
    answer = await plane.admin.post("/v1/sandboxes", wish)
    assert answer.status in (400, 404), answer.body
    assert set(answer.error) == {"code", "message", "retryable", "remediation", "request_id"}
    assert answer.error["remediation"]
    assert answer.error["request_id"] == answer.headers["x-request-id"]


@pytest.mark.proves("L6")
async def test_work_that_is_nowhere_else_holds_a_sandbox_back_until_forced(plane, box):
    async def hold(sandbox):
        return "3 commits on branch fix" if sandbox.id == box["id"] else ""

    plane.services.sandboxes.holds.append(hold)
    try:
        refused = await plane.admin.delete(f"/v1/sandboxes/{box['id']}")
        assert (refused.status, refused.error["code"]) == (409, "conflict")
        assert "3 commits on branch fix" in refused.error["message"]
        assert (await plane.admin.get(f"/v1/sandboxes/{box['id']}"))["state"] == "running"
        forced = await plane.admin.delete(f"/v1/sandboxes/{box['id']}?force=true")
        assert forced["state"] == "deleted"
    finally:
        plane.services.sandboxes.holds.remove(hold)
