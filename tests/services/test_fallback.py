"""While the provider in use is away, sandboxes are made on another that the operator has named."""

import asyncio
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddock.domain.errors import QuotaExceeded, TimedOut, Unavailable
from paddock.domain.task import TaskState
from paddock.services.commands import Command
from paddock.services.events import Interest
from paddock.settings import ServerConfig, Settings
from paddock.testing.reference import ReferenceProvider
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable, remove_all, running
from tests.tasks.conftest import SETTINGS, Working, at_work, operator

pytestmark = pytest.mark.timeout(120)
WISH = {"template": "plain"}


class Far(SimulatedProvider):
    """A vendor that can be away, or full, or make something and not say so."""

    def __init__(self, place):
        super().__init__(place, "far")
        self.fault = None
        self.is_well = False
        self.is_late = False
        self.asked = 0

    async def check(self):
        seen = await super().check()
        return replace(seen, usable=seen.usable and (self.fault is None or self.is_well))

    async def create(self, key, spec):
        self.asked += 1
        if self.is_late:
            await super().create(key, spec)
            raise TimedOut("no answer within 120 s")
        if self.fault is not None:
            raise self.fault
        return await super().create(key, spec)


class Near(ReferenceProvider):
    """Beside it, with one template only."""

    def __init__(self, place):
        super().__init__(place, "near")
        self.may = asyncio.Event()
        self.may.set()

    async def create(self, key, spec):
        await self.may.wait()
        return await super().create(key, spec)


class Both:
    """A control plane on the two."""

    def __init__(self, outage_s=60.0):
        self.far = self.near = None
        self.settings = Settings(
            server=ServerConfig(outage_s=outage_s), agents=SETTINGS.agents, tasks=SETTINGS.tasks
        )

    def open_far(self, place):
        self.far = Far(place)
        return self.far

    def open_near(self, place):
        self.near = Near(place)
        return self.near

    @property
    def terms(self):
        return {"provider": self.open_far, "fallback": self.open_near, "settings": self.settings}


@pytest.fixture
async def both():
    made = Both()
    async with disposable(**made.terms) as plane:
        made.plane = plane
        made.far.fault = Unavailable("the machine room is dark", remediation="wait for light")
        yield made


async def told(plane, kind, subject=""):
    interest = Interest(subject=subject) if subject else Interest()
    return [
        each for each in await plane.services.events.page(interest, 0, 10_000) if each.kind == kind
    ]


async def diversion(plane):
    return (await plane.admin.get("/v1/system/status"))["diversion"]


async def machines(provider):
    return [each.key async for each in provider.find({})]


@pytest.mark.proves("P15", "P5", "H9")
async def test_a_sandbox_is_made_on_the_fallback_while_the_provider_is_away_and_says_so(both):
    plane = both.plane
    made = await plane.admin.post("/v1/sandboxes", WISH)
    assert (made.status, made["provider"], made["state"]) == (201, "near", "running")
    assert made["detail"] == "made on near, since far is away: the machine room is dark"
    (diverted,) = await told(plane, "sandbox.diverted", made["id"])
    assert (diverted.data["from"], diverted.data["to"]) == ("far", "near")
    assert diverted.data["why"] == "the machine room is dark"
    (noted,) = [
        each
        for each in (await plane.admin.get("/v1/audit"))["items"]
        if each["action"] == "sandbox.divert"
    ]
    assert (noted["subject"], noted["detail"]["to"]) == (made["id"], "near")
    shown = await diversion(plane)
    assert (shown["provider"], shown["fallback"]) == ("far", "near")
    assert shown["why"] == "the machine room is dark"
    assert (await plane.admin.get("/readyz")).status == 200
    again = await plane.admin.post("/v1/sandboxes", WISH)
    assert (again.status, again["provider"], again["detail"]) == (201, "near", made["detail"])
    assert both.far.asked == 1  # what is known to be away is not waited for again
    assert len(await told(plane, "sandbox.diverted", again["id"])) == 1
    assert len(await told(plane, "provider.lost")) == 1


async def test_a_provider_that_is_there_and_could_not_make_one_is_gone_around_once(both):
    both.far.is_well = True
    first = await both.plane.admin.post("/v1/sandboxes", WISH)
    assert first["provider"] == "near", first.body
    assert await diversion(both.plane) is None
    assert not await told(both.plane, "provider.lost")
    both.far.fault = None
    assert (await both.plane.admin.post("/v1/sandboxes", WISH))["provider"] == "far"


@pytest.mark.proves("P15", "H9")
async def test_a_provider_that_is_back_is_used_again_after_a_bounded_time():
    both = Both(outage_s=0.5)
    async with disposable(**both.terms) as plane:
        both.far.fault = Unavailable("dark")
        assert (await plane.admin.post("/v1/sandboxes", WISH))["provider"] == "near"
        await asyncio.sleep(0.6)
        assert (await plane.admin.post("/v1/sandboxes", WISH))["provider"] == "near"
        assert both.far.asked == 1  # it was only asked how it is
        both.far.fault = None
        async with asyncio.timeout(30):
            while await diversion(plane) is not None:
                await asyncio.sleep(0.1)
        back = await plane.admin.post("/v1/sandboxes", WISH)
        assert (back["provider"], back["detail"]) == ("far", "")
        assert await diversion(plane) is None
        assert len(await told(plane, "provider.lost")) == 1
        assert len(await told(plane, "provider.found")) == 1


