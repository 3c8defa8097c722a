"""Which ends of commands were told, on both databases."""

from sqlalchemy import text

from paddock.adapters.store.store import open_store
from paddock.domain.event import Event, EventKind
from tests.adapters.store.conftest import new_team
from tests.adapters.store.older import back_to
from tests.adapters.store.samples import next_id, sandbox


async def test_an_end_is_new_once_for_each_team(store, team, others):
    mine, theirs = sandbox(team), sandbox(others)
    await store.write(lambda tx: [tx.sandboxes.add(each) for each in (mine, theirs)] and None)
    for expected in (True, False):
        for each in (mine, theirs):
            assert await store.write(add(each, "cmd_1")) is expected
    assert await store.write(add(mine, "cmd_2"))


async def test_it_is_forgotten_with_its_sandbox_and_none_is_told_of_one_that_is_not_there(
    store, team
):
    box = sandbox(team)
    assert not await store.write(add(box, "cmd_1"))
    await store.write(lambda tx: tx.sandboxes.add(box))
    assert await store.write(add(box, "cmd_1"))
    await store.write(lambda tx: tx.sandboxes.forget(box.id))
    await store.write(lambda tx: tx.sandboxes.add(box))
    assert await store.write(add(box, "cmd_1"))


async def test_what_the_log_tells_is_known_after_an_upgrade(place):
    async with open_store(place) as store:
        team = await new_team(store, "upgraded")
        box, forgotten = sandbox(team), sandbox(team)
        told = [ended(box, "cmd_1"), ended(box, "cmd_1"), ended(forgotten, "cmd_2")]
        await store.write(lambda tx: [tx.sandboxes.add(box), tx.events.append(told)])
        await store.write(older)
    async with open_store(place) as store:
        assert not await store.write(add(box, "cmd_1"))
        assert await store.write(add(box, "cmd_2"))


def add(box, command):
    return lambda tx: tx.ends.note_told(box.team_id, box.id, command)


def ended(box, command):
    data = {"command": command}
    return Event(box.team_id, EventKind.COMMAND_ENDED, box.id, 1000.0, data, next_id("tok"))


def older(tx):
    """As a version before had left it."""
    for statement in back_to("0014"):
        tx._connection.execute(text(statement))
