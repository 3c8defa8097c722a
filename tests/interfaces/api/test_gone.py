"""What was deleted stays as it was, and says so to whoever wants to change it."""

import pytest

from paddock.domain.ids import new_id
from paddock.domain.message import Message, Mode
from paddock.domain.records import SnapshotRecord
from paddock.domain.task import TaskRecord
from paddock.domain.task_wish import TaskWish
from paddock.domain.volume import VolumeRecord, VolumeState
from paddock.services.ssh_access import AccessWish
from tests.control_plane import disposable
from tests.interfaces.api.least import asked, required, smallest


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


@pytest.fixture(scope="module")
async def gone(plane):
    box = await plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "leaving"})
    assert box.status == 201, box.body
    path = f"/v1/sandboxes/{box['id']}"
    who = await plane.services.access.authenticate(plane.admin.token)
    access, *_ = await plane.services.ssh.accesses.create(who, box["id"], AccessWish(reveal=True))
    made = {
        "command": (await plane.admin.post(f"{path}/commands", {"cmd": ["true"]}))["id"],
        "access": access.id,
        "approval": await asked(plane, box),
    }
    for each in (f"{path}/ssh", path):
        assert (await plane.admin.delete(each)).status == 200, each
    return box.body | made


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("PATCH", "", {"name": "another", "labels": {"a": "b"}}),
        ("PUT", "/env", {"env": {"A": "1"}}),
        ("POST", "/ports/80/links", {}),
        ("DELETE", "/links", None),
        ("PUT", "/policy", {"default": "deny", "rules": []}),
        ("PUT", "/egress", {"mode": "none"}),
        ("GET", "/metrics", None),
        ("POST", "/start", {}),
        ("POST", "/exec", {"cmd": ["true"]}),
    ],
)
async def test_nothing_of_a_deleted_sandbox_can_be_changed(plane, gone, method, rest, body):
    answer = await plane.admin.call(method, f"/v1/sandboxes/{gone['id']}{rest}", body)
    assert answer.status == 409, (answer.status, answer.body)
    error = answer.body["error"]
    assert "leaving" in error["message"]
    assert error["remediation"]
    after = await plane.admin.get(f"/v1/sandboxes/{gone['id']}")
    assert (after["state"], after["name"], after["labels"]) == ("deleted", "leaving", {})


_MAKES_IT = {
    ("put", "/v1/secrets/{secret}"),
    ("put", "/v1/apps/{app}/egress"),
    ("put", "/v1/egress/presets/{preset}"),
}
"""What has a name only is made by it, as before it was deleted."""
_NEVER_GONE = {"agent", "purge", "team"}
_OUTLIVE_IT = {
    ("post", "/v1/sandboxes/{sandbox}/events"): "what happened in it may be told late",
}
_QUESTIONS = ("/policy/check", "/egress/test")
_LASTING = ("/v1/templates/{template}/policy", "/v1/templates/{template}/egress")
"""Rules for a name, whether or not there is a template of it."""


_REFUSED_ANYWAY = (426, 501)
"""A terminal that is no WebSocket, and what this provider does not have."""


@pytest.mark.proves("Q1")
async def test_no_route_does_anything_to_what_was_deleted(plane, gone):
    """Every route of the document that names an object, with one that is gone."""
    ours = await deleted(plane, gone)
    document = (await plane.admin.get("/v1/openapi.json")).body
    tried, problems = set(), []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            given = operation.get("parameters", [])
            named = {each["name"] for each in given if each["in"] == "path"}
            is_other = (method, path) in _MAKES_IT or (method, path) in _OUTLIVE_IT
            if not named - _NEVER_GONE or is_other or path in _LASTING:
                continue
            assert named <= set(ours), f"say here what {named - set(ours)} is, and delete it"
            where = path.format(**ours) + required(operation)
            before = await written(plane)
            answer = await plane.admin.call(method.upper(), where, smallest(document, operation))
            tried |= named
            asks = method in ("get", "delete") or path.endswith(_QUESTIONS)
            if why := _wrong(answer, asks=asks, is_same=before == await written(plane)):
                problems.append(
                    f"{method.upper()} {path}: {why}: {answer.status} {answer.body!r:.300}"
                )
    assert not problems, "\n".join(problems)
    assert tried == set(ours), "each was tried"


def _wrong(answer, *, asks, is_same):
    if not is_same:
        return "something was written"
    if answer.status in (404, 409, 410, *_REFUSED_ANYWAY):
        return "" if answer.error["remediation"] else "it does not say what to do"
    # What is gone may be looked at, and is gone when it is deleted again.
    return "" if answer.status in (200, 204) and asks else "it is not refused"


async def written(plane):
    """The last that the logs have."""
    return await plane.services.store.read(lambda tx: (tx.events.last_seq(), tx.audit.head()))


_OF_THE_STORE = {"task": "tsk", "message": "msg", "snapshot": "snp", "volume": "vol"}


def come_and_go(tx, team_id, ids):
    """Of the store alone: this provider keeps none."""
    wish = TaskWish("x", "codex")
    task = TaskRecord(ids["task"], team_id, "a", wish, 0.0, 0.0, attempt_of="att_leaving")
    tx.tasks.add(task)
    tx.messages.add(Message(ids["message"], team_id, task.id, "x", Mode.NOW, "us", queued_at=0.0))
    tx.tasks.remove([task.id])
    tx.snapshots.add(SnapshotRecord(ids["snapshot"], team_id, "a", "reference", 0.0, ref="a"))
    tx.snapshots.remove(ids["snapshot"])
    ready = VolumeState.READY
    tx.volumes.add(VolumeRecord(ids["volume"], team_id, "a", "reference", ready, 0.0))
    tx.volumes.remove(ids["volume"])


async def deleted(plane, gone):
    admin, store = plane.admin, plane.services.store
    kept = {name: new_id(prefix) for name, prefix in _OF_THE_STORE.items()}
    who = await plane.services.access.authenticate(admin.token)
    session = await plane.client("").post("/v1/session", {"token": admin.token})
    token = await admin.post("/v1/tokens", {"name": "leaving"})
    person = await admin.post("/v1/people", {"name": "Leaving"})
    for path in (f"tokens/{token['id']}", f"people/{person['id']}", f"sessions/{session['id']}"):
        assert (await admin.delete(f"/v1/{path}")).status in (200, 204), path
    await admin.call("PUT", "/v1/secrets/LEAVING", {"value": "x"})
    await admin.call("PUT", "/v1/secrets/LEAVING/bindings/header", {"hosts": ["a.example"]})
    for path in ("/v1/secrets/LEAVING/bindings/header", "/v1/secrets/LEAVING"):
        assert (await admin.delete(path)).status in (200, 204), path
    wish = {"mode": None, "preset": None, "rules": ["a.example"], "on_block": None}
    for path in ("/v1/apps/leaving/egress", "/v1/egress/presets/leaving"):
        assert (await admin.call("PUT", path, wish)).status == 200, path
        assert (await admin.delete(path)).status in (200, 204), path
    await store.write(lambda tx: come_and_go(tx, who.team_id, kept))
    return {
        "sandbox": gone["id"],
        "token": token["id"],
        "person": person["id"],
        "session": session["id"],
        "secret": "LEAVING",
        "way": "header",
        "app": "leaving",
        "preset": "leaving",
        "template": "leaving",
        "identity": "leaving",
        "port": 3000,
        "group": "att_leaving",
        **{name: gone[name] for name in ("command", "access", "approval")},
        **kept,
    }
