"""Gateways of other versions, as processes: nothing that they saw is lost, and whatever is taken
back is taken back there, too."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.gateway import HostGateway
from paddock.adapters.egress.talk import exchanged
from paddock.adapters.egress.told import credential_of
from paddock.adapters.store.store import open_store
from paddock.domain.egress import EgressPolicy, NetworkMode, SourcedRule
from paddock.domain.errors import Unavailable
from paddock.gateway import protocol
from paddock.gateway.protocol import LINGERS, VERSION, Channel, Done
from paddock.ports.egress import Credential, CredentialUse, Flow, FlowBatch, ModelUse, Verdict
from tests.adapters.egress.test_gateway import attached, gateway, pids, place, sockets
from tests.adapters.store.conftest import new_team
from tests.adapters.store.samples import sandbox
from tests.services.test_egress_log import log as egress_log
from tests.services.test_egress_log import spent
from tests.upstreams import Upstream, upstream

__all__ = ["place"]  # a fixture

pytestmark = pytest.mark.timeout(120)

_OLD = """
import sys
from paddock.gateway import gateway, protocol
protocol.VERSION, gateway._ALONE_S, gateway._UNTOLD_S = map(int, sys.argv[1:4])
from paddock.gateway.__main__ import main
main(sys.argv[4:])
"""
_WAITS_FOR_ALL_TO_HANG_UP = """
import asyncio
from paddock.gateway.gateway import Gateway

async def serve(self, listener):
    listener.setblocking(False)
    async with asyncio.TaskGroup() as group:
        accepting = group.create_task(self._accept(listener, group))
        await self._idle.wait()
        accepting.cancel()
        listener.close()

Gateway.serve = serve
"""
"""As those of version 5 do."""
_NEWER = VERSION + 1
_NAME = "a.example"
_POLICY = EgressPolicy(NetworkMode.ALLOWLIST, (SourcedRule(_NAME),))
_MODEL = "http://own.models.paddock.internal/chat/completions"
ROUTE = Credential(
    secret="MODEL",
    placeholder="pdk-MODEL-0123456789",
    hosts=[_NAME],
    way="model",
    value="sk-the-real-key-0123456789",
    route="own",
    dialect="openai",
    account="team/sandbox one",
)


@dataclass
class Old:
    """A gateway of another version, and who had it before."""

    process: asyncio.subprocess.Process
    channel: Channel
    proxy: int = 0
    streams: list["Stream"] = field(default_factory=list)

    async def say(self, said: protocol.Message) -> protocol.Anything:
        return await exchanged(self.channel, said)

    async def attach(self, ref: str, shown: str = "box", **more: float) -> None:
        handed = sockets()
        self.proxy = handed[1].getsockname()[1]
        rules = [protocol.RuleText(_NAME, "sandbox")]
        await self.channel.send(protocol.Attach(ref, rules, shown, **more), handed)
        assert (await self.channel.receive())[0] == Done()
        for each in handed:
            each.close()

    async def stream(self, target: str = f"http://{_NAME}/slow?600", body: bytes = b"") -> "Stream":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy)
        host = target.split("/")[2]
        how = f"POST {target} HTTP/1.1\r\nContent-Length: {len(body)}"
        how = how if body else f"GET {target} HTTP/1.1"
        writer.write(f"{how}\r\nHost: {host}\r\n\r\n".encode() + body)
        self.streams.append(Stream(reader, writer))
        return self.streams[-1]

    async def ask_model(self, route: Credential) -> "Stream":
        """A connection along it, that has been answered once."""
        given = protocol.SetCredentials("a", "first", [credential_of(route)])
        assert await self.say(given) == Done()
        stream = await self.stream(_MODEL, b"{}")
        head = await asyncio.wait_for(stream.reader.readuntil(b"\r\n\r\n"), 10)
        assert b"200" in head.split(b"\r\n")[0]
        return stream

    async def ended(self) -> None:
        await asyncio.wait_for(self.process.wait(), 15)


@dataclass
class Stream:
    """A connection of a program in the sandbox."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ticks(self) -> None:
        await asyncio.wait_for(self.reader.readuntil(b"tick"), 10)

    async def is_cut(self) -> bool:
        try:
            async with asyncio.timeout(10):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


