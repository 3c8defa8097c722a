"""Best of several, and what remains of tasks when they are old."""

import asyncio
from dataclasses import replace

import pytest

from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.task import TaskState
from paddock.domain.task_wish import Check, TaskWish, Workspace
from paddock.services.task_attempts import Attempts, Variant
from paddock.services.task_plans import Submission
from paddock.testing.agent import prompt_of
from tests.tasks.conftest import SETTINGS, on_local

S = TaskState


@pytest.fixture
def attempts(working) -> Attempts:
    return working.plane.services.attempts


async def test_of_several_that_try_the_same_one_is_adopted():
    async with on_local(SETTINGS) as working:
        await try_and_adopt(working, working.plane.services.attempts)


async def try_and_adopt(working, attempts):
    source = await working.done({"write": ["a", "old\n"]}, {"say": "made"})
    wish = TaskWish(
        prompt_of({"run": "cat /proc/sys/kernel/random/uuid > a; echo new > b"}, {"say": "done"}),
        "scripted",
        workspace=Workspace(sandbox=source.sandbox_id),
        checks=(Check("there", ("test", "-s", "b")),),
    )
    begun = await attempts.begin(working.who, Submission(wish), [Variant(), Variant(), Variant()])
    group = begun[0].attempt_of
    ended = [await working.ended(each) for each in begun]
    assert {each.state for each in ended} == {S.COMPLETED}
    assert len({each.sandbox_id for each in ended} | {source.sandbox_id}) == 4
    assert [each.id for each in await attempts.of(working.who, group)] == [e.id for e in begun]
    assert await working.read(source, "a") == "old\n"
    chosen = ended[1]
    first, adopted = await asyncio.gather(
        *(attempts.adopt(working.who, chosen.id) for _ in range(2))
    )
    assert first == adopted
    assert (await attempts.adopt(working.who, chosen.id)).id == adopted.id
    assert await working.read(source, "b") == "new\n"
    assert await working.read(source, "a") == await working.read(chosen, "a")
    with pytest.raises(Conflict, match="was adopted before"):
        await attempts.adopt(working.who, ended[0].id)
    await another_instead(working, attempts, ended)
    assert await working.read(source, "b") == "new\n"
    for each in ended:
        await working.plane.services.sandboxes.delete(working.who, each.sandbox_id)


@pytest.mark.proves("H9")
async def test_what_does_not_apply_overwrites_nothing_and_stays_where_it_was_made():
    async with on_local(SETTINGS) as working:
        await adopt_over_a_change(working, working.plane.services.attempts)


async def adopt_over_a_change(working, attempts):
    source = await working.done({"write": ["a", "old\n"]}, {"say": "made"})
    place = Workspace(sandbox=source.sandbox_id)
    steps = prompt_of({"write": ["a", "theirs\n"]}, {"write": ["b", "new\n"]}, {"say": "done"})
    wish = TaskWish(steps, "scripted", workspace=place)
    begun = await attempts.begin(working.who, Submission(wish), [Variant(), Variant()])
    chosen, other = [await working.ended(each) for each in begun]
    await working.done({"write": ["a", "mine\n"]}, {"say": "changed"}, workspace=place)
    with pytest.raises(Conflict, match="does not apply") as refused:
        await attempts.adopt(working.who, chosen.id)
    assert "what the agent made is still there" in refused.value.remediation
    assert (await working.read(source, "a"), await working.read(source, "b")) == ("mine\n", "")
    assert await working.read(chosen, "a") == "theirs\n"
    kept = await working.get(chosen)
    assert (kept.is_adopted, kept.holds_work) == (False, True)
    with pytest.raises(Conflict, match="nowhere else"):
        await working.plane.services.sandboxes.delete(working.who, chosen.sandbox_id)
    # Whoever has settled which of the two holds brings it out then.
    await working.done({"write": ["a", "old\n"]}, {"say": "settled"}, workspace=place)
    assert (await attempts.adopt(working.who, chosen.id)).is_adopted
    assert (await working.read(source, "a"), await working.read(source, "b")) == (
        "theirs\n",
        "new\n",
    )
    for each in (chosen, other):
        await working.plane.services.sandboxes.delete(working.who, each.sandbox_id)


async def another_instead(working, attempts, ended):
    """What was adopted is undone where it was brought, and stays where it was made."""
    other, chosen = ended[0], ended[1]
    source = replace(chosen, sandbox_id=chosen.wish.workspace.fork)
    undone = await working.tasks.revert(working.who, chosen.id)
    assert (undone.is_adopted, undone.holds_work) == (False, True)
    assert (await working.read(source, "a"), await working.read(source, "b")) == ("old\n", "")
    assert await working.read(chosen, "b") == "new\n"
    second = Attempts(attempts._store, attempts._clock, working.tasks, attempts._workspaces)
    taken = await asyncio.gather(
        attempts.adopt(working.who, other.id),
        second.adopt(working.who, chosen.id),  # by another server
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in taken) == ["Conflict", "TaskRecord"]
    group = await attempts.of(working.who, chosen.attempt_of)
    assert [each.id for each in group if each.is_adopted] == [
        each.id for each in taken if not isinstance(each, Conflict)
    ]


async def test_attempts_that_cannot_be_are_refused(working, attempts):
    wish = TaskWish(prompt_of({"say": "x"}), "scripted", workspace=Workspace(template="plain"))
    with pytest.raises(InvalidRequest, match="1 attempts; between 2"):
        await attempts.begin(working.who, Submission(wish), [Variant()])
    with pytest.raises(InvalidRequest, match="no agent 'nobody'"):
        await attempts.begin(working.who, Submission(wish), [Variant(), Variant("nobody")])
    with pytest.raises(NotFound):
        await attempts.of(working.who, "att_none")
    failed = await working.done({"fail": "no"})
    with pytest.raises(NotFound):
        await attempts.adopt(working.who, failed.id)


async def test_what_ended_long_ago_is_forgotten(working):
    task = await working.done({"say": "x"})
    housekeeping = working.plane.rounds.housekeeping
    await housekeeping.look()
    assert (await working.get(task)).id == task.id
    kept, housekeeping.retention = (
        housekeeping.retention,
        replace(housekeeping.retention, tasks_s=-1.0),
    )
    try:
        await housekeeping.look()
    finally:
        housekeeping.retention = kept
    with pytest.raises(NotFound):
        await working.get(task)


async def test_a_task_that_follows_another_does_not_pretend_to_be_elsewhere(working):
    first = await working.done({"say": "a"})
    wish = TaskWish("go on", "", follows=first.id, workspace=Workspace(template="plain"))
    with pytest.raises(InvalidRequest, match="works where that one worked"):
        await working.tasks.create(working.who, Submission(wish))
