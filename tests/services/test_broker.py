"""What is bound and what gateways have stay in step, in whichever order they are told."""

import asyncio
import base64
import os
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.store import open_store
from paddock.adapters.vault import VARIABLE, KeyVault
from paddock.domain.broker.binding import Binding, Way
from paddock.domain.broker.models import Prices
from paddock.domain.ids import new_id
from paddock.domain.records import SANDBOX_PREFIX
from paddock.domain.sandbox import SandboxState
from paddock.domain.secret import TEAM_SCOPE, AccessPolicy
from paddock.domain.team import Team
from paddock.services.bindings import Bindings
from paddock.services.broker import Broker
from paddock.services.changes import Changes
from paddock.services.exposing import Exposing
from paddock.services.headers import Headers
from paddock.services.lent import Lent
from paddock.services.recall import Recall
from paddock.services.secrets import Secrets, SecretWish
from paddock.services.spending import Spending
from paddock.services.system import system
from paddock.testing.clock import ManualClock
from tests.domain.test_records import record

TEAM = "tem_a"
WHO = system(TEAM, "test")
KEYS = base64.b64encode(os.urandom(32)).decode()
BINDING = Binding(TEAM, TEAM_SCOPE, "KEY", Way.HEADER, ("api.example",))
pytestmark = pytest.mark.timeout(60)


class Late:
    """A store whose next read is answered when somebody says so, with what there was before."""

    def __init__(self, store, *, is_shared=False):
        self.inner = store
        self.is_shared = is_shared
        self.has_read = asyncio.Event()
        self.goes_on = asyncio.Event()
        self._next = False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def hold(self):
        self._next = True

    async def read(self, look):
        held, self._next = self._next, False
        found = await self.inner.read(look)
        if held:
            self.has_read.set()
            await self.goes_on.wait()
        return found


class Gateway:
    """Has what it was given last."""

    looks_into_tls = True

    def __init__(self):
        self.held = {}
        self.given = []
        self.lacks = []
        self.round = int
        self.meanwhile = None

    async def give(self, ref, mark, credentials):
        values = [each.value for each in credentials]
        self.lacks = [each.lacks for each in credentials]
        self.given.append((self.round(), values))
        self.held[ref] = (mark, values)
        return True

    async def marks(self):
        if self.meanwhile is not None:
            await self.meanwhile()
        return {ref: mark for ref, (mark, _) in self.held.items()}

    async def set_prices(self, prices):
        """They are none of this."""


class Plane:
    """As much of a control plane as keeps credentials in step."""

    def __init__(self, store, place, gateway):
        self.store, self.gateway, clock = store, gateway, ManualClock()
        self.clock, self.guests = clock, Guests()
        vault = KeyVault.open_place(place, {VARIABLE: KEYS})
        self.changes = Changes(store, clock, Recall(store, clock))
        self.secrets = Secrets(store, clock, vault)
        self.bindings = Bindings(store, clock, self.secrets)
        gateways = {"local": gateway} if gateway else {}
        self.broker = Broker(
            *(store, clock, self.secrets, self.bindings),
            changes=self.changes,
            exposing=Exposing(store, clock, self.secrets, self.bindings, guests=self.guests),
            lent=Lent(store, vault, self.secrets),
            networks=None,
            gateways=gateways,
            spending=Spending(store, clock, gateways, Prices({})),
            headers=Headers(store, clock, changes=self.changes, secrets=self.secrets, vault=vault),
            key=b"k" * 32,
        )

    async def sandbox(self, state=SandboxState.RUNNING):
        made = replace(record(state), id=new_id(SANDBOX_PREFIX), team_id=TEAM, ref="r")
        await self.store.write(lambda tx: tx.sandboxes.add(made))
        self.gateway.held["r"] = ("", [])
        return made

    @property
    def values(self):
        return self.gateway.held["r"][1]


class Guests:
    """What the commands of the one sandbox would have."""

    def __init__(self):
        self.env = {}

    async def of(self, _sandbox):
        return self

    async def init(self, env):
        self.env |= env


