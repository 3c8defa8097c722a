"""The control plane on real sandboxes of this host."""

import asyncio

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.ids import new_id
from paddock.domain.records import SnapshotRecord
from paddock.ports.provider import Ref
from paddock.wiring.providers import layered
from tests.control_plane import disposable
from tests.engines import local_config

EVERY_DATABASE = True


@pytest.fixture(scope="module")
async def plane(database):
    provider = await LocalProvider.open(local_config())
    await provider.prepare("base")
    async with disposable(provider=lambda _: layered(provider), database=database) as made:
        yield made


@pytest.fixture
async def box(plane):
    wish = {"env": {"COLOUR": "blue"}, "labels": {"k": "v"}}
    answer = await plane.admin.post("/v1/sandboxes", wish)
    assert answer.status == 201, answer.body
    yield answer.body
    await plane.admin.delete(f"/v1/sandboxes/{answer['id']}?force=true")


async def sh(plane, name, script):
    ran = await plane.admin.post(f"/v1/sandboxes/{name}/exec", {"cmd": ["sh", "-c", script]})
    assert ran.status == 200, ran.body
    return ran["stdout"]


@pytest.mark.proves("L1", "P5")
async def test_a_sandbox_is_what_was_asked_for(plane, box):
    assert (await sh(plane, box["id"], "id -un; echo $COLOUR; cat /etc/debian_version"))[:10] == (
        "user\nblue\n"
    )
    used = await plane.admin.get(f"/v1/sandboxes/{box['id']}/metrics")
    assert used["memory_bytes"] > 0


@pytest.mark.proves("N4")
async def test_a_copy_that_differs_in_one_thing_has_the_rest_of_its_source(plane):
    limits = {"cpus": 0.5, "memory_mib": 300, "disk_mib": 400, "pids": 70}
    wish = {"resources": limits, "lifetime": {"idle_timeout_s": 77}}
    made = await plane.admin.post("/v1/sandboxes", wish)
    assert made["resources"] == limits
    path = f"/v1/sandboxes/{made['id']}"
    wish = {"resources": {"memory_mib": 350}, "lifetime": {"always_on": True}}
    copy = await plane.admin.post(f"{path}/fork", wish)
    assert copy["resources"] == {**limits, "memory_mib": 350}
    assert copy["lifetime"] == {**made["lifetime"], "always_on": True}
    kept = await plane.admin.post(f"{path}/snapshots")
    wish = {"snapshot": kept["id"], "resources": {"pids": 80}}
    second = await plane.admin.post("/v1/sandboxes", wish)
    assert second["resources"] == {**limits, "pids": 80}
    for each in (made, copy, second):
        await plane.admin.delete(f"/v1/sandboxes/{each['id']}")
    await plane.admin.delete(f"/v1/snapshots/{kept['id']}")


@pytest.mark.proves("E8")
async def test_a_copy_is_no_way_around_a_policy(plane):
    rule = {"name": "no removing", "verdict": "deny", "command": "rm **"}
    made = await plane.admin.post("/v1/sandboxes", {"command_policy": {"rules": [rule]}})
    path = f"/v1/sandboxes/{made['id']}"
    kept = await plane.admin.post(f"{path}/snapshots")
    copies = [
        await plane.admin.post(f"{path}/fork"),
        await plane.admin.post("/v1/sandboxes", {"snapshot": kept["id"]}),
    ]
    for each in (made, *copies):
        where = f"/v1/sandboxes/{each['id']}"
        refused = await plane.admin.post(f"{where}/exec", {"cmd": ["sh", "-c", "rm x"]})
        assert refused.status == 403, refused.body
        assert "'no removing' of the sandbox's policy" in refused.error["message"]
        await plane.admin.delete(where)
    await plane.admin.delete(f"/v1/snapshots/{kept['id']}")


