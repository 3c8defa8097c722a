"""What ends by itself, what is kept, and what a restart finds again."""

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.domain.errors import Unavailable
from paddock.domain.ids import new_id
from paddock.domain.lifetime import Clockwork
from paddock.domain.records import INSTALLATION_LABEL, SANDBOX_LABEL, SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Ref, SandboxSpec
from paddock.services.reconciler import Reconciler
from paddock.services.verbs import is_lost
from tests.control_plane import disposable, remove_all, running

EVERY_DATABASE = True


@pytest.fixture(scope="module")
async def plane(database):
    async with disposable(database=database) as made:
        yield made


async def make(plane, **lifetime):
    wish = {"template": "plain", "lifetime": lifetime} if lifetime else {"template": "plain"}
    answer = await plane.admin.post("/v1/sandboxes", wish)
    assert answer.status == 201, answer.body
    return answer.body


async def state(plane, box):
    return (await plane.admin.get(f"/v1/sandboxes/{box['id']}")).body


async def look(plane, times=3):
    """More than once: idle is what did nothing between two looks."""
    for _ in range(times):
        await plane.rounds.reaper.look()
        await asyncio.sleep(0.05)


@pytest.mark.proves("L8")
async def test_what_does_nothing_is_stopped_with_its_reason_in_the_events(plane):
    box = await make(plane, idle_timeout_s=1)
    await asyncio.sleep(1.1)
    await look(plane)
    found = await state(plane, box)
    assert (found["state"], found["reason"]) == ("stopped", "idle")
    assert found["detail"] == "no work was seen for 1 s"
    events = await plane.admin.get(f"/v1/events?subject={box['id']}")
    last = events["items"][-1]
    assert (last["kind"], last["data"]["reason"]) == ("sandbox.stopped", "idle")
    assert last["actor"] == "paddock/reaper"


@pytest.mark.proves("L8")
async def test_a_running_command_keeps_it_awake_and_a_look_does_not(plane):
    busy, watched = await make(plane, idle_timeout_s=1), await make(plane, idle_timeout_s=1)
    await plane.admin.post(f"/v1/sandboxes/{busy['id']}/commands", {"cmd": ["sleep", "60"]})
    for _ in range(6):
        for rest in ("", "/ports", "/commands"):
            await plane.admin.get(f"/v1/sandboxes/{watched['id']}{rest}")
        await asyncio.sleep(0.25)
        await plane.rounds.reaper.look()
    await look(plane)
    assert (await state(plane, busy))["state"] == "running"
    assert (await state(plane, watched))["state"] == "stopped"


@pytest.mark.proves("L9")
async def test_keep_alive_and_always_on_are_respected(plane):
    kept = await make(plane, idle_timeout_s=1)
    await plane.admin.call("PATCH", f"/v1/sandboxes/{kept['id']}", {"keep_alive_s": 60})
    always = await make(plane, idle_timeout_s=1, always_on=True)
    await asyncio.sleep(1.1)
    await look(plane)
    assert (await state(plane, kept))["state"] == "running"
    assert (await state(plane, always))["state"] == "running"


async def test_a_deadline_ends_it_even_while_it_works(plane):
    killed = await make(plane, timeout_s=1)
    stopped = await make(plane, timeout_s=1, on_timeout="stop")
    for box in (killed, stopped):
        await plane.admin.post(f"/v1/sandboxes/{box['id']}/commands", {"cmd": ["sleep", "60"]})
    await asyncio.sleep(1.1)
    await look(plane, times=1)
    found = await state(plane, killed)
    assert (found["state"], found["reason"]) == ("deleted", "deadline")
    found = await state(plane, stopped)
    assert (found["state"], found["reason"]) == ("stopped", "deadline")


async def test_what_cannot_be_archived_stays_stopped_without_a_word(plane, caplog):
    box = await make(plane, archive_after_s=1)
    refused = await plane.admin.post(f"/v1/sandboxes/{box['id']}/archive")
    assert refused.status == 409, "first because it runs"
    await plane.admin.post(f"/v1/sandboxes/{box['id']}/stop")
    refused = await plane.admin.post(f"/v1/sandboxes/{box['id']}/archive")
    assert refused.error["code"] == "unsupported"
    await asyncio.sleep(1.1)
    caplog.clear()
    await look(plane)
    assert (await state(plane, box))["state"] == "stopped"
    assert box["id"] not in str([vars(record) for record in caplog.records])