@pytest.mark.proves("P15", "L2")
async def test_the_same_key_is_the_same_sandbox_also_at_once_and_on_the_fallback(both):
    post = partial(both.plane.admin.post, "/v1/sandboxes", WISH)
    key = {"headers": {"idempotency-key": "one"}}
    answers = await asyncio.gather(*(post(**key) for _ in range(5)))
    both.far.fault = None
    answers.append(await post(**key))
    assert {each["provider"] for each in answers} == {"near"}
    (made,) = {each["id"] for each in answers}
    assert (await machines(both.far), await machines(both.near)) == ([], [made])


@pytest.mark.proves("P15", "H9")
async def test_a_provider_that_was_named_is_respected_and_the_error_says_so(both):
    refused = await both.plane.admin.post("/v1/sandboxes", {**WISH, "provider": "far"})
    assert (refused.status, refused.error["code"]) == (503, "provider_unavailable")
    assert refused.error["message"] == (
        "provider far is away: the machine room is dark; the fallback near is not used, because "
        "provider far was named"
    )
    assert refused.error["remediation"] == "wait for light"
    assert await machines(both.near) == []


@pytest.mark.proves("P15")
async def test_what_is_made_of_a_snapshot_stays_where_that_is(both):
    plane = both.plane
    both.far.fault = None
    made = await plane.admin.post("/v1/sandboxes", WISH)
    path = f"/v1/sandboxes/{made['id']}/snapshots"
    assert (await plane.admin.post(path, {"name": "kept"})).status == 201
    both.far.fault = Unavailable("dark")
    refused = await plane.admin.post("/v1/sandboxes", {"snapshot": "kept"})
    assert refused.status == 503
    assert refused.error["message"].endswith("because snapshot kept is there")


@pytest.mark.proves("P15")
@pytest.mark.parametrize("is_known", [False, True])
async def test_what_the_fallback_cannot_make_gets_the_providers_error_with_that_said(
    both, is_known
):
    if is_known:
        await both.plane.admin.post("/v1/sandboxes", WISH)
    refused = await both.plane.admin.post("/v1/sandboxes", {"template": "special"})
    assert (refused.status, refused.error["code"]) == (503, "provider_unavailable")
    message = refused.error["message"]
    assert message.startswith("provider far is away: the machine room is dark; the fallback near")
    assert "cannot make it either: provider near has no template 'special'" in message
    listed = await both.plane.admin.get("/v1/sandboxes")
    assert len(listed["items"]) == is_known


@pytest.mark.proves("P15")
async def test_one_that_is_full_is_waited_for_and_not_gone_around(both):
    both.far.fault = QuotaExceeded("all 20 machines are taken")
    refused = await both.plane.admin.post("/v1/sandboxes", WISH)
    assert (refused.status, refused.error["code"]) == (429, "quota_exceeded")
    assert refused.headers["retry-after"] == "30"
    assert (await machines(both.near), await diversion(both.plane)) == ([], None)


@pytest.mark.proves("P15", "L12")
async def test_what_the_first_provider_made_after_all_is_removed_and_the_other_stays(both):
    plane = both.plane
    both.far.fault, both.far.is_late = None, True
    made = await plane.admin.post("/v1/sandboxes", WISH)
    assert made["provider"] == "near"
    assert await machines(both.far) == await machines(both.near) == [made["id"]]
    await plane.rounds.reconciler.look()
    assert (await machines(both.far), await machines(both.near)) == ([], [made["id"]])
    who = await operator(plane)
    ran = await plane.services.commands.run(who, made["id"], Command(("echo", "here")))
    assert ran.stdout == b"here\n"


@pytest.mark.proves("P15", "H9")
async def test_a_task_goes_on_elsewhere_while_the_provider_is_away(both):
    async with at_work(both.plane):
        working = Working(both.plane, await operator(both.plane))
        ended = await working.done({"say": "x"})
    assert (ended.state, ended.provider) == (TaskState.COMPLETED, "near")


@pytest.mark.proves("P15")
async def test_a_restart_goes_on_with_what_was_being_made_on_the_fallback():
    place = Path(tempfile.mkdtemp(prefix="pd-"))
    try:
        both = Both()
        async with running(place, **both.terms) as plane:
            both.far.fault = Unavailable("dark")
            both.near.may.clear()
            asked = asyncio.create_task(plane.admin.post("/v1/sandboxes", WISH))
            async with asyncio.timeout(30):
                while not await told(plane, "sandbox.diverted"):
                    await asyncio.sleep(0.02)
            asked.cancel()
        async with running(place, **both.terms) as plane:
            async with asyncio.timeout(30):
                while True:
                    (found,) = (await plane.admin.get("/v1/sandboxes"))["items"]
                    if found["state"] == "running":
                        break
                    await asyncio.sleep(0.05)
            assert (found["provider"], await machines(both.far)) == ("near", [])
            assert found["detail"].startswith("made on near")
            await remove_all(plane)
    finally:
        shutil.rmtree(place, ignore_errors=True)
