"""What gateways saw is stored once, whoever takes it."""

import asyncio
from dataclasses import dataclass, field

import pytest

from paddock.adapters.egress.gateway import batch_of
from paddock.adapters.store.store import open_store
from paddock.domain.broker.models import Tokens
from paddock.gateway.journal import Journal, Key, ModelKey, UseKey
from paddock.ports.clock import SystemClock
from paddock.ports.egress import FlowBatch
from paddock.services.egress_log import EgressLog
from paddock.services.spending import Spending
from tests.adapters.store.conftest import place, postgres_place, sqlite_place, store, team
from tests.adapters.store.samples import sandbox

__all__ = ["place", "postgres_place", "sqlite_place", "store", "team"]  # fixtures

pytestmark = [pytest.mark.timeout(60), pytest.mark.proves("P16")]


@dataclass
class Told:
    """What a gateway has recorded, without its process."""

    id: str
    journal: Journal = field(default_factory=Journal)
    together: asyncio.Barrier | None = None
    """Nobody goes on before as many have asked."""

    async def drain(self, gateway: str, stored: int) -> FlowBatch | None:
        batch = batch_of(self.id, self.journal.drain(stored if gateway == self.id else 0))
        if self.together is not None:
            await self.together.wait()
        return batch

    def saw(self, box, *hosts: str) -> None:
        shown = box.id
        for host in hosts:
            self.journal.add(Key("ref", host, 443, allowed=True, shown=shown), connections=1)
            self.journal.use(UseKey("ref", "token", host, 443, "header", shown=shown))
            key = ModelKey("ref", account(box), "openai", host, shown=shown)
            self.journal.spend(key, Tokens(10, 1), 0.5)


def account(box) -> str:
    return f"{box.team_id}/sandbox {box.id}"


def log(store, gateway: Told) -> EgressLog:
    return EgressLog(store, SystemClock(), egress=None, sources={"local": gateway})


@pytest.fixture
async def box(store, team):
    made = sandbox(team)
    await store.write(lambda tx: tx.sandboxes.add(made))
    return made


async def hosts_on_record(store, box) -> list[str]:
    """Of connections, of uses of a credential, and of models."""
    events = await store.read(lambda tx: tx.events.after(0, 100_000, subject=box.id))
    return sorted(f"{each.kind} {each.data.get('host') or each.data['model']}" for each in events)


async def spent(store, box) -> float:
    return await Spending(store, SystemClock(), {}, shipped=None).spent(account(box))


def once(*hosts: str) -> list[str]:
    kinds = ("egress.allowed", "secret.used", "model.used")
    return sorted(f"{kind} {host}" for kind in kinds for host in hosts)


async def test_two_servers_at_once_store_a_batch_once(store, place, box):
    gateway = Told("g1", together=asyncio.Barrier(2))
    gateway.saw(box, "a.example")
    async with open_store(place) as other:
        both = (log(each, gateway).take("local") for each in (store, other))
        assert sorted(await asyncio.gather(*both)) == [0, 1]
    assert await hosts_on_record(store, box) == once("a.example")
    assert await spent(store, box) == 0.5


async def test_two_gateways_that_follow_each_other_are_told_apart(store, box):
    """A server that upgrades retires the old one, which still tells the server it had before."""
    old, new = Told("g1"), Told("g2")
    old.saw(box, "a.example")
    assert await log(store, old).take("local") == 1
    new.saw(box, "b.example")
    assert await log(store, new).take("local") == 1
    assert await log(store, old).take("local") == 0, "it was not told that this is stored"
    old.saw(box, "c.example")
    assert await log(store, old).take("local") == 1
    assert await log(store, new).take("local") == 0
    assert await hosts_on_record(store, box) == once("a.example", "b.example", "c.example")
    assert await spent(store, box) == 1.5


async def test_what_has_piled_up_is_stored_at_once_and_once(store, place, box):
    """Batches have a bounded size, and two servers take turns with them."""
    gateway = Told("g1")
    names = [f"{number}.{'x' * 60}.{'y' * 60}.{'z' * 60}.example" for number in range(300)]
    gateway.saw(box, *names)
    async with open_store(place) as other:
        both = (log(each, gateway).take("local") for each in (store, other))
        assert sum(await asyncio.gather(*both)) == len(names)
    assert gateway.journal.drain(0).number > 2
    assert await hosts_on_record(store, box) == once(*names)
    assert await spent(store, box) == len(names) / 2