@dataclass
class Record:
    """Who keeps what gateways saw."""

    gateway: HostGateway
    stored: dict[str, int] = field(default_factory=dict)
    batches: list[FlowBatch] = field(default_factory=list)

    async def take(self) -> None:
        while (batch := await self.gateway.drain(self.stored)) is not None:
            if batch.number > self.stored.get(batch.gateway, 0):
                self.stored[batch.gateway] = batch.number
                self.batches.append(batch)
            if not batch.more:
                return

    async def follow(self) -> None:
        while True:
            await self.take()
            await asyncio.sleep(0.1)

    @property
    def flows(self) -> list[Flow]:
        return [flow for each in self.batches for flow in each.flows]

    @property
    def uses(self) -> list[CredentialUse]:
        return [use for each in self.batches for use in each.uses]

    @property
    def models(self) -> list[ModelUse]:
        return [use for each in self.batches for use in each.models]


@pytest.fixture(scope="module")
async def there() -> AsyncIterator[Upstream]:
    async with upstream(_NAME) as made:
        yield made


@pytest.fixture
async def store(tmp_path: Path):
    async with open_store(str(tmp_path / "paddock.db")) as opened:
        yield opened


@asynccontextmanager
async def old_one(
    place: Path,
    there: Upstream,
    version: int = _NEWER,
    *,
    alone_s: int = 60,
    untold_s: int = 60,
    unlike: str = "",
) -> AsyncIterator[Old]:
    """`unlike` is what it does otherwise."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place / "egress.sock"))
        listener.listen()
        config = EgressConfig()
        arguments = [f"--socket-fd={listener.fileno()}", f"--uid={config.gateway_uid}"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", unlike + _OLD, str(version), str(alone_s), str(untold_s)),
            *(*arguments, f"--of={place}"),
            pass_fds=[listener.fileno()],
        )
    talking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    talking.connect(str(place / "egress.sock"))
    old = Old(process, Channel(talking))
    trusted = there.certificate.read_text()
    try:
        for said in (
            protocol.Configure({_NAME: there.address}, []),
            protocol.Trust(trusted[trusted.index("-----BEGIN CERT") :]),
            protocol.SetPrices({"*": (10.0, 10.0, 1.0, 10.0)}),
        ):
            assert await old.say(said) == Done()
        yield old
    finally:
        old.channel.close()
        for each in old.streams:
            each.writer.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


def doors(place: Path) -> list[str]:
    return sorted(each.name for each in place.glob("egress*.sock"))


async def test_what_is_connected_at_the_old_one_goes_on_is_told_of_and_hears_of_changes(
    place: Path, there: Upstream
):
    async with old_one(place, there) as old:
        await old.attach("a")
        stream = await old.stream()
        await stream.ticks()
        old.channel.close()
        async with gateway(place) as one:
            assert await one.attached() == frozenset()
            assert len(pids(place)) == len(doors(place)) == 2
            with pytest.raises(OSError, match="Connect call failed"):
                await old.stream()
            record = Record(one)
            async with attached(one, rules=(_NAME,)):
                await stream.ticks()
                await record.take()
                await record.take()
                first = sum(flow.bytes_down for flow in record.flows)
                assert first > 0
                await asyncio.sleep(0.5)
                await record.take()
                await record.take()
                assert sum(flow.bytes_down for flow in record.flows) > first
                assert await one.change("a", _POLICY)
                await stream.ticks()
                assert await one.change("a", EgressPolicy(NetworkMode.ALLOWLIST))
                assert await stream.is_cut()
                following = asyncio.create_task(record.follow())
                await old.ended()
                following.cancel()
            assert "the rules were changed" in {flow.why for flow in record.flows}
            assert {(flow.ref, flow.sandbox, flow.host) for flow in record.flows} == {
                ("a", "box", _NAME)
            }
            await record.take()
            assert doors(place) == ["egress.sock"]
            await one.detach("a")


async def test_one_that_is_detached_is_so_at_the_old_one(place: Path, there: Upstream):
    async with old_one(place, there) as old:
        await old.attach("a")
        stream = await old.stream()
        await stream.ticks()
        old.channel.close()
        async with gateway(place) as one:
            assert await one.attached() == frozenset()
            await one.detach("a")
            assert await stream.is_cut()
            record = Record(one)
            following = asyncio.create_task(record.follow())
            await old.ended()
            following.cancel()
            assert sum(flow.bytes_down for flow in record.flows) > 0


async def test_a_control_plane_that_comes_later_finds_the_old_one(place: Path, there: Upstream):
    async with old_one(place, there) as old:
        await old.attach("a")
        stream = await old.stream()
        await stream.ticks()
        old.channel.close()
        async with gateway(place) as one:
            assert await one.attached() == frozenset()
        async with gateway(place) as two:
            record = Record(two)
            await record.take()
            assert record.flows, "whoever was there before has kept nothing of it"
            await two.detach("a")
            assert await stream.is_cut()
            following = asyncio.create_task(record.follow())
            await old.ended()
            following.cancel()


async def test_uses_and_spending_are_told_and_credentials_taken_back(place: Path, there: Upstream):
    """A connection that was kept open between two requests is closed: the next one is for who
    knows all that was spent."""
    async with old_one(place, there) as old:
        await old.attach("a")
        stream = await old.ask_model(ROUTE)
        waiting = await old.stream()
        await waiting.ticks()
        old.channel.close()
        async with gateway(place) as one:
            record = Record(one)
            async with attached(one, rules=(_NAME,)):
                assert await stream.is_cut()
                assert await one.give("a", "second", [ROUTE])
                assert await one.marks() == {"a": "second"}
                await record.take()
                await record.take()
                (use,) = record.uses
                (spent,) = record.models
                assert (use.secret, use.count, spent.account) == ("MODEL", 1, "team/sandbox one")
                assert spent.cost > 0
                await record.take()
                assert await one.marks() == {"a": ""}, "to be given anew, with what was spent"
                assert await one.give("a", "third", [])
                assert await one.marks() == {"a": "third"}
                assert await marks_behind(place) == {"a": "third"}
                await one.detach("a")
            following = asyncio.create_task(record.follow())
            await old.ended()
            following.cancel()


async def test_what_the_old_one_saw_is_on_record_once_with_its_uses_and_costs(
    place: Path, there: Upstream, store
):
    made = sandbox(await new_team(store, "ours"))
    await store.write(lambda tx: tx.sandboxes.add(made))
    account = f"{made.team_id}/sandbox {made.id}"
    async with old_one(place, there) as old:
        await old.attach("a", made.id)
        await old.ask_model(replace(ROUTE, account=account))
        old.channel.close()
        async with gateway(place) as one:
            log = egress_log(store, one)
            async with asyncio.timeout(20):
                while old.process.returncode is None:
                    await log.take("local")
                    await asyncio.sleep(0.1)
            assert await log.take("local") == 0
    events = await store.read(lambda tx: tx.events.after(0, 100, subject=made.id))
    kinds = [each.kind for each in events]
    assert (kinds.count("secret.used"), kinds.count("model.used")) == (1, 1)
    audited = await store.read(lambda tx: tx.audit.after(0, 100, team_id=made.team_id))
    assert [each.action for each in audited] == ["secret.used"]
    assert await spent(store, made) > 0


async def marks_behind(place: Path) -> dict[str, str]:
    """What the old one has, as it says itself."""
    (door,) = place.glob("egress-*.sock")
    talking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    talking.connect(str(door))
    channel = Channel(talking)
    here = await exchanged(channel, protocol.Hello())
    channel.close()
    assert isinstance(here, protocol.Here)
    return here.marks


async def test_who_waits_for_an_answer_at_the_old_one_is_asked_about_and_gets_it(
    place: Path, there: Upstream
):
    async with old_one(place, there) as old:
        await old.attach("a", ask_s=60.0)
        stream = await old.stream("http://new.example/")
        await asyncio.sleep(0.3)
        old.channel.close()
        async with gateway(place) as one:
            assert await one.attached() == frozenset()
            (wanted,) = await one.wanted()
            assert (wanted.ref, wanted.sandbox, wanted.host) == ("a", "box", "new.example")
            await one.settle(wanted, Verdict(False, "somebody has denied it", 60))
            said = await asyncio.wait_for(stream.reader.read(), 10)
            assert b"somebody has denied it" in said
            stream.writer.close()
            following = asyncio.create_task(Record(one).follow())
            await old.ended()
            following.cancel()


async def test_one_that_would_hear_of_nothing_is_cut_off_and_tells_all(
    place: Path, there: Upstream
):
    """Before they could be told of changes while they are retired."""
    five = _WAITS_FOR_ALL_TO_HANG_UP
    async with old_one(place, there, LINGERS - 1, unlike=five) as old:
        await old.attach("a")
        stream = await old.stream()
        await stream.ticks()
        old.channel.close()
        async with gateway(place) as one:
            assert await one.attached() == frozenset()
            assert await stream.is_cut()
            record = Record(one)
            following = asyncio.create_task(record.follow())
            await old.ended()
            following.cancel()
            assert sum(flow.bytes_down for flow in record.flows) > 0
            await record.take()
            assert doors(place) == ["egress.sock"]


async def test_one_that_is_retired_and_spoken_to_by_nobody_cuts_its_connections(
    place: Path, there: Upstream
):
    """As by a control plane from before, which leaves it: nobody could take anything back."""
    async with old_one(place, there, alone_s=1, untold_s=4) as old:
        await old.attach("a")
        stream = await old.stream()
        await stream.ticks()
        assert await old.say(protocol.Retire()) == Done()
        assert isinstance(await old.say(protocol.Attach("b", [])), protocol.Failed)
        await stream.ticks()
        old.channel.close()
        assert await stream.is_cut()
        await old.ended()


async def test_who_does_not_know_that_its_gateway_was_retired_finds_the_one_in_force(
    place: Path, there: Upstream
):
    """Another control plane has taken it aside meanwhile."""
    async with old_one(place, there, VERSION) as old, gateway(place) as one:
        await old.attach("a")
        stream = await old.stream()
        await stream.ticks()
        assert await one.attached() == {"a"}
        await taken_aside(place, old)
        assert not await one.change("a", _POLICY), "nobody has attached it to the next one yet"
        assert await one.attached() == frozenset()
        assert len(pids(place)) == 2
        await stream.ticks()
        assert isinstance(await old.say(protocol.Hello()), protocol.Here), "it knows"
        await one.detach("a")
        assert await stream.is_cut()


async def test_a_control_plane_that_was_followed_by_a_newer_one_does_not_retire_its_gateway(
    place: Path, there: Upstream
):
    async with old_one(place, there, VERSION) as old, gateway(place) as one:
        await old.attach("a")
        await (await old.stream()).ticks()
        assert await one.attached() == {"a"}
        await taken_aside(place, old)
        async with old_one(place, there) as newer:
            with pytest.raises(Unavailable, match="a newer control plane has taken over"):
                await one.change("a", _POLICY)
            await newer.attach("b")
            assert len(doors(place)) == 2
            async with gateway(place) as begun:
                assert await begun.attached() == frozenset(), "who begins takes over"


async def taken_aside(place: Path, old: Old) -> None:
    """As by who comes with another version, and speaks through this channel."""
    (place / "egress.sock").rename(place / "egress-aside.sock")
    assert await old.say(protocol.Retire()) == Done()


@pytest.mark.parametrize("cut", ["head", "body"])
async def test_a_request_that_has_begun_is_answered_by_the_old_one(
    place: Path, there: Upstream, cut: str
):
    async with old_one(place, there) as old:
        await old.attach("a")
        stream = await old.ask_model(ROUTE)
        await asyncio.wait_for(stream.reader.read(65536), 10)
        host = _MODEL.split("/")[2]
        request = f"POST {_MODEL} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n{{}}"
        at = request.index("Content") if cut == "head" else len(request) - 1
        stream.writer.write(request[:at].encode())
        await asyncio.sleep(0.3)
        assert await old.say(protocol.Retire()) == Done()
        await asyncio.sleep(0.3)
        stream.writer.write(request[at:].encode())
        head = await asyncio.wait_for(stream.reader.readuntil(b"\r\n\r\n"), 10)
        assert b"200" in head.split(b"\r\n")[0]
        assert await stream.is_cut()