@pytest.fixture
async def plane(tmp_path):
    async with open_store(tmp_path / "s.db", StoreConfig(exclusive=True)) as made:
        await made.write(lambda tx: tx.teams.add(Team(TEAM, "a", 0.0)))
        plane = Plane(Late(made), tmp_path, Gateway())
        await plane.secrets.put(WHO, "KEY", SecretWish("first"))
        yield plane


async def test_what_was_read_before_a_change_does_not_undo_it(plane):
    await plane.sandbox()
    plane.store.hold()
    early = asyncio.create_task(plane.bindings.load())
    await plane.store.has_read.wait()
    binding = asyncio.create_task(plane.bindings.put(WHO, BINDING))
    await asyncio.sleep(0.1)  # whichever would be first
    plane.store.goes_on.set()
    await asyncio.gather(early, binding)
    assert plane.values == ["first"]
    assert [each.secret for each in await plane.bindings.list(WHO)] == ["KEY"]


async def test_a_value_that_was_looked_up_before_a_change_is_not_what_a_gateway_has_in_the_end(
    plane,
):
    box = await plane.sandbox()
    await plane.bindings.put(WHO, BINDING)
    plane.store.hold()
    giving = asyncio.create_task(plane.broker.give(box))
    await plane.store.has_read.wait()
    changing = asyncio.create_task(plane.secrets.put(WHO, "KEY", SecretWish("second")))
    await asyncio.sleep(0.1)
    plane.store.goes_on.set()
    await asyncio.gather(giving, changing)
    assert plane.values == ["second"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("tok\r\nContent-Length: 40\r\n\r\nGET /admin HTTP/1.1", "of more than one line"),
        ("tok-from-a-file\n", "of more than one line"),
        ("x" * 8193, "8193 characters, and 8192 is the most"),
    ],
)
async def test_a_value_that_cannot_go_into_a_request_is_not_given_when_it_is_set_later(
    plane, value, why
):
    await plane.sandbox()
    await plane.bindings.put(WHO, BINDING)
    assert plane.values == ["first"]
    await plane.secrets.put(WHO, "KEY", SecretWish(value))
    (lacks,) = plane.gateway.lacks
    assert (plane.values, why in lacks) == ([""], True), lacks
    assert "the secret KEY cannot be put into a request" in lacks


async def test_the_audit_log_has_a_binding_as_it_was_and_as_it_is(plane):
    route = Binding(TEAM, TEAM_SCOPE, "KEY", Way.MODEL, (), route="openai", spend_limit_usd=1.0)
    await plane.bindings.put(WHO, route)
    await plane.bindings.put(
        WHO, replace(route, spend_limit_usd=500.0, expires_at=plane.clock.wall() + 60)
    )
    await plane.bindings.remove(WHO, "KEY", Way.MODEL)
    entries = await plane.store.read(lambda tx: tx.audit.after(0, 100, team_id=TEAM))
    first, second, gone = (each.detail for each in entries if each.action != "secret.set")
    assert (first["spend_limit_usd"], first["before"]) == (1.0, None)
    assert (first["route"], first["base_url"]) == ("openai", "https://api.openai.com")
    assert second["before"] == {name: first[name] for name in first if name != "before"}
    assert (second["spend_limit_usd"], second["expires_at"]) == (500.0, plane.clock.wall() + 60)
    assert gone == {name: second[name] for name in second if name != "before"}
    assert "first" not in repr([each.detail for each in entries])


async def test_one_that_was_being_made_while_something_was_bound_has_it_soon(plane):
    await plane.bindings.put(WHO, replace(BINDING, way=Way.BASIC, user="u"))
    box = await plane.sandbox(SandboxState.CREATING)
    await plane.broker.give(box)
    await plane.bindings.put(WHO, BINDING)
    assert plane.values == ["first"]  # nobody knew of it yet
    await runs(plane, box)
    async with kept(plane):
        await until(lambda: plane.values == ["first", "first"])


