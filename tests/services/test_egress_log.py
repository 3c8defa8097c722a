"""What gateways saw is stored once, whoever takes it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from paddock.adapters.egress.told import batch_of
from paddock.adapters.store.store import open_store
from paddock.domain.broker.masking import secret_values
from paddock.domain.broker.models import Tokens
from paddock.domain.errors import Unavailable
from paddock.domain.quota import MIB, QuotaName
from paddock.gateway.journal import LARGEST_BATCH, Journal, Key, ModelKey, UseKey
from paddock.ports.clock import SystemClock
from paddock.ports.egress import FlowBatch
from paddock.services.egress_log import WHY_HIDDEN, EgressLog
from paddock.services.spending import Spending
from tests.adapters.store.conftest import place, postgres_place, sqlite_place, store, team
from tests.adapters.store.samples import sandbox

__all__ = ["place", "postgres_place", "sqlite_place", "store", "team"]  # fixtures

pytestmark = pytest.mark.timeout(60)


@dataclass
class Told:
    """What a gateway has recorded, without its process."""

    id: str
    journal: Journal = field(default_factory=Journal)
    together: asyncio.Barrier | None = None
    """Nobody goes on before as many have asked."""

    async def drain(self, stored: Mapping[str, int]) -> FlowBatch | None:
        batch = batch_of(self.id, self.journal.drain(stored.get(self.id, 0)))
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


async def nothing(_sandbox) -> dict[str, str]:
    return {}


def log(store, gateway: Told, inside=nothing) -> EgressLog:
    sources = {"local": gateway}
    return EgressLog(store, SystemClock(), egress=None, sources=sources, inside=inside)


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


async def test_settling_stores_what_came_after_a_batch_that_another_caller_holds(store, box):
    gateway = Told("g1")
    gateway.saw(box, "a.example")
    await gateway.drain({})
    gateway.saw(box, "b.example")
    await log(store, gateway).settle("local")
    assert await spent(store, box) == 1.0


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


@pytest.mark.proves("K9")
async def test_a_value_in_the_name_of_a_host_is_not_kept(store, box):
    """Neither of a name that was asked for, nor of a connection, nor of the use of another secret,
    in events and in the audit log; what somebody wrote into a rule is told as it is."""
    value = "Hunter2-Hunter2-Hunter2"

    async def inside(sandbox) -> dict[str, str]:
        assert sandbox.id == box.id
        return {value: "(TOKEN)"}

    gateway = Told("g1")
    name, ruled = f"{value.lower()}.evil.example", "hunter2hunter2hunter2.example"
    for port, allowed, rule in ((0, False, ""), (443, True, "*.evil.example")):
        key = Key("ref", name, port, allowed=allowed, rule=rule, why=f"no {name}", shown=box.id)
        gateway.journal.add(key, connections=1)
    by_rule = Key("ref", ruled, 443, allowed=True, rule=f"{ruled}:443", shown=box.id)
    gateway.journal.add(by_rule, connections=1)
    gateway.journal.use(UseKey("ref", "other", name, 443, "header", "*.evil.example", "", box.id))
    assert await log(store, gateway, inside).take("local") == 3
    events = await store.read(lambda tx: tx.events.after(0, 100, subject=box.id))
    assert [each.data["host"] for each in events] == [
        "(TOKEN).evil.example",
        "(TOKEN).evil.example",
        ruled,
        "(TOKEN).evil.example",
    ]
    assert events[0].data["why"] == "no (TOKEN).evil.example"
    audited = await store.read(lambda tx: tx.audit.after(0, 100, team_id=box.team_id))
    assert [each.detail["host"] for each in audited] == ["(TOKEN).evil.example"]


@pytest.mark.proves("K9")
async def test_where_values_cannot_be_known_now_hosts_are_hidden_and_nothing_waits(store, box):
    async def inside(_sandbox) -> dict[str, str]:
        raise Unavailable("the vault is closed")

    gateway = Told("g1")
    gateway.saw(box, "a.example")
    why = "no rule allows hunter2.example"
    key = Key("ref", "hunter2.example", 443, allowed=False, why=why, shown=box.id)
    gateway.journal.add(key, connections=1)
    assert await log(store, gateway, inside).take("local") == 2
    hidden = ["egress.allowed (hidden)", "egress.denied (hidden)", "secret.used (hidden)"]
    assert await hosts_on_record(store, box) == sorted([*hidden, "model.used a.example"])
    events = await store.read(lambda tx: tx.events.after(0, 100, subject=box.id))
    assert [each.data["why"] for each in events if "why" in each.data] == [WHY_HIDDEN]
    assert await spent(store, box) == 0.5


async def test_what_a_sandbox_was_lent_is_looked_up_once_for_all_that_has_piled_up(store, box):
    looked_up = []

    async def inside(sandbox) -> dict[str, str]:
        looked_up.append(sandbox.id)
        return {}

    gateway = Told("g1")
    names = [f"{number}.{'x' * 60}.{'y' * 60}.{'z' * 60}.example" for number in range(300)]
    gateway.saw(box, *names)
    assert await log(store, gateway, inside).take("local") == len(names)
    assert gateway.journal.drain(0).number > 2
    assert looked_up == [box.id]


async def test_a_host_in_a_variable_that_is_called_like_a_secret_is_told(store, team):
    env = {"KEYCLOAK_HOST": "keycloak.example.com", "API_KEY": "hunter2-hunter2-hunter2"}
    made = replace(sandbox(team), env=env)
    await store.write(lambda tx: tx.sandboxes.add(made))

    async def inside(sandbox) -> dict[str, str]:
        return secret_values(sandbox.env)

    gateway = Told("g1")
    gateway.saw(made, "keycloak.example.com", "hunter2-hunter2-hunter2.example")
    assert await log(store, gateway, inside).take("local") == 2
    assert set(await hosts_on_record(store, made)) >= {
        "egress.allowed keycloak.example.com",
        "egress.allowed (API_KEY).example",
    }


async def test_what_a_sandbox_causes_is_stored_up_to_its_quota_and_that_is_told_once(store, box):
    """Issue: a sandbox fills the control plane's database."""
    gateway = Told("g1")
    quiet = replace(sandbox(Whose(box.team_id)), name="quiet")

    def limited(tx):
        tx.sandboxes.add(quiet)
        tx.quotas.put(box.team_id, {QuotaName.SANDBOX_EVENTS_MIB: 0.02})

    await store.write(limited)
    taken = log(store, gateway)
    for number in range(15):
        gateway.saw(box, *(f"n{number}-{each}.{'x' * 60}.example" for each in range(5)))
        await taken.take("local")
    size = await store.read(lambda tx: tx.quotas.stored(box.team_id, box.id))
    assert size < 0.02 * MIB + LARGEST_BATCH
    kinds = [each.kind for each in await events_of(store, box)]
    assert kinds.count("quota.reached") == 1
    assert kinds.count("egress.allowed") < 60
    assert await spent(store, box) == 15 * 5 * 0.5, "what models cost is counted all the same"
    audited = await store.read(lambda tx: tx.audit.after(0, 1000, team_id=box.team_id))
    assert len(audited) == 75, "who used a credential is on record all the same"
    gateway.saw(quiet, "a.example")
    await taken.take("local")
    assert await hosts_on_record(store, quiet) == once("a.example"), "a neighbour has its own"


async def test_models_of_an_account_have_an_end(store, box):
    """Programs choose the names: each was a row that nothing removed."""
    gateway = Told("g1")
    for names in (range(290), range(290, 310)):
        for each in names:
            key = ModelKey("ref", account(box), "openai", f"m{each}", shown=box.id)
            gateway.journal.spend(key, Tokens(10, 1), 0.5)
        await log(store, gateway).take("local")
    kept = await store.read(lambda tx: tx.values.all("model-usage."))
    assert len(kept) == 301
    assert await spent(store, box) == 310 * 0.5


async def events_of(store, box):
    return await store.read(lambda tx: tx.events.after(0, 100_000, subject=box.id))


@dataclass
class Whose:
    """A team, as far as records know of it."""

    id: str
