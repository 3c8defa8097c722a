"""Connections that break: nothing is lost, nothing comes or happens twice."""

import asyncio
import random
from contextlib import aclosing

import pytest

from paddock import AsyncSandbox, Server, Unavailable
from paddock.interfaces.client.events import followed
from tests.interfaces.client.unreliable import seeds, unreliable

LINES = "".join(f"zeile {number} äöü€ {'x' * (number % 50)}\n" for number in range(800)).encode()


@pytest.fixture
async def way(running):
    async with unreliable(running.url) as made:
        yield made


@pytest.fixture
async def server(running, way):
    async with Server(f"http://127.0.0.1:{way.port}", running.token, patience_s=20) as made:
        yield made


@pytest.fixture
async def box(running):
    async with await AsyncSandbox.create("plain", server=running.server()) as made:
        yield made


async def fresh(server, way, box):
    """The sandbox by the breaking way; its next connections break after so many bytes."""
    found = await AsyncSandbox.connect(box.id, server=server)
    await server.aclose()
    return found


@pytest.mark.slow
@pytest.mark.proves("E12")
@pytest.mark.parametrize("seed", seeds(2, 6))
async def test_output_arrives_whole_whatever_breaks(server, way, box, seed):
    chance = random.Random(seed)
    place = (await box.commands.run("pwd")).stdout.strip()
    await box.files.write(f"{place}/lines", LINES)
    found = await fresh(server, way, box)
    command = await found.commands.start("cat lines; sleep 0.2; cat lines >&2; exit 9")
    await server.aclose()
    way.cut_after += [chance.randrange(1, 30_000) for _ in range(8)]
    pieces = {"stdout": b"", "stderr": b""}
    async for piece in command:
        assert piece.offset == len(pieces[piece.stream])
        pieces[piece.stream] += piece.data
    assert pieces == {"stdout": LINES, "stderr": LINES}
    assert (await command.wait()).exit_code == 9
    assert way.cuts > 0


async def test_one_sandbox_is_made_though_the_answer_is_lost(server, way, box):
    await fresh(server, way, box)
    way.cut_after += [1, 1, 20]
    async with await AsyncSandbox.create("plain", labels={"l": "once"}, server=server) as made:
        listed = [each.id async for each in AsyncSandbox.list(labels={"l": "once"}, server=server)]
        assert listed == [made.id]
    assert way.cuts == 3


async def test_what_may_have_been_done_is_not_done_again_but_said(server, way, box):
    found = await fresh(server, way, box)
    way.cut_after += [1]
    with pytest.raises(Unavailable, match="went away during"):
        await found.commands.run("echo once >> log", durable=False)
    assert (await box.commands.run("cat log")).stdout.count("once") <= 1


async def test_a_file_arrives_whole_though_the_answer_is_lost(server, way, box, tmp_path):
    found = await fresh(server, way, box)
    place = (await box.commands.run("pwd")).stdout.strip()
    (tmp_path / "source").write_bytes(LINES)
    way.cut_after += [1, 1]
    await found.files.upload(tmp_path / "source", f"{place}/copy")
    assert await box.files.read_bytes(f"{place}/copy") == LINES


@pytest.mark.proves("U10")
async def test_events_while_a_stream_is_broken_are_heard_also_before_its_first(server, way, box):
    opened = asyncio.Event()
    source = followed(
        server, "/v1/events/stream", {"subject": box.id}, after=None, opened=opened.set
    )
    async with asyncio.timeout(30), aclosing(source) as events:
        first = asyncio.ensure_future(anext(events))
        await opened.wait()
        way.shut()
        await box.set_labels({"while": "broken"})
        way.is_shut = False
        assert (await first).data["name"] == box.name


async def test_patience_ends(running, box):
    async with unreliable(running.url) as way:
        async with Server(
            f"http://127.0.0.1:{way.port}", running.token, patience_s=1.5
        ) as impatient:
            found = await AsyncSandbox.connect(box.id, server=impatient)
            await impatient.aclose()
            way.cut_after += [1] * 1000
            with pytest.raises(Unavailable):
                await found.info()