@pytest.mark.proves("L11")
async def test_what_a_provider_lost_is_marked_and_not_forgotten(plane):
    box = await make(plane)
    record = await plane.services.store.read(lambda tx: tx.sandboxes.get("", box["id"]))
    provider = plane.services.providers.get(record.provider)
    await provider.destroy(Ref(record.provider, record.ref))
    await plane.rounds.reconciler.look()
    found = await state(plane, box)
    assert (found["state"], found["reason"]) == ("failed", "provider_lost")
    assert (await plane.admin.delete(f"/v1/sandboxes/{box['id']}"))["state"] == "deleted"


@pytest.mark.proves("L12")
async def test_an_orphan_is_taken_in_and_a_leftover_is_removed(plane):
    services = plane.services
    provider = services.providers.get("")
    installation = str(await services.store.read(lambda tx: tx.values.get("installation")))
    gone = await make(plane)
    await plane.admin.delete(f"/v1/sandboxes/{gone['id']}")
    made = {}
    for name, sandbox_id in (("orphan", new_id("sbx")), ("leftover", gone["id"])):
        labels = {INSTALLATION_LABEL: installation, SANDBOX_LABEL: sandbox_id}
        seen = await provider.create(f"{name}-key", SandboxSpec("plain", labels=labels))
        made[name] = (sandbox_id, seen.ref)
    foreign = await provider.create("foreign-key", SandboxSpec("plain"))
    await patient(plane).look()
    orphan = await plane.admin.get(f"/v1/sandboxes/{made['orphan'][0]}")
    assert (orphan.status, orphan["state"]) == (200, "running")
    assert "taken in" in orphan["detail"]
    left = {found.ref.id async for found in provider.find({})}
    assert made["leftover"][1].id not in left
    assert foreign.ref.id in left, "what is not ours is not touched"
    await provider.destroy(foreign.ref)


def patient(plane) -> Reconciler:
    """One without patience for the young."""
    made: Reconciler = plane.rounds.reconciler
    other = object.__new__(Reconciler)
    other.__dict__.update(made.__dict__, _orphan_grace_s=-1.0)
    return other


async def test_an_orphan_that_is_young_is_left_alone(plane):
    services = plane.services
    provider = services.providers.get("")
    installation = str(await services.store.read(lambda tx: tx.values.get("installation")))
    labels = {INSTALLATION_LABEL: installation, SANDBOX_LABEL: new_id("sbx")}
    await provider.create("young-key", SandboxSpec("plain", labels=labels))
    await plane.rounds.reconciler.look()
    assert (await plane.admin.get(f"/v1/sandboxes/{labels[SANDBOX_LABEL]}")).status == 404


@pytest.mark.proves("L11")
async def test_a_restart_finds_everything_and_finishes_what_was_begun(empty_database):
    place = Path(tempfile.mkdtemp(prefix="pd-"))
    try:
        async with running(place, database=empty_database) as plane:
            box = await make(plane)
            command = await plane.admin.post(
                f"/v1/sandboxes/{box['id']}/commands",
                {"cmd": ["sh", "-c", "for i in $(seq 1 30); do echo $i; sleep 0.05; done"]},
            )
            doomed = await make(plane)
            record = await plane.services.store.read(lambda tx: tx.sandboxes.get("", box["id"]))
            half = await begin(plane, record)
            await begin_deleting(plane, doomed["id"])
        async with running(place, database=empty_database) as plane:
            try:
                assert (await state(plane, box))["state"] == "running"
                path = f"/v1/sandboxes/{box['id']}/commands/{command['id']}/output?format=ndjson"
                text = "".join(
                    [line.get("data", "") async for line in plane.admin.lines("GET", path)]
                )
                assert text == "".join(f"{number}\n" for number in range(1, 31))
                await until(plane, half, "running")
                await until(plane, doomed["id"], "deleted")
                provider = plane.services.providers.get("")
                found = [seen async for seen in provider.find({})]
                assert len(found) == 2, "one that was, one that was begun, and no other"
            finally:
                await remove_all(plane)
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def begin(plane, like: SandboxRecord) -> str:
    """What the record of a creation looks like that never came any further."""
    half = replace(
        like,
        id=new_id("sbx"),
        name="half-made",
        ref="",
        state=SandboxState.CREATING,
        clock=Clockwork(active_at=like.created_at),
        version=0,
    )
    await plane.services.store.write(lambda tx: tx.sandboxes.add(half))
    return half.id


async def begin_deleting(plane, sandbox_id: str) -> None:
    def work(tx):
        current = tx.sandboxes.get("", sandbox_id)
        tx.sandboxes.replace(replace(current, state=SandboxState.DELETING))

    await plane.services.store.write(work)


async def until(plane, sandbox_id: str, expected: str) -> None:
    async with asyncio.timeout(20):
        while (await plane.admin.get(f"/v1/sandboxes/{sandbox_id}"))["state"] != expected:
            await asyncio.sleep(0.05)


