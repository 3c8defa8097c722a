"""What is in force for a sandbox is what should be, whoever was asked last."""

import asyncio
from dataclasses import replace

import pytest

from paddock.adapters.store.store import open_store
from paddock.domain.egress import EgressPolicy, EgressWish, NetworkMode
from paddock.domain.errors import Unavailable
from paddock.domain.ids import new_id
from paddock.domain.records import SANDBOX_PREFIX
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Team
from paddock.services.changes import Changes
from paddock.services.enforcing import Enforcing
from paddock.services.networks import fit
from paddock.services.recall import Recall
from paddock.testing.clock import ManualClock
from tests.domain.test_records import record

pytestmark = pytest.mark.timeout(60)
TEAM = "tem_a"


class Provider:
    """Enforces what it was asked for last; each call can be held up, or fail."""

    def __init__(self):
        self.asked = []
        self.turn = asyncio.Event()
        self.turn.set()
        self.fails = False

    def get(self, _name):
        return self

    async def set_egress(self, _ref, policy):
        await self.turn.wait()
        if self.fails:
            raise Unavailable("it is away")
        self.asked.append(policy.mode)


def wanted(sandbox):
    return EgressPolicy(sandbox.egress.mode)


@pytest.fixture
async def world(tmp_path):
    async with open_store(tmp_path / "s.db") as store:
        await store.write(lambda tx: tx.teams.add(Team(TEAM, "a", 0.0)))
        clock, provider = ManualClock(), Provider()
        changes = Changes(store, clock, Recall(store, clock))
        yield store, provider, Enforcing(store, changes, provider, policy=wanted)


async def add(store, state=SandboxState.RUNNING):
    made = replace(
        record(state, egress=EgressWish(NetworkMode.ALLOWLIST)),
        id=new_id(SANDBOX_PREFIX),
        team_id=TEAM,
        ref="r",
    )
    await store.write(lambda tx: tx.sandboxes.add(made))
    return made


async def change(store, sandbox, mode):
    changed = replace(sandbox, egress=EgressWish(mode))
    return await store.write(lambda tx: tx.sandboxes.replace(changed))


@pytest.mark.proves("P16")
async def test_a_round_that_began_before_a_change_does_not_undo_it(world):
    store, provider, enforcing = world
    box = await add(store)
    provider.turn.clear()
    everybody = asyncio.create_task(enforcing.all(lambda _sandbox: True))
    await asyncio.sleep(0.1)  # it has read the record
    changed = await change(store, box, NetworkMode.NONE)
    nearer = asyncio.create_task(enforcing.one(changed))
    provider.turn.set()
    await asyncio.gather(everybody, nearer)
    assert provider.asked[-1] is NetworkMode.NONE
    late = replace(box)  # whoever comes last with what was
    await enforcing.one(late)
    assert provider.asked[-2:] == [NetworkMode.ALLOWLIST, NetworkMode.NONE]


async def test_who_could_not_is_asked_again(world):
    store, provider, enforcing = world
    await add(store)
    gone = await add_gone(store)
    provider.fails = True
    await enforcing.all(lambda _sandbox: True)
    await enforcing.again()
    assert provider.asked == []
    provider.fails = False
    await enforcing.again()
    await enforcing.again()
    assert provider.asked == [NetworkMode.ALLOWLIST]
    await enforcing.one(gone)
    assert provider.asked == [NetworkMode.ALLOWLIST]


async def test_one_that_could_not_and_was_told_so_is_asked_again(world):
    store, provider, enforcing = world
    box = await add(store)
    provider.fails = True
    with pytest.raises(Unavailable):
        await enforcing.one(box)
    provider.fails = False
    await enforcing.again()
    await enforcing.again()
    assert provider.asked == [NetworkMode.ALLOWLIST]


async def test_a_round_that_was_broken_off_is_made_again(world):
    store, provider, enforcing = world
    await add(store)

    away = [Unavailable("the store is away")]

    def concerned(_sandbox):
        if away:
            raise away.pop()
        return True

    with pytest.raises(Unavailable):
        await enforcing.all(concerned)
    assert provider.asked == []
    await enforcing.again()
    await enforcing.again()
    assert provider.asked == [NetworkMode.ALLOWLIST]


async def add_gone(store):
    made = replace(record(SandboxState.DELETED), id=new_id(SANDBOX_PREFIX), team_id=TEAM, ref="q")
    await store.write(lambda tx: tx.sandboxes.add(replace(made, name="gone")))
    return made


class _Networks:
    def __init__(self, enforcing):
        self._enforcing = enforcing

    async def apply(self, sandbox, *, is_waking):
        assert is_waking
        await self._enforcing.one(sandbox)

    def policy(self, sandbox):
        return wanted(sandbox)


@pytest.mark.proves("P16")
async def test_one_that_was_being_made_has_what_was_wanted_meanwhile(world):
    store, provider, enforcing = world
    box = await add(store, SandboxState.CREATING)
    await enforcing.one(box)
    assert provider.asked == [], "there is nothing yet"
    begun = wanted(box)
    changed = await change(store, box, NetworkMode.NONE)
    running = replace(changed, state=SandboxState.RUNNING)
    await store.write(lambda tx: tx.sandboxes.replace(running))
    await fit(_Networks(enforcing), running, begun)
    await fit(_Networks(enforcing), running, wanted(running))
    assert provider.asked == [NetworkMode.NONE]
