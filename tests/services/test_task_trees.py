"""What a sandbox keeps of tasks goes with them, and what nobody knows any more is bounded."""

import os

import pytest

from paddock.adapters.store.store import open_store
from paddock.domain.errors import Conflict
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.services.task_tree import Tree
from paddock.services.task_trees import MOST_UNKNOWN, Trees, _newest_first, to_drop
from tests.services.test_task_tree import Here

LONG_AGO = 1_000_000_000


@pytest.fixture
async def store(tmp_path):
    async with open_store(tmp_path / "s.db") as made:
        await made.write(lambda tx: tx.teams.add(Team("tem_a", "a", 0.0)))
        yield made


async def on_record(store, **states):
    def write(tx):
        for name, state in states.items():
            wish = TaskWish("do it", "command")
            tx.tasks.add(TaskRecord(name, "tem_a", name, wish, 1.0, 1.0, state=state))

    await store.write(write)


@pytest.fixture
def place(tmp_path):
    directory = tmp_path / "home" / "work"
    directory.mkdir(parents=True)
    return Here(tmp_path / "home"), directory


async def worked(place, name, text):
    """A task that writes a file; as its record has it then."""
    guest, directory = place
    tree = Tree(guest, str(directory), name)
    before = await tree.keep("before")
    (directory / "file").write_text(text)
    after = await Tree(guest, str(directory), name, before).keep("after")
    return Tree(guest, str(directory), name, before, after)


def objects(place):
    kept = (place[0].home / ".paddock" / "trees").glob("*.git/objects/??/*")
    return {f"{each.parent.name}{each.name}": each for each in kept}


def age(place):
    for each in objects(place).values():
        os.utime(each, (LONG_AGO, LONG_AGO))


@pytest.mark.proves("T9")
async def test_a_task_that_is_gone_leaves_nothing_and_others_are_still_reverted(place, store):
    first, second = await worked(place, "tsk_a", "one" * 99), await worked(place, "tsk_b", "two")
    age(place)
    await on_record(store, tsk_b=TaskState.COMPLETED)
    before = objects(place)
    await Trees(store, None).tidy(place[0], {"tsk_a"})
    after = objects(place)
    assert first.after in before
    assert first.after not in after
    assert first.before not in after
    with pytest.raises(Conflict, match="not kept"):
        await first.diff()
    assert b"+two" in (await second.diff())[0]
    await second.revert()
    assert (place[1] / "file").read_text() == "one" * 99


async def test_what_a_task_at_work_has_just_made_is_not_taken_away(place, store):
    guest, directory = place
    first = await worked(place, "tsk_a", "one")
    fresh = await Tree(guest, str(directory), "tsk_b").keep("before")
    (directory / "file").write_text("made and not named yet")
    now = await Tree(guest, str(directory), "tsk_b", fresh).now()
    await on_record(store, tsk_b=TaskState.RUNNING)
    await Trees(store, None).tidy(guest, {"tsk_a"})
    assert now in objects(place)
    with pytest.raises(Conflict):
        await Tree(guest, str(directory), "tsk_a").drift("after")
    assert first.after in objects(place)  # its time will come


async def test_so_many_that_nobody_knows_stay_and_all_that_somebody_does(place, store):
    guest, directory = place
    kept = [await worked(place, f"tsk_{n:02}", f"{n}") for n in range(MOST_UNKNOWN + 4)]
    age(place)
    await on_record(store, tsk_00=TaskState.FAILED, tsk_01=TaskState.COMPLETED)
    await Trees(store, None).tidy(guest)
    left = [each for each in kept if each.after in objects(place)]
    assert len(left) == MOST_UNKNOWN + 2
    assert left[:2] == kept[:2]
    await kept[0].revert()
    assert not (directory / "file").exists()


def test_the_oldest_that_nobody_knows_go():
    found = [f"t{n}" for n in range(MOST_UNKNOWN + 3)]
    known = {"t0": TaskState.COMPLETED}
    assert to_drop(found, known, ()) == found[MOST_UNKNOWN + 1 :]
    assert to_drop(["a", "b"], {}, {"b", "c"}) == ["b", "c"]


def test_what_a_program_says_in_the_place_of_a_time_is_no_time():
    listed = "² refs/paddock/a/x\n" + "9" * 5000 + " refs/paddock/b/x\n7 refs/paddock/c/x\n"
    assert _newest_first(listed.encode())[0] == "c"
