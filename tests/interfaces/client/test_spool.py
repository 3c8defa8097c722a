"""The spool of an SDK user: on disk until acknowledged, in batches, one file for one sandbox."""

import asyncio
import sqlite3

import pytest

from paddock import AsyncSpool, InvalidRequest, NotFound, Sandbox, Server, Spool, Unavailable
from paddock.interfaces.client.events import list_events

NOWHERE = "http://127.0.0.1:9"


async def kept(running, box):
    async with running.server() as server:
        found = list_events(server, box.id, ["custom.note"])
        return [(e.data["source"], e.data["n"], e.data["data"]) async for e in found]


@pytest.fixture
def box(running):
    with Sandbox.create("plain", server=running.server()) as made:
        yield made


@pytest.mark.proves("U8")
async def test_what_is_recorded_without_a_server_is_told_by_the_next_one(running, box, tmp_path):
    path = tmp_path / "deep" / "spool.db"
    async with await AsyncSpool.open(path, box.id, server=Server(NOWHERE, "x")) as spool:
        for n in range(1200):
            assert await spool.record("custom.note", {"n": n}) == n + 1
        with pytest.raises(Unavailable):
            await spool.flush()
        source = spool.source
    async with await AsyncSpool.open(path, box.id, server=running.server()) as again:
        assert again.source == source
        await again.flush()
        assert await again.waiting() == 0
        assert await again.record("custom.note", {"n": 1200}) == 1201
    assert await kept(running, box) == [(source, n + 1, {"n": n}) for n in range(1201)]


@pytest.mark.proves("U8")
async def test_an_acknowledgement_that_was_lost_doubles_nothing(running, box, tmp_path):
    path = tmp_path / "spool.db"
    async with await AsyncSpool.open(path, box.id, server=running.server()) as spool:
        await spool.record("custom.note", {})
        await spool.flush()
        source = spool.source
    with sqlite3.connect(path) as database:  # as if it had died before it could forget
        database.execute("INSERT INTO waiting VALUES (1, 'custom.note', 1.0, '{}')")
    database.close()
    async with await AsyncSpool.open(path, box.id, server=running.server()) as spool:
        await spool.flush()
    assert await kept(running, box) == [(source, 1, {})]


def test_programs_without_an_event_loop_have_one_too(running, box, tmp_path):
    with Spool.open(tmp_path / "s.db", box.id, name="tests", server=running.server()) as spool:
        assert spool.source.startswith("tests:")
        assert spool.record("custom.note", {"a": [1, None]}) == 1
        spool.flush()
        assert spool.waiting() == 0
    assert asyncio.run(kept(running, box)) == [(spool.source, 1, {"a": [1, None]})]


@pytest.mark.proves("U8")
async def test_what_the_server_would_refuse_is_refused_before_it_is_kept(running, box, tmp_path):
    path = tmp_path / "s.db"
    async with await AsyncSpool.open(path, box.id, server=running.server()) as spool:
        for kind, data in (("sandbox.deleted", {}), ("custom.x", {"x": "y" * (1 << 17)})):
            with pytest.raises(InvalidRequest):
                await spool.record(kind, data)
        assert await spool.waiting() == 0
    with pytest.raises(InvalidRequest, match="one file for each sandbox"):
        await AsyncSpool.open(path, "sbx_other", server=running.server())


@pytest.mark.proves("U8")
async def test_events_of_a_sandbox_that_is_not_there_stay_where_they_are(running, tmp_path):
    path = tmp_path / "s.db"
    async with await AsyncSpool.open(path, "sbx_nowhere", server=running.server()) as spool:
        await spool.record("custom.note")
        with pytest.raises(NotFound):
            await spool.flush()
        assert await spool.waiting() == 1