async def runs(plane, box):
    running = replace(box, state=SandboxState.RUNNING)
    await plane.store.write(lambda tx: tx.sandboxes.replace(running))


@asynccontextmanager
async def kept(plane):
    keeping = asyncio.create_task(plane.broker.run())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def until(true):
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


async def lend(plane, value="first", **more):
    await plane.secrets.put(WHO, "KEY", SecretWish(value, policy=AccessPolicy.AGENT_ACCESS))
    await plane.bindings.put(WHO, replace(BINDING, expose=True, env="KEY", **more))


async def begin(plane, box):
    """As who makes a sandbox does."""
    await plane.broker.inform(box, plane.guests.init)
    await plane.broker.give(box)


async def test_a_value_that_was_changed_while_a_sandbox_was_made_is_inside_soon(plane):
    await lend(plane)
    box = await plane.sandbox(SandboxState.CREATING)
    await begin(plane, box)
    await plane.secrets.put(WHO, "KEY", SecretWish("second"))
    assert plane.guests.env["KEY"] == "first"
    await runs(plane, box)
    async with kept(plane):
        await until(lambda: plane.guests.env["KEY"] == "second" and plane.values == ["second"])


@pytest.mark.proves("K5")
async def test_what_was_unbound_while_a_sandbox_was_made_is_taken_out_soon(plane):
    await lend(plane)
    box = await plane.sandbox(SandboxState.CREATING)
    await plane.broker.inform(box, plane.guests.init)
    await plane.bindings.remove(WHO, "KEY", Way.HEADER)
    await plane.broker.give(box)
    await runs(plane, box)
    async with kept(plane):
        await until(lambda: plane.guests.env["KEY"] == "")


@pytest.mark.proves("K5")
async def test_what_was_unbound_while_a_guest_was_told_is_not_inside(plane):
    await lend(plane)
    box = await plane.sandbox()

    async def slowly(env):
        unbinding.append(asyncio.create_task(plane.bindings.remove(WHO, "KEY", Way.HEADER)))
        await asyncio.sleep(0.2)
        await plane.guests.init(env)

    unbinding = []
    await plane.broker.inform(box, slowly)
    await unbinding[0]
    assert plane.guests.env["KEY"] == ""


@pytest.mark.proves("K5")
async def test_a_value_whose_time_ended_while_nobody_looked_is_taken_out(plane, tmp_path):
    box = await plane.sandbox()
    await lend(plane, expires_at=plane.clock.wall() + 5)
    await begin(plane, box)
    assert plane.guests.env["KEY"] == "first"
    again = Plane(plane.store, tmp_path, None)  # nor does it need a gateway
    again.guests.env |= plane.guests.env
    again.clock.advance(10)
    async with kept(again):
        await until(lambda: again.guests.env["KEY"].startswith("pdk-KEY-"))


async def test_what_another_process_took_away_is_not_given_back_for_long(plane, tmp_path):
    """It looked before that, and gives after it."""
    await plane.sandbox()
    await plane.bindings.put(WHO, BINDING)
    other = Plane(Late(plane.store.inner, is_shared=True), tmp_path, plane.gateway)

    async def meanwhile():
        plane.gateway.meanwhile = None
        await plane.bindings.remove(WHO, "KEY", Way.HEADER)

    plane.gateway.meanwhile = meanwhile
    plane.gateway.round = lambda: len(other.clock.slept)
    async with kept(other):
        # It does not wait for its next round.
        await until(lambda: plane.gateway.given[-3:] == [(1, []), (1, ["first"]), (1, [])])


async def test_variables_that_are_called_like_secrets_are_not_kept_of_what_programs_tell(plane):
    box = replace(await plane.sandbox(), env={"DEPLOY_TOKEN": "token-of-somebody-0123456789"})
    assert await plane.broker.inside(box) == {"token-of-somebody-0123456789": "(DEPLOY_TOKEN)"}
