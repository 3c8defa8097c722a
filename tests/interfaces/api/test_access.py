"""Who is let in, and what another team sees of one's things: nothing."""

import asyncio
import io
from dataclasses import replace

import pytest

from paddock.domain.errors import PaddockError, leaves
from paddock.domain.ids import new_id
from paddock.domain.message import MESSAGE_PREFIX, Message, Mode
from paddock.domain.records import SNAPSHOT_PREFIX, SnapshotRecord
from paddock.domain.task import TASK_PREFIX, TaskRecord
from paddock.domain.task_wish import TaskWish
from paddock.domain.volume import VOLUME_PREFIX, VolumeRecord, VolumeState
from paddock.interfaces.api.errors import STATUS
from paddock.services.ssh_access import AccessWish
from paddock.settings import ServerConfig, Settings
from tests.control_plane import disposable
from tests.interfaces.api.least import asked, required, smallest

EVERY_DATABASE = True


def test_every_error_has_its_answer():
    assert set(STATUS) == set(leaves())


@pytest.mark.proves("U2", "U3")
async def test_nobody_gets_in_without_a_token(plane):
    for token in ("", "nonsense", "tok_01m7gtyyx9nwfrs92mc398zrgh.secret"):
        answer = await plane.client(token).get("/v1/sandboxes")
        assert (answer.status, answer.error["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.proves("U2")
async def test_a_token_is_shown_once_narrowed_and_revoked_at_once(plane):
    made = await plane.admin.post("/v1/tokens", {"name": "ci", "scopes": ["sandboxes:read"]})
    assert made.status == 201
    reader = plane.client(made["token"])
    assert (await reader.get("/v1/sandboxes")).status == 200
    refused = await reader.post("/v1/sandboxes", {"template": "plain"})
    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    listed = await plane.admin.get("/v1/tokens")
    mine = next(item for item in listed["items"] if item["id"] == made["id"])
    assert "token" not in mine
    secret = made["token"].partition(".")[2]
    assert secret not in str(listed.body)
    assert (await plane.admin.delete(f"/v1/tokens/{made['id']}")).status == 200
    assert (await reader.get("/v1/sandboxes")).status == 401


async def test_nobody_gives_what_they_do_not_have(plane):
    other = await plane.team("escalation")
    narrow = await other.post(
        "/v1/tokens", {"name": "n", "role": "admin", "scopes": ["tokens:manage"]}
    )
    holder = plane.client(narrow["token"])
    answer = await holder.post("/v1/tokens", {"name": "wide", "role": "admin"})
    assert answer.status == 400
    assert (await other.post("/v1/teams", {"name": "more"})).status == 403
    assert (await other.post("/v1/tokens", {"name": "x", "team": "default"})).status == 404
    wide = await other.post(
        "/v1/tokens", {"name": "x", "role": "admin", "scopes": ["settings:write"]}
    )
    assert wide.status == 400


@pytest.mark.proves("U1")
async def test_a_second_team_finds_nothing_of_the_first_on_any_route(plane):
    """Every route of the document, with everything that belongs to somebody else."""
    stranger = await plane.team("strangers")
    group = {"identity": "acme/shop"}
    box, aside = [
        (await plane.admin.post("/v1/sandboxes", {"template": "plain", **wish})).body
        for wish in (group, {})
    ]
    put = await plane.admin.call("PUT", f"/v1/quarantine/{aside['id']}", {"why": "odd"})
    assert put.status == 200, put.body
    command = (
        await plane.admin.post(f"/v1/sandboxes/{box['id']}/commands", {"cmd": ["sleep", "60"]})
    )["id"]
    tokens = await plane.admin.get("/v1/tokens")
    admin = await plane.services.access.authenticate(plane.admin.token)
    accesses = plane.services.ssh.accesses
    access, *_ = await accesses.create(admin, box["id"], AccessWish(reveal=True))
    # Of the store alone: this provider keeps none.
    volume = VolumeRecord(
        new_id(VOLUME_PREFIX), admin.team_id, "ours", box["provider"], VolumeState.READY, 0.0
    )
    await plane.services.store.write(lambda tx: tx.volumes.add(volume))
    mine = {
        "sandbox": box["id"],
        "volume": volume.id,
        "access": access.id,
        "command": command,
        "team": admin.team_id,
        "token": tokens["items"][0]["id"],
        "snapshot": await _captured(plane, admin, box),
        "port": 3000,
        "secret": "TOKEN",
        "way": "header",
        "template": "plain",
        "purge": (await plane.admin.post("/v1/purge", {"owner": "nobody"}))["id"],
        "person": (await plane.admin.post("/v1/people", {"name": "Ours"}))["id"],
        "session": (await plane.client("").post("/v1/session", {"token": plane.admin.token}))["id"],
        "identity": "acme/shop",
        "app": "shop",
        "preset": "development",
        "agent": "codex",
        "approval": await asked(plane, box),
        **await _tried(plane, admin),
    }
    egress = {"mode": None, "preset": None, "rules": ["shop.example"], "on_block": None}
    await plane.admin.call("PUT", "/v1/apps/shop/egress", egress)
    await plane.admin.call("PUT", "/v1/secrets/TOKEN", {"value": "x", "sensitive": False})
    bound = {"hosts": ["shop.example"]}
    await plane.admin.call("PUT", "/v1/secrets/TOKEN/bindings/header", bound)
    document = (await plane.admin.get("/v1/openapi.json")).body
    await _check_they_are_there(plane, document, mine)
    tried = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            named = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path"]
            if not named:
                continue
            body = smallest(document, operation)
            ours = mine | ({"sandbox": aside["id"]} if path.startswith("/v1/quarantine") else {})
            where = path.format(**ours) + required(operation)
            answer = await stranger.call(method.upper(), where, body)
            expected = (404,)
            if path.startswith(_INSTALLATIONS):
                # Seen by all who have them, changed by operators.
                expected = (200, 404, 501) if method == "get" else (403, 404, 501)
            # An app is a name in a team: under the same one a stranger sets what is their own.
            if path == "/v1/apps/{app}/egress" and method != "get":
                expected = (200, 204)
            assert answer.status in expected, (method, path, answer.status, answer.body)
            tried += 1
    assert tried >= 20
    assert (await plane.admin.get(f"/v1/sandboxes/{box['id']}"))["state"] == "running"
    assert (await stranger.get("/v1/sandboxes"))["items"] == []
    told = (await stranger.get("/v1/events"))["items"]
    assert {each["kind"] for each in told} == {"egress.changed"}
    assert (await plane.admin.get("/v1/apps/shop/egress")).body == {**egress, "warnings": []}
    assert [each["id"] for each in (await plane.admin.get("/v1/volumes"))["items"]] == [volume.id]
    assert (await stranger.get("/v1/volumes"))["items"] == []
    assert (await stranger.get("/v1/tasks"))["items"] == []
    assert (await plane.admin.get(f"/v1/tasks/{mine['task']}"))["cancelling"] is False
    assert (await plane.admin.get(f"/v1/quarantine/{aside['id']}"))["why"] == "odd"
    assert (await plane.admin.get(f"/v1/snapshots/{mine['snapshot']}")).status == 200
    await plane.services.store.write(lambda tx: tx.snapshots.remove(mine["snapshot"]))
    for each in (box, aside):
        gone = await plane.admin.delete(f"/v1/sandboxes/{each['id']}?force=true")
        assert gone.status == 200, gone.body


async def _tried(plane, admin):
    """Attempts of the store alone, with a message."""
    ids = {"task": new_id(TASK_PREFIX), "message": new_id(MESSAGE_PREFIX), "group": "att_ours"}
    wish = TaskWish("ours", "claude_code")
    task = TaskRecord(
        ids["task"],
        admin.team_id,
        "ours",
        wish,
        created_at=0.0,
        changed_at=0.0,
        attempt_of="att_ours",
    )
    sent = Message(ids["message"], admin.team_id, task.id, "x", Mode.NOW, "us", queued_at=0.0)

    def add(tx):
        tx.tasks.add(task)
        tx.messages.add(sent)

    await plane.services.store.write(add)
    for path in ("/v1/tasks/{task}", "/v1/tasks/{task}/messages/{message}", "/v1/attempts/{group}"):
        assert (await plane.admin.get(path.format(**ids))).status == 200, path
    return ids


_INSTALLATIONS = ("/v1/templates", "/v1/egress/presets", "/v1/agents")
_SHOWN = {
    "access": "/v1/sandboxes/{sandbox}/ssh",
    "agent": "/v1/agents/{agent}",
    "app": "/v1/apps/{app}/egress",
    "approval": "/v1/approvals/{approval}",
    "command": "/v1/sandboxes/{sandbox}/commands/{command}",
    "group": "/v1/attempts/{group}",
    "identity": "/v1/groups/{identity}/overlaps",
    "message": "/v1/tasks/{task}/messages/{message}",
    "person": "/v1/people/{person}",
    "port": "/v1/sandboxes/{sandbox}/ports/{port}",
    "preset": "/v1/egress/presets/{preset}",
    "purge": "/v1/purges/{purge}",
    "sandbox": "/v1/sandboxes/{sandbox}",
    "secret": "/v1/secrets/{secret}",
    "session": "/v1/sessions",
    "snapshot": "/v1/snapshots/{snapshot}",
    "task": "/v1/tasks/{task}",
    "team": "/v1/teams/{team}/quota",
    "template": "/v1/sandboxes/{sandbox}",
    "token": "/v1/tokens",
    "volume": "/v1/volumes",
    "way": "/v1/bindings",
}
"""Where the first team sees that what a route names is there."""


async def _check_they_are_there(plane, document, mine):
    """What is nobody's is found by nobody, whatever a route forgets to ask."""
    operations = [each for path in document["paths"].values() for each in path.values()]
    told = [given for each in operations for given in each.get("parameters", [])]
    named = {given["name"] for given in told if given["in"] == "path"}
    assert named == set(mine) == set(_SHOWN), "say here what it is, and where it is seen"
    for name, path in _SHOWN.items():
        answer = await plane.admin.get(path.format(**mine))
        assert answer.status == 200, (name, answer.body)
        # What is asked for by name need not be told again.
        is_listed = f"{{{name}}}" not in path
        assert not is_listed or str(mine[name]) in str(answer.body), (name, answer.body)


async def _captured(plane, admin, box):
    """Of the store alone, as the volume."""
    copy = SnapshotRecord(
        new_id(SNAPSHOT_PREFIX),
        admin.team_id,
        "ours",
        box["provider"],
        created_at=0.0,
        ref="ours",
        sandbox_id=box["id"],
    )
    await plane.services.store.write(lambda tx: tx.snapshots.add(copy))
    return copy.id


@pytest.mark.proves("U11")
async def test_who_asks_too_often_is_told_when_to_come_back():
    limits = ServerConfig(requests_per_second=1.0, requests_burst=20.0)
    async with disposable(settings=Settings(server=limits)) as plane:
        hasty = await plane.member()
        answers = await asyncio.gather(*(hasty.get("/v1/me") for _ in range(40)))
        slowed = [answer for answer in answers if answer.status == 429]
        assert 1 <= 40 - len(slowed) <= 25
        assert slowed[0].error["code"] == "limit_exceeded"
        assert int(slowed[0].headers["retry-after"]) >= 1
        assert (await plane.admin.get("/v1/me")).status == 200


@pytest.mark.proves("U11")
async def test_a_body_that_is_too_large_is_refused(plane):
    body = io.BytesIO(b'{"name": "' + b"x" * (11 << 20) + b'"}')
    headers = {"content-type": "application/json"}
    answer = await plane.admin.call("POST", "/v1/teams", data=body, headers=headers)
    assert (answer.status, answer.error["code"]) == (413, "too_large")


@pytest.mark.proves("Q1")
async def test_what_is_not_there_answers_in_the_same_shape(plane):
    for method, path in (
        ("GET", "/nowhere"),
        ("PUT", "/v1/sandboxes"),
        ("GET", "/v1/sandboxes/nope"),
    ):
        answer = await plane.admin.call(method, path)
        assert answer.status in (404, 405)
        assert set(answer.error) == {"code", "message", "retryable", "remediation", "request_id"}


def test_an_error_says_nothing_that_it_was_not_told():
    assert PaddockError("x").as_dict() == {
        "code": "internal",
        "message": "x",
        "retryable": False,
        "remediation": "",
    }


@pytest.mark.parametrize(
    ("moment", "shown"),
    [(1e300, "9999-12-31"), (-1e300, "0001-01-01"), (2.6e11, "9999-12-31"), (1e11, "5138-11-16")],
)
async def test_a_date_that_no_calendar_has_is_no_fault_of_the_list(plane, moment, shown):
    made = await plane.admin.post("/v1/tokens", {"name": "odd", "role": "viewer"})

    def change(tx):
        tx.tokens.replace(replace(tx.tokens.get(made["id"]), used_at=moment))

    await plane.services.store.write(change)
    listed = await plane.admin.get("/v1/tokens?limit=500")
    assert listed.status == 200
    (odd,) = [each for each in listed["items"] if each["id"] == made["id"]]
    assert odd["used_at"].startswith(shown)
    assert (await plane.admin.delete(f"/v1/tokens/{made['id']}")).status == 200