async def test_a_look_by_id_shows_when_work_was_last_seen(plane):
    box = await make(plane)
    before = await state(plane, box)
    await asyncio.sleep(1.1)
    await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["true"]})
    await plane.rounds.reaper.look()
    by_id, by_name = await state(plane, box), await plane.admin.get(f"/v1/sandboxes/{box['name']}")
    assert by_id["active_at"] == by_name["active_at"] > before["active_at"]


async def test_an_idle_stop_that_had_to_wait_looks_again(plane):
    box = await make(plane, idle_timeout_s=1)
    await asyncio.sleep(1.1)
    changes = plane.services.inside._changes
    async with changes.alone(box["id"]):  # as a snapshot does
        looking = asyncio.create_task(look(plane))
        await asyncio.sleep(0.5)
        await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["true"]})
    await looking
    assert (await state(plane, box))["state"] == "running"


@pytest.mark.proves("L6")
async def test_a_deadline_with_work_that_is_nowhere_else_stops_instead_of_deleting(plane):
    box = await make(plane, timeout_s=1, on_timeout="kill")
    holds = plane.services.sandboxes.holds

    async def hold(sandbox):
        return "one changed file" if sandbox.id == box["id"] else ""

    holds.append(hold)
    try:
        await asyncio.sleep(1.1)
        await look(plane)
        found = await state(plane, box)
        assert (found["state"], found["reason"]) == ("stopped", "deadline")
        assert "one changed file" in found["detail"]
        await look(plane)
        assert (await state(plane, box))["state"] == "stopped"
    finally:
        holds.remove(hold)


async def test_a_provider_that_is_only_absent_loses_nothing(plane):
    box = await make(plane)
    providers = plane.services.sandboxes._providers
    opened, providers._opened = providers._opened, {}
    providers._absent = {box["provider"]: "its engine is not up yet"}
    try:
        answer = await plane.admin.post(f"/v1/sandboxes/{box['id']}/stop")
        assert (answer.status, answer.body["error"]["code"]) == (503, "provider_unavailable"), (
            answer.body
        )
        assert "not up yet" in answer.body["error"]["message"]
    finally:
        providers._opened, providers._absent = opened, {}
    assert (await state(plane, box))["state"] == "running"


async def test_a_store_that_is_away_for_a_moment_ends_no_round(plane):
    store, rounds = plane.services.store, plane.rounds
    store._closed = True
    try:
        with pytest.raises(Unavailable):  # which the round's loop knows how to take
            await rounds.reaper.look()
        rounds.reconciler._every_s = 0.05
        every = (rounds.reaper, rounds.reconciler, rounds.egress_log)
        going = [asyncio.create_task(each.run()) for each in every]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in going)
    finally:
        store._closed = False
    for task in going:
        task.cancel()
    await asyncio.gather(*going, return_exceptions=True)


async def test_a_key_that_outlives_its_sandbox_is_a_conflict(plane):
    headers = {"Idempotency-Key": new_id("key")}
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain"}, headers=headers)
    await plane.admin.delete(f"/v1/sandboxes/{made['id']}")
    for _ in range(2):
        again = await plane.admin.post("/v1/sandboxes", {"template": "plain"}, headers=headers)
        assert (again.status, again.error["code"]) == (409, "conflict"), again.body
        assert "deleted" in again.error["message"]
        assert "key" in again.error["remediation"]
        await plane.services.store.write(lambda tx: tx.sandboxes.purge(10.0**12, 1000))


async def test_the_end_of_a_background_command_is_told_though_its_sandbox_was_renamed(plane):
    box = await make(plane)
    begun = {"cmd": ["sleep", "0.5"]}
    command = await plane.admin.post(f"/v1/sandboxes/{box['name']}/commands", begun)
    path = f"/v1/sandboxes/{box['id']}"
    assert (await plane.admin.call("PATCH", path, {"name": f"{box['name']}-2"})).status == 200
    ended = []
    async with asyncio.timeout(20):
        while not ended:
            await asyncio.sleep(0.2)
            events = (await plane.admin.get(f"/v1/events?subject={box['id']}&limit=500"))["items"]
            ended = [each for each in events if each["kind"] == "command.ended"]
    assert ended[0]["data"]["command"] == command["id"]


async def test_what_a_verb_did_not_find_is_not_the_sandbox_itself(plane):
    box = await make(plane)
    record = await plane.services.store.read(lambda tx: tx.sandboxes.get("", box["id"]))
    provider = plane.services.providers.get(record.provider)
    assert not await is_lost(provider, record)
    assert await is_lost(provider, replace(record, ref="gone"))
