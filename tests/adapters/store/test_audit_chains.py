"""Logs from before teams had chains of their own: they hold afterwards, and show what was done."""

import dataclasses

import pytest
from sqlalchemy import update

from paddock.adapters.store.schema import audit
from paddock.adapters.store.store import open_store
from paddock.domain.audit import Break, first_break, old_link
from tests.adapters.store.older import back_to
from tests.adapters.store.samples import entry
from tests.databases import by_hand


@pytest.fixture
async def old(bare_place):
    """A log of two teams as the version before has left it; the first has a detail without seal."""
    async with open_store(bare_place) as store:
        names = ["a", "b", "a", "a", "b"]
        told = [entry(name, detail={"name": f"n{at}"}) for at, name in enumerate(names)]
        chain = await store.write(lambda tx: tx.audit.append(told))
        before, rows = chain[0].previous, []
        for one in chain:
            bare = {"seal": "", "salt": ""} if one.seq == 1 else {}
            one = dataclasses.replace(one, previous=before, **bare)
            before = old_link(one)
            rows.append({"previous": one.previous, "hash": before, **bare})
        for at, row in enumerate(rows, start=1):
            change = update(audit).where(audit.c.seq == at).values(**row)
            await store.write(lambda tx, change=change: tx._connection.execute(change) and None)
    await by_hand(bare_place, *back_to("0015"))
    return bare_place


async def test_an_old_log_holds_for_each_team_and_as_a_whole(old):
    async with open_store(old) as store:
        await store.write(lambda tx: tx.audit.append([entry("b"), entry("a")]))
        chain = await store.read(lambda tx: tx.audit.after(0, 100))
        assert [one.team_seq for one in chain] == [1, 1, 2, 3, 2, 3, 4]
        assert first_break(chain) is None
        for team in ("a", "b"):
            ours = await store.read(lambda tx, team=team: tx.audit.after(0, 100, team_id=team))
            assert first_break(ours, team=True) is None


async def test_what_was_done_to_an_old_log_before_still_shows(old):
    await by_hand(old, "UPDATE audit SET actor = 'nobody', detail = '{' WHERE seq = 4")
    async with open_store(old) as store:
        chain = await store.read(lambda tx: tx.audit.after(0, 100))
    assert first_break(chain) == Break(4, "its content was changed")


async def test_entries_from_before_there_were_seals_hold_and_stay(old):
    """Their detail itself is in the chain, so that it cannot be taken out."""
    async with open_store(old) as store:
        assert await store.write(lambda tx: tx.audit.redact("a", ["sbx_1"])) == (2, 1)
        chain = await store.read(lambda tx: tx.audit.after(0, 100))
    assert first_break(chain) is None
    assert [one.detail for one in chain[:3]] == [{"name": "n0"}, {"name": "n1"}, {}]
