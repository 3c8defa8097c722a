"""Gateways of other versions that do not answer, as processes: they hold up nobody, and what they
did not hear of is made up for."""

import asyncio
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.adapters.egress.elders import Elder, Elders
from paddock.adapters.egress.talk import connection
from paddock.domain.egress import EgressPolicy, NetworkMode
from paddock.domain.errors import Unavailable
from paddock.gateway import protocol
from tests.adapters.egress.test_elders import ROUTE, Record, old_one, there
from tests.adapters.egress.test_gateway import attached, gateway, pids, place
from tests.upstreams import Upstream

__all__ = ["place", "there"]  # fixtures

pytestmark = pytest.mark.timeout(120)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """It is there, and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process opens nothing more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def set_aside(place: Path) -> None:
    (place / "egress.sock").rename(place / "egress-old.sock")


async def test_an_old_one_that_hangs_takes_nobody_along(place: Path, there: Upstream):
    async with old_one(place, there) as old:
        await old.attach("a")
        await (await old.stream()).ticks()
        old.channel.close()
        async with gateway(place) as one:
            assert await one.attached() == frozenset()
            with stopped(old.process.pid):
                began = time.monotonic()
                async with attached(one):
                    assert await one.change("a", EgressPolicy(NetworkMode.ALLOWLIST))
                    assert await one.give("a", "mark", [])
                    assert await one.marks() == {"a": "mark"}
                    assert await one.wanted() == []
                    await Record(one).take()
                    await one.detach("a")
                    assert await one.attached() == frozenset()
                assert time.monotonic() - began < 8


async def test_what_an_old_one_did_not_hear_of_is_cut_off_there_when_it_answers_again(
    place: Path, there: Upstream
):
    async with old_one(place, there) as old:
        await old.attach("a")
        stream = await old.stream()
        await stream.ticks()
        old.channel.close()
        set_aside(place)
        elders = Elders(place, silent_s=0.5)
        assert await elders.each(Elder.held) == [[]]
        with stopped(old.process.pid):
            assert await elders.each(Elder.held) == []
            assert await elders.each(lambda each: each.tell(protocol.SetRules("a", []))) == []
        await stream.ticks()
        await asyncio.sleep(0.5)
        assert await elders.each(Elder.held) == [[]]
        assert await stream.is_cut()
        elders.close()


async def test_many_that_wait_for_one_that_hangs_wait_once(place: Path, there: Upstream):
    async with old_one(place, there) as old:
        old.channel.close()
        set_aside(place)
        elders = Elders(place, silent_s=0.5)
        with stopped(old.process.pid):
            began = time.monotonic()
            cuts = (elders.each(lambda each, n=n: each.cut(f"{n}")) for n in range(100))
            assert await asyncio.gather(*cuts) == [[]] * 100
            assert time.monotonic() - began < 8
        elders.close()


async def test_one_whose_queue_is_full_is_unavailable_and_not_followed_by_another(place: Path):
    door = place / "egress.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(door))
        listener.listen(0)
        with connection(door):
            with pytest.raises(Unavailable, match="lets nobody in"):
                connection(door, within_s=0.2)
            async with gateway(place) as one:
                assert one.is_there()
                with pytest.raises(Unavailable, match="lets nobody in"):
                    await one.attached()
    assert not pids(place)


async def test_where_no_file_can_be_opened_old_ones_are_asked_again_later(
    place: Path, there: Upstream
):
    async with old_one(place, there) as old:
        await old.attach("a")
        await (await old.stream()).ticks()
        old.channel.close()
        set_aside(place)
        elders = Elders(place)
        assert await elders.each(Elder.greet) == [None]
        with no_more_files():
            assert await elders.each(Elder.held) == [[]], "it is spoken to already"
            for each in elders.all():
                each.close()
            assert await elders.each(Elder.held) == []
        assert await elders.each(Elder.held) == [[]]
        elders.close()


async def test_one_that_answers_what_nobody_understands_fails_nobody(place: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place / "egress-odd.sock"))
        listener.listen()
        listener.setblocking(False)

        async def answer() -> None:
            loop = asyncio.get_running_loop()
            made, _ = await loop.sock_accept(listener)
            with made:
                await loop.sock_recv(made, 1000)
                await loop.sock_sendall(made, b"what?")

        answering = asyncio.create_task(answer())
        elders = Elders(place)
        assert await elders.each(Elder.greet) == []
        await answering
        elders.close()


async def test_what_was_spent_elsewhere_while_credentials_are_given_is_not_forgotten(
    place: Path, there: Upstream
):
    async with old_one(place, there) as old:
        await old.attach("a")
        await old.ask_model(ROUTE)
        await (await old.stream()).ticks()
        old.channel.close()
        async with gateway(place) as one, attached(one):
            record = Record(one)
            while not record.models:
                await record.take()
            (own,) = set(pids(place)) - {old.process.pid}
            with stopped(own):
                giving = asyncio.create_task(one.give("a", "mark", []))
                await asyncio.sleep(0.2)
                taking = asyncio.create_task(record.take())
                await asyncio.sleep(0.2)
            assert await giving
            await taking
            assert await one.marks() == {"a": ""}, "to be given anew, with what was spent"
            await one.detach("a")