@pytest.mark.proves("L4")
async def test_pause_keeps_memory_and_stop_keeps_the_disk(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    script = "i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.02; done"
    await plane.admin.post(f"{path}/commands", {"cmd": ["sh", "-c", script]})
    await asyncio.sleep(0.3)
    assert (await plane.admin.post(f"{path}/pause"))["state"] == "paused"
    refused = await plane.admin.post(f"{path}/exec", {"cmd": ["true"]})
    assert refused.status == 409
    assert "resume" in refused.error["remediation"]
    assert (await plane.admin.post(f"{path}/start")).status == 409
    assert (await plane.admin.post(f"{path}/resume"))["state"] == "running"
    before = int(await sh(plane, box["id"], "cat /tmp/count"))
    await asyncio.sleep(0.3)
    assert int(await sh(plane, box["id"], "cat /tmp/count")) > before
    await sh(plane, box["id"], "echo kept > ~/note")
    assert (await plane.admin.post(f"{path}/stop"))["state"] == "stopped"
    assert (await plane.admin.post(f"{path}/start"))["state"] == "running"
    assert await sh(plane, box["id"], "cat ~/note; echo $COLOUR") == "kept\nblue\n"


async def test_an_archived_sandbox_costs_little_and_comes_back_with_its_disk(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    await sh(plane, box["id"], "seq 300000 > ~/numbers; rm -f ~/.profile; chmod 600 ~/numbers")
    refused = await plane.admin.post(f"{path}/archive")
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    await plane.admin.post(f"{path}/stop")
    before = (await plane.admin.get(f"{path}/metrics"))["disk_bytes"]
    archived = await plane.admin.post(f"{path}/archive")
    assert (archived.status, archived["state"]) == (200, "archived"), archived.body
    assert (await plane.admin.post(f"{path}/archive"))["state"] == "archived"
    assert (await plane.admin.get(f"{path}/metrics"))["disk_bytes"] < before / 2
    refused = await plane.admin.post(f"{path}/exec", {"cmd": ["true"]})
    assert refused.status == 409
    assert "start it first" in refused.error["remediation"]
    for verb, body in (("snapshots", {}), ("fork", {}), ("pause", None), ("resume", None)):
        assert (await plane.admin.post(f"{path}/{verb}", body)).status == 409, verb
    assert (await plane.admin.post(f"{path}/stop")).status == 409
    await plane.rounds.reconciler.look()
    assert (await plane.admin.get(path))["state"] == "archived"
    assert (await plane.admin.post(f"{path}/start"))["state"] == "running"
    script = "tail -1 ~/numbers; stat -c %a ~/numbers; ls ~/.profile 2>/dev/null; echo $COLOUR"
    assert await sh(plane, box["id"], script) == "300000\n600\nblue\n"
    events = await plane.admin.get(f"/v1/events?subject={box['id']}")
    kinds = [item["kind"] for item in events["items"] if item["kind"].startswith("sandbox.")]
    assert kinds[-3:] == ["sandbox.stopped", "sandbox.archived", "sandbox.running"]


async def test_what_stays_stopped_is_archived_and_can_be_deleted(plane):
    wish = {"lifetime": {"archive_after_s": 1}}
    kept, gone = [(await plane.admin.post("/v1/sandboxes", wish)).body for _ in range(2)]
    for box in (kept, gone):
        await sh(plane, box["id"], "echo work > ~/work")
        await plane.admin.post(f"/v1/sandboxes/{box['id']}/stop")
    await plane.rounds.reaper.look()
    assert (await plane.admin.get(f"/v1/sandboxes/{kept['id']}"))["state"] == "stopped"
    await asyncio.sleep(1.1)
    await plane.rounds.reaper.look()
    for box in (kept, gone):
        async with asyncio.timeout(30):
            while (await plane.admin.get(f"/v1/sandboxes/{box['id']}"))["state"] != "archived":
                await asyncio.sleep(0.05)
    found = await plane.admin.get(f"/v1/sandboxes/{kept['id']}")
    assert (found["reason"], found["detail"]) == ("idle", "stopped for 1 s")
    started = await plane.admin.post(f"/v1/sandboxes/{kept['id']}/start")
    assert started["state"] == "running", started.body
    assert await sh(plane, kept["id"], "cat ~/work") == "work\n"
    for box in (kept, gone):
        assert (await plane.admin.delete(f"/v1/sandboxes/{box['id']}"))["state"] == "deleted"


@pytest.mark.proves("N1", "N2")
async def test_a_snapshot_is_taken_while_it_runs_and_outlives_its_sandbox(plane):
    source = (await plane.admin.post("/v1/sandboxes", {"env": {"S": "1"}})).body
    await sh(
        plane, source["id"], "echo one > ~/file; mkdir -p ~/node_modules ~/build; touch ~/build/x"
    )
    headers = {"Idempotency-Key": "snap"}
    path = f"/v1/sandboxes/{source['id']}/snapshots"
    taken = await plane.admin.post(path, {"name": "first"}, headers=headers)
    assert taken.status == 201, taken.body
    again = await plane.admin.post(path, {"name": "first"}, headers=headers)
    assert again["id"] == taken["id"]
    assert taken["env_names"] == ["S"]
    await plane.admin.delete(f"/v1/sandboxes/{source['id']}")
    listed = await plane.admin.get(f"/v1/snapshots?sandbox={source['id']}")
    assert [item["id"] for item in listed["items"]] == [taken["id"]]
    made = await plane.admin.post("/v1/sandboxes", {"snapshot": "first"})
    assert made.status == 201, made.body
    # No directory is left out because of its name, and the configuration comes along.
    assert await sh(plane, made["id"], "cat ~/file; ls ~/build; echo $S") == "one\nx\n1\n"
    assert made["env_names"] == ["S"]
    assert (await plane.admin.delete("/v1/snapshots/first")).status == 204
    assert (await plane.admin.get("/v1/snapshots/first")).status == 404
    assert await sh(plane, made["id"], "cat ~/file") == "one\n"
    await plane.admin.delete(f"/v1/sandboxes/{made['id']}")


@pytest.mark.proves("N3", "N5")
async def test_a_restore_builds_the_new_one_first_and_keeps_the_old_disk(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    await sh(plane, box["id"], "echo good > ~/work")
    good = await plane.admin.post(f"{path}/snapshots", {})
    await sh(plane, box["id"], "echo bad > ~/work")
    restored = await plane.admin.post(f"{path}/restore", {"snapshot": good["id"]})
    assert restored.status == 200, restored.body
    assert (restored["id"], restored["name"], restored["state"]) == (
        box["id"],
        box["name"],
        "running",
    )
    assert await sh(plane, box["id"], "cat ~/work; echo $COLOUR") == "good\nblue\n"
    listed = await plane.admin.get(f"/v1/snapshots?sandbox={box['id']}")
    automatic = [item for item in listed["items"] if item["automatic"]]
    assert len(automatic) == 1
    assert automatic[0]["expires_at"] is not None
    back = await plane.admin.post(f"{path}/restore", {"snapshot": automatic[0]["id"]})
    assert back.status == 200
    assert await sh(plane, box["id"], "cat ~/work") == "bad\n"
    missing = await plane.admin.post(f"{path}/restore", {"snapshot": "nothing"})
    assert missing.status == 404
    assert await sh(plane, box["id"], "cat ~/work") == "bad\n"
    for item in (await plane.admin.get(f"/v1/snapshots?sandbox={box['id']}"))["items"]:
        await plane.admin.delete(f"/v1/snapshots/{item['id']}")


@pytest.mark.proves("N4")
async def test_a_fork_goes_its_own_way_with_the_configuration(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    await sh(plane, box["id"], "echo shared > ~/file")
    fork = await plane.admin.post(f"{path}/fork", {"labels": {"copy": "yes"}})
    assert fork.status == 201, fork.body
    assert fork["parent_id"] == box["id"]
    assert fork["labels"] == {"k": "v", "copy": "yes"}
    assert await sh(plane, fork["id"], "cat ~/file; echo $COLOUR; echo mine > ~/file") == (
        "shared\nblue\n"
    )
    assert await sh(plane, box["id"], "cat ~/file") == "shared\n"
    await plane.admin.delete(f"/v1/sandboxes/{fork['id']}")


@pytest.mark.proves("E10")
async def test_a_sandbox_that_dies_under_a_command_says_why(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    record = await plane.services.store.read(lambda tx: tx.sandboxes.get("", box["id"]))
    running = asyncio.create_task(plane.admin.post(f"{path}/exec", {"cmd": ["sleep", "30"]}))
    await asyncio.sleep(0.3)
    provider = plane.services.providers.get(record.provider)
    async for seen in provider.find({}):
        if seen.ref.id == record.ref:
            await provider.destroy(seen.ref)
    answer = await running
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    assert "is failed (provider_lost)" in answer.error["message"]
    assert (await plane.admin.get(path))["reason"] == "provider_lost"


@pytest.mark.proves("L8")
async def test_a_program_that_computes_keeps_its_sandbox_awake_and_one_that_waits_does_not(plane):
    boxes = []
    for script in ("while :; do :; done", "sleep 1000"):
        wish = {"lifetime": {"idle_timeout_s": 1}}
        box = (await plane.admin.post("/v1/sandboxes", wish)).body
        # A service of its own, not a command of anybody.
        await sh(plane, box["id"], f"setsid sh -c '{script}' >/dev/null 2>&1 </dev/null & ")
        boxes.append(box)
    await asyncio.sleep(1.2)
    for _ in range(3):
        await plane.rounds.reaper.look()
        await asyncio.sleep(0.4)
    states = [(await plane.admin.get(f"/v1/sandboxes/{b['id']}"))["state"] for b in boxes]
    assert states == ["running", "stopped"]
    for box in boxes:
        await plane.admin.delete(f"/v1/sandboxes/{box['id']}")


@pytest.mark.proves("N1")
async def test_a_snapshot_that_a_crash_interrupted_is_noted_or_given_up(plane, box):
    services = plane.services
    store, snapshots = services.store, services.snapshots
    sandbox = await store.read(lambda tx: tx.sandboxes.get("", box["id"]))
    begun = [
        SnapshotRecord(new_id("snp"), sandbox.team_id, name, sandbox.provider, 1.0, "", box["id"])
        for name in ("was-taken", "was-not")
    ]
    for record in begun:
        await store.write(lambda tx, record=record: tx.snapshots.add(record))
    provider = services.providers.get(sandbox.provider)
    await provider.snapshot(Ref(sandbox.provider, sandbox.ref), begun[0].id)
    await snapshots.settle()
    assert (await plane.admin.get("/v1/snapshots/was-taken")).status == 200
    assert (await plane.admin.get("/v1/snapshots/was-not")).status == 404
    listed = await plane.admin.get(f"/v1/snapshots?sandbox={box['id']}")
    assert [item["name"] for item in listed["items"]] == ["was-taken"]
    assert (await plane.admin.delete("/v1/snapshots/was-taken")).status == 204


@pytest.mark.proves("K10")
async def test_what_is_set_while_it_is_paused_holds_when_it_goes_on(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    assert (await plane.admin.post(f"{path}/pause")).status == 200
    assert (await plane.admin.call("PUT", f"{path}/env", {"env": {"LATE": "yes"}})).status == 200
    assert (await plane.admin.post(f"{path}/resume")).status == 200
    said = await plane.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", "echo $LATE"]})
    assert said["stdout"] == "yes\n"


async def test_a_time_that_was_set_outlives_a_pause_and_is_refused_while_nothing_runs(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    ends = (await plane.admin.call("PATCH", path, {"timeout_s": 600}))["expires_at"]
    await plane.admin.post(f"{path}/pause")
    await plane.admin.post(f"{path}/resume")
    assert (await plane.admin.get(path))["expires_at"] == ends
    await plane.admin.post(f"{path}/stop")
    refused = await plane.admin.call("PATCH", path, {"timeout_s": 600})
    assert refused.status == 409
    assert "lifetime.timeout_s" in refused.body["error"]["remediation"]
