"""Memory that gets short: who is let in, who has to go, and what is said about it."""

import pytest

from paddock.domain.errors import Broken, Unavailable
from paddock.domain.pressure import Band, Memory
from paddock.services.admission import Admission
from paddock.services.pressure import Pressure
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


def on(plane, memory):
    """The round of that control plane, on a host with as much memory as a test says."""
    made = object.__new__(Pressure)
    made.__dict__.update(plane.rounds.pressure.__dict__, _memory=lambda: memory[0])
    return made


async def box(plane, **lifetime):
    answer = await plane.admin.post("/v1/sandboxes", {"template": "plain", "lifetime": lifetime})
    return answer["id"]


async def states(plane, *ids):
    return [(await plane.admin.get(f"/v1/sandboxes/{each}"))["state"] for each in ids]


@pytest.mark.proves("L10")
async def test_the_longest_idle_is_stopped_and_the_rest_is_respected(plane):
    memory = [Memory(10_000, 5_000)]
    pressure = on(plane, memory)
    idle, always, busy = await box(plane), await box(plane, always_on=True), await box(plane)
    activity = plane.services.inside._activity
    with activity.working(busy, "command"):
        await pressure.look()
        assert await states(plane, idle, always, busy) == ["running"] * 3
        memory[0] = Memory(10_000, 1_400)
        await pressure.look()
        assert pressure.band is Band.MODERATE
        assert await states(plane, idle, always, busy) == ["stopped", "running", "running"]
        memory[0] = Memory(10_000, 900)
        await pressure.look()
        assert await states(plane, always, busy) == ["stopped", "running"]
        memory[0] = Memory(10_000, 100)
        await pressure.look()
        assert await states(plane, busy) == ["stopped"]
    found = await plane.admin.get(f"/v1/sandboxes/{idle}")
    assert found["reason"] == "evicted"
    assert found["detail"] == "the host had 14 % of its memory left"
    events = await plane.admin.get("/v1/events?subject=host")
    assert [event["data"]["band"] for event in events["items"]] == ["moderate", "high", "critical"]


class Unmeasured(SimulatedProvider):
    """One that cannot say what some of its sandboxes use."""

    def __init__(self, place):
        super().__init__(place)
        self.mute = ""

    async def usage(self, ref):
        if ref.id == self.mute:
            raise Broken("its figures cannot be read")
        return await super().usage(ref)


async def test_one_that_cannot_be_measured_keeps_no_other_from_being_stopped():
    opened = []

    def provider(place):
        opened.append(Unmeasured(place))
        return opened[0]

    async with disposable(provider=provider) as plane:
        mute, idle = await box(plane), await box(plane)
        record = await plane.services.store.read(lambda tx: tx.sandboxes.get("", mute))
        opened[0].mute = record.ref
        pressure = on(plane, [Memory(10_000, 1_400)])
        pressure._here = frozenset({record.provider})
        await pressure.look()
        assert await states(plane, mute, idle) == ["running", "stopped"]


@pytest.mark.proves("L10")
def test_what_is_promised_to_others_is_not_there_for_one_more():
    admission = Admission(lambda: Memory(10_000, 2_000), 800)
    with admission.reserved(), admission.reserved():
        with pytest.raises(Unavailable, match="400 MiB of memory are left"), admission.reserved():
            raise AssertionError("let in")
    with admission.reserved():
        pass


@pytest.mark.proves("L10")
async def test_a_create_is_refused_with_the_figure_when_the_host_is_full(plane):
    admission = plane.services.sandboxes._making._admission
    measured = admission._memory
    admission._memory = lambda: Memory(10_000, 50)
    try:
        refused = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    finally:
        admission._memory = measured
    assert (refused.status, refused.headers["retry-after"]) == (503, "30")
    assert "50 MiB of memory are left" in refused.error["message"]
    assert (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).status == 201
