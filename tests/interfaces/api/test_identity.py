"""One piece of work, one sandbox; several where that is asked for."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable, running

WISH = {"template": "plain"}


@asynccontextmanager
async def made(client, *wishes):
    answers = [await client.post("/v1/sandboxes", {**WISH, **wish}) for wish in wishes]
    try:
        yield answers
    finally:
        for answer in answers:
            if answer.status == 201:
                await client.delete(f"/v1/sandboxes/{answer['id']}?force=true")


@pytest.mark.proves("L2")
async def test_the_same_identity_is_the_same_sandbox_also_at_once_and_whatever_else_is_asked(plane):
    wishes = [{**WISH, "identity": "acme/shop#42", "env": {"N": str(n)}} for n in range(8)]
    answers = await asyncio.gather(*(plane.admin.post("/v1/sandboxes", wish) for wish in wishes))
    assert {answer.status for answer in answers} == {201}
    assert len({answer["id"] for answer in answers}) == 1
    box = answers[0]
    assert box["identity"] == "acme/shop#42"
    stopped = await plane.admin.post(f"/v1/sandboxes/{box['id']}/stop")
    again = await plane.admin.post("/v1/sandboxes", wishes[0])
    assert (again["id"], again["state"]) == (stopped["id"], "stopped")
    await plane.admin.delete(f"/v1/sandboxes/{box['id']}")
    after = await plane.admin.post("/v1/sandboxes", wishes[0])
    assert after["id"] != box["id"]
    await plane.admin.delete(f"/v1/sandboxes/{after['id']}")


@pytest.mark.proves("L2", "U1")
async def test_an_identity_is_the_teams_own(plane):
    other = await plane.team("identities")
    async with (
        made(plane.admin, {"identity": "x"}) as [mine],
        made(other, {"identity": "x"}) as [theirs],
    ):
        assert mine["id"] != theirs["id"]
        listed = await other.get("/v1/sandboxes?identity=x")
        assert [item["id"] for item in listed["items"]] == [theirs["id"]]


@pytest.mark.proves("L2", "L16")
async def test_several_share_an_identity_when_asked_and_then_it_is_not_clear_which_is_meant(plane):
    wish = {"identity": "issue 7", "another": True}
    async with made(plane.admin, {"identity": "issue 7"}, wish, wish) as answers:
        assert len({answer["id"] for answer in answers}) == 3
        listed = await plane.admin.get("/v1/sandboxes?identity=issue%207")
        assert [item["id"] for item in listed["items"]] == [a["id"] for a in answers[::-1]]
        unclear = await plane.admin.post("/v1/sandboxes", {**WISH, "identity": "issue 7"})
        assert (unclear.status, unclear.error["code"]) == (409, "conflict")
        assert all(answer["name"] in unclear.error["message"] for answer in answers)
        assert "by name" in unclear.error["remediation"]


@pytest.mark.proves("L15")
async def test_one_that_was_lost_is_replaced_and_left_for_who_wants_to_look(plane):
    async with made(plane.admin, {"identity": "lost"}) as [box]:
        [(_, provider)] = list(plane.services.providers)
        async for found in provider.find({"paddock.sandbox": box["id"]}):
            await provider.destroy(found.ref)
        await plane.rounds.reconciler.look()
        lost = await plane.admin.get(f"/v1/sandboxes/{box['id']}")
        assert (lost["state"], lost["reason"]) == ("failed", "provider_lost")
        async with made(plane.admin, {"identity": "lost"}) as [after]:
            assert (after["state"], after["id"] != box["id"]) == ("running", True)


class Slow(ReferenceProvider):
    """Takes its time, until it is told to go on."""

    def __init__(self, place):
        super().__init__(place)
        self.go = asyncio.Event()

    async def create(self, key, spec):
        await self.go.wait()
        return await super().create(key, spec)


@pytest.mark.proves("L16")
async def test_who_waits_for_anothers_creation_waits_so_long_and_it_goes_on():
    opened = []

    def provider(place):
        opened.append(Slow(place))
        return opened[0]

    async with disposable(provider=provider) as plane:
        wish = {**WISH, "identity": "slow"}
        first = asyncio.create_task(plane.admin.post("/v1/sandboxes", wish))
        while not (listed := await plane.admin.get("/v1/sandboxes?identity=slow"))["items"]:
            await asyncio.sleep(0.02)
        waited = await plane.admin.post("/v1/sandboxes", {**wish, "wait_s": 0.2})
        assert (waited.status, waited.error["code"]) == (504, "timed_out")
        name = listed["items"][0]["name"]
        assert f"sandbox {name} is still being made for another caller" in waited.error["message"]
        assert name in waited.error["remediation"]
        patient = asyncio.create_task(plane.admin.post("/v1/sandboxes", wish))
        await asyncio.sleep(0.1)
        opened[0].go.set()
        assert (await first)["id"] == (await patient)["id"] == listed["items"][0]["id"]


@pytest.mark.proves("L2")
async def test_an_identity_is_known_after_a_restart(tmp_path):
    async with running(tmp_path) as plane:
        before = await plane.admin.post("/v1/sandboxes", {**WISH, "identity": "kept"})
    async with running(tmp_path) as plane:
        after = await plane.admin.post("/v1/sandboxes", {**WISH, "identity": "kept"})
        assert after["id"] == before["id"]
        await plane.admin.delete(f"/v1/sandboxes/{after['id']}")
