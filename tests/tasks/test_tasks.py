"""Tasks from their beginning to their end, with an agent that does what its prompt says."""

import asyncio
from dataclasses import replace

import pytest

from paddock.domain.errors import Conflict, InvalidRequest, Unsupported
from paddock.domain.message import MessageState, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState
from paddock.domain.task_wish import Check, GivenFile, TaskWish, Workspace
from paddock.services.task_plans import Submission
from paddock.testing.agent import prompt_of
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable
from tests.tasks.conftest import SETTINGS, Working, at_work, command, operator

S = TaskState
SPOKE = {"output_tokens": 3, "reasoning_tokens": 2}


@pytest.mark.proves("T1", "T2", "R5", "T6")
async def test_a_task_runs_to_its_end_and_tells_what_came_of_it(working):
    task = await working.done(
        {"say": "I will write a file."},
        {"write": ["a/hello.txt", "hello\n"]},
        {"usage": {"input_tokens": 10, "cached_tokens": 4, **SPOKE, "cost_usd": 0.5}},
        {"say": "It is there."},
    )
    assert (task.state, task.reason, task.detail) == (S.COMPLETED, None, "")
    assert task.result.message == "It is there."
    assert [(each.path, each.kind, each.added) for each in task.result.files] == [
        ("a/hello.txt", "added", 1)
    ]
    assert (task.spent.tokens, task.spent.cost_usd, task.spent.turns) == (13, 0.5, 2)
    assert (task.spent.output_tokens, task.spent.reasoning_tokens) == (3, 2)
    assert await working.read(task, "a/hello.txt") == "hello\n"
    kinds = [each.kind for each in await working.events(task)]
    states = [kind for kind in kinds if kind.startswith("task.") and kind != "task.phase"]
    assert states == [
        f"task.{each}" for each in ("pending", "creating", "running", "completing", "completed")
    ]
    phases = [each.data["phase"] for each in await working.events(task, "task.phase")]
    assert phases[:4] == ["sandbox", "setup", "sync_in", "checkpoint"]
    assert task.phase == "sync_out"
    assert [kind for kind in kinds if kind.startswith("agent.")] == [
        "agent.started",
        "agent.message",
        "agent.tool_call",
        "agent.file_edited",
        "agent.tool_result",
        "agent.usage",
        "agent.message",
        "agent.completed",
    ]
    text, is_cut = await working.tasks.diff(working.who, task.id)
    assert not is_cut
    assert b"+hello" in text


async def test_what_an_agent_wrote_is_kept_as_it_wrote_it(working):
    task = await working.done({"say": "one"}, {"garbage": 2}, {"say": "two"})
    kept = await working.tasks.output(working.who, task.id, (0, -1), 100)
    raw = b"".join(each.data for each in kept)
    assert raw.count(b"\n") == 6
    assert b"\x00\xff{not json 1\n" in raw


async def test_files_are_given_and_checks_judge_what_was_made(working):
    files = (GivenFile("in.txt", b"\x00given"), GivenFile("bin/go", b"#!/bin/sh\n", 0o755))
    checks = (Check("there", ("test", "-x", "bin/go")), Check("same", ("cat", "in.txt", "out")))
    task = await working.done({"run": "cp in.txt out"}, files=files, checks=checks)
    assert task.state is S.COMPLETED, task.detail
    assert [each.exit_code for each in task.result.checks] == [0, 0]
    bad = await working.done({"say": "done"}, checks=(Check("built", ("false",)),))
    assert (bad.state, bad.reason) == (S.FAILED, Reason.CHECKS_FAILED)
    assert "these checks fail: built" in bad.detail


@pytest.mark.proves("T7")
@pytest.mark.parametrize(
    ("steps", "reason", "detail"),
    [
        pytest.param([{"silent": True}], Reason.NO_OUTPUT, "no output", id="nothing"),
        pytest.param([{"say": "a"}, {"crash": 7}], Reason.AGENT_ERROR, "it went wrong", id="crash"),
        pytest.param([{"fail": "no such key"}], Reason.AGENT_ERROR, "no such key", id="error"),
    ],
)
async def test_an_agent_that_does_not_do_its_work_fails_its_task(working, steps, reason, detail):
    task = await working.done(*steps)
    assert (task.state, task.reason) == (S.FAILED, reason)
    assert detail in task.detail


async def test_an_agent_may_print_garbage_and_a_line_without_end(working):
    task = await working.done({"garbage": 500}, {"endless": 9 << 20}, {"say": "still here"})
    assert (task.state, task.result.message) == (S.COMPLETED, "still here")
    assert await working.said(task) == ["still here"]


@pytest.mark.slow
async def test_an_agent_may_print_very_much(working):
    task = await working.done({"endless": 12 << 20}, {"flood": 24 << 20}, {"say": "still here"})
    assert (task.state, task.result.message) == (S.COMPLETED, "still here")
    told = await working.events(task, "agent.message")
    assert len(told) <= 20_001
    kept = await working.tasks.output(working.who, task.id, (0, -1), 10_000)
    assert sum(len(each.data) for each in kept) < 34 << 20


async def test_a_prompt_arrives_as_it_is(working):
    words = "'\"`$(touch /tmp/no) \\ é " * 1000
    task = await working.done({"write": ["said", words]})
    assert await working.read(task, "said") == words


@pytest.mark.proves("M1", "M2")
@pytest.mark.parametrize("mode", list(Mode))
async def test_a_message_reaches_a_working_agent_once(working, mode):
    task = await working.begin(
        {"say": "waiting"}, {"await": 1} if mode != "turn" else {"sleep": 0.3}
    )
    await working.until(task, lambda now: now.conversation.run == 1)
    sent = await working.tasks.send(working.who, task.id, f"by {mode}", mode)
    assert sent.state is MessageState.QUEUED
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    receipt = await working.tasks.message(working.who, task.id, sent.id)
    assert receipt.state is MessageState.SEEN
    assert receipt.queued_at <= receipt.delivered_at <= receipt.seen_at
    told = [each.data["state"] for each in await working.events(task, "task.message")]
    assert told == ["queued", "delivered", "seen"]


async def test_a_message_that_comes_too_late_is_refused_and_one_in_time_is_never_lost(working):
    task = await working.begin({"say": "quick"})
    sent = []
    try:
        while True:
            sent.append(await working.tasks.send(working.who, task.id, "more", Mode.NOW))
            await asyncio.sleep(0.01)
            if len(sent) == 40:
                break
    except Conflict:
        pass
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    states = {each.state for each in await working.tasks.messages(working.who, task.id)}
    assert states == {MessageState.SEEN}
    with pytest.raises(Conflict, match="hears nothing more"):
        await working.tasks.send(working.who, task.id, "late", Mode.NOW)


@pytest.mark.proves("T6", "T8")
async def test_cancelling_works_in_every_state(working):
    running = await working.begin({"say": "x"}, {"write": ["kept", "1"]}, {"sleep": 100})
    await working.until(running, lambda now: now.conversation.judged.did_something)
    stubborn = await working.begin({"stubborn": True}, {"say": "no"}, {"sleep": 100})
    await working.until(stubborn, lambda now: now.conversation.judged.did_something)
    waiting = await working.begin({"say": "x"}, after=(running.id,))
    for task in (waiting, running, stubborn):
        await working.tasks.cancel(working.who, task.id)
    for task in (waiting, running, stubborn):
        ended = await working.ended(task)
        assert (ended.state, ended.reason) == (S.CANCELLED, Reason.CANCELLED)
    result = (await working.get(running)).result
    assert [each.path for each in result.files] == ["kept"]


async def test_a_task_ends_at_its_deadline(working):
    task = await working.done({"say": "x"}, {"sleep": 100}, timeout_s=2.0)
    assert (task.state, task.reason) == (S.FAILED, Reason.DEADLINE)
    assert task.sandbox_id


@pytest.mark.proves("H4")
async def test_an_agent_that_dies_is_started_again_with_its_session(working):
    task = await working.done(
        {"append": ["log", "one\n"]},
        {"die": "SIGKILL"},
        {"append": ["log", "two\n"]},
        {"say": "ok"},
    )
    assert task.state is S.COMPLETED, task.detail
    assert len(task.restarts) == 1
    assert await working.read(task, "log") == "one\ntwo\n"
    assert [each.data["restarts"] for each in await working.events(task, "task.restarted")] == [1]


async def test_an_agent_that_dies_again_and_again_fails_its_task(working):
    task = await working.done(*[{"die": "SIGKILL"}] * 6, {"say": "never"})
    assert (task.state, task.reason) == (S.FAILED, Reason.CRASHED)
    assert "died after 3 restarts within an hour" in task.detail


@pytest.mark.proves("M11", "T4")
async def test_a_follow_up_goes_on_with_the_session_in_the_same_place(working):
    first = await working.done({"append": ["log", "one\n"]}, {"say": "first"})
    steps = [{"append": ["log", "one\n"]}, {"say": "first"}, {"append": ["log", "two\n"]}]
    second = await working.done(*steps, follows=first.id, agent="", workspace=Workspace())
    assert second.state is S.COMPLETED, second.detail
    assert (second.sandbox_id, second.directory) == (first.sandbox_id, first.directory)
    assert await working.read(second, "log") == "one\ntwo\n"
    assert [each.path for each in second.result.files] == ["log"]


@pytest.mark.proves("T9")
async def test_what_an_agent_did_can_be_reverted(working):
    first = await working.done({"write": ["kept", "before\n"]}, {"write": ["gone", "x\n"]})
    place = Workspace(sandbox=first.sandbox_id)
    second = await working.done(
        {"write": ["kept", "after\n"]},
        {"write": ["new", "y\n"]},
        {"run": "rm gone"},
        workspace=place,
    )
    kinds = {each.path: each.kind for each in second.result.files}
    assert kinds == {"kept": "changed", "new": "added", "gone": "removed"}
    await working.tasks.revert(working.who, second.id)
    assert await working.read(second, "kept") == "before\n"
    assert await working.read(second, "gone") == "x\n"
    assert await working.read(second, "new") == ""


@pytest.mark.proves("T9")
async def test_a_repository_of_the_user_is_left_alone(working):
    setup = (
        "git init -q -b main . && git -c user.name=u -c user.email=u@x commit -q --allow-empty -m 0"
        " && echo a > tracked && git add tracked && echo b > loose"
    )
    first = await working.done({"run": setup}, {"say": "ready"})
    place = Workspace(sandbox=first.sandbox_id)
    look = "git log --all --format=%s --branches; git status --short; git stash list"
    before = await working.done({"run": look}, {"say": "ok"}, workspace=place)
    commit = "git -c user.name=u -c user.email=u@x commit -qam mine"
    second = await working.done(
        {"write": ["loose", "c\n"]}, {"run": commit}, {"run": look}, {"say": "ok"}, workspace=place
    )
    outputs = [each.data["output"] for each in await working.events(before, "agent.tool_result")]
    assert outputs[0].split("\n")[-3:] == ["A  tracked", "?? loose", ""]
    assert [each.path for each in second.result.files] == ["loose"]
    await working.tasks.revert(working.who, second.id)
    assert await working.read(second, "loose") == "b\n"
    after = await working.done({"run": "git log --format=%s"}, {"say": "ok"}, workspace=place)
    told = await working.events(after, "agent.tool_result")
    assert told[0].data["output"] == "0\n"


@pytest.mark.proves("T9")
async def test_an_agent_that_makes_a_repository_hides_nothing(working):
    task = await working.done(
        {"write": ["kept", "after\n"]},
        {"run": "git init -q . && git init -q sub && echo x > sub/x"},
        {"say": "done"},
        files=(GivenFile("kept", b"before\n"),),
    )
    kinds = {each.path: each.kind for each in task.result.files}
    assert (kinds, task.result.unseen) == ({"kept": "changed", "sub/x": "added"}, "")
    await working.tasks.revert(working.who, task.id)
    assert await working.read(task, "kept") == "before\n"
    assert await working.read(task, "sub/x") == ""


@pytest.mark.proves("T16")
async def test_tasks_wait_for_those_that_come_before(working):
    first = await working.begin({"sleep": 0.5}, {"say": "first"})
    second = await working.begin({"say": "second"}, after=(first.id,))
    ended = await working.ended(second)
    assert ended.started_at >= (await working.get(first)).ended_at
    failed = await working.done({"fail": "no"})
    doomed = await working.done({"say": "x"}, after=(failed.id,))
    assert doomed.state is S.FAILED
    assert f"task {failed.id}, which comes before it, is failed" in doomed.detail


@pytest.mark.proves("T16")
async def test_tasks_in_one_sandbox_take_turns(working):
    first = await working.done({"say": "made"})
    place = Workspace(sandbox=first.sandbox_id)
    tasks = [
        await working.begin({"run": "echo b >> log; sleep 0.2; echo e >> log"}, workspace=place)
        for _ in range(3)
    ]
    for task in tasks:
        assert (await working.ended(task)).state is S.COMPLETED
    assert await working.read(first, "log") == "b\ne\n" * 3


@pytest.mark.proves("L6")
async def test_a_sandbox_in_which_a_task_works_or_left_work_is_not_deleted(working):
    task = await working.begin({"write": ["a", "b"]}, {"sleep": 1})
    await working.until(task, lambda now: now.state is S.RUNNING)
    sandboxes = working.plane.services.sandboxes
    with pytest.raises(Conflict, match="is running in it"):
        await sandboxes.delete(working.who, (await working.get(task)).sandbox_id)
    task = await working.ended(task)
    with pytest.raises(Conflict, match="1 files that task"):
        await sandboxes.delete(working.who, task.sandbox_id)
    await working.tasks.diff(working.who, task.id)
    await sandboxes.delete(working.who, task.sandbox_id)


async def test_a_sandbox_that_goes_away_fails_its_task(working):
    task = await working.begin({"say": "x"}, {"sleep": 100})
    task = await working.until(task, lambda now: now.conversation.judged.did_something)
    sandboxes = working.plane.services.sandboxes
    await sandboxes.delete(working.who, task.sandbox_id, force=True)
    ended = await working.ended(task)
    assert ended.state is S.FAILED
    assert ended.result.unseen


async def test_what_is_known_to_be_wrong_is_refused_before_anything_is_made(working):
    for wish, match in (
        ({"agent": "nobody"}, "there is no agent 'nobody'"),
        ({"workspace": Workspace(template="a", fork="b")}, "one place"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"model": "m"}, "it has no model"),
        ({"files": (GivenFile("../x", b""),)}, "no place for a file"),
    ):
        with pytest.raises(InvalidRequest, match=match):
            await working.begin({"say": "x"}, **wish)


async def test_the_same_key_is_the_same_task(working):
    wish = TaskWish(prompt_of({"say": "x"}), "scripted", workspace=Workspace(template="plain"))
    first = await working.tasks.create(working.who, Submission(wish), "k1")
    again = await working.tasks.create(working.who, Submission(wish), "k1")
    assert first.id == again.id
    with pytest.raises(Conflict):
        await working.tasks.create(working.who, Submission(replace(wish, timeout_s=9)), "k1")


@pytest.mark.proves("T6")
async def test_cancelling_breaks_off_checks_and_keeps_what_was_made(working):
    slow = (Check("slow", ("sleep", "60")),)
    task = await working.begin({"write": ["a", "1"]}, checks=slow)
    await working.until(task, lambda now: now.phase == "build_check")
    await working.tasks.cancel(working.who, task.id)
    ended = await working.ended(task, 20)
    assert (ended.state, [each.path for each in ended.result.files]) == (S.CANCELLED, ["a"])
    assert ended.holds_work


async def test_odd_names_are_told_in_words_that_can_be_written(working):
    task = await working.done(
        {"run": "touch $(printf 'a\\377b') $(printf 'c\\001d')"}, {"say": "x"}
    )
    assert [each.path for each in task.result.files] == ["a\\xffb", "c\x01d"]
    shown = await working.plane.admin.get(f"/v1/tasks/{task.id}")
    assert shown.status == 200


async def test_a_binary_file_is_in_the_diff(working):
    task = await working.done({"run": "head -c 2000 /dev/urandom > blob"}, {"say": "x"})
    text, is_cut = await working.tasks.diff(working.who, task.id)
    assert not is_cut
    assert b"GIT binary patch" in text


async def test_what_was_reverted_twice_is_kept_twice(working):
    task = await working.done({"write": ["a", "agent\n"]}, {"say": "x"})
    await working.tasks.revert(working.who, task.id)
    again = await working.done(
        {"run": "git -C . rev-parse 2>/dev/null; echo mine > a"},
        {"say": "x"},
        workspace=Workspace(sandbox=task.sandbox_id),
    )
    await working.tasks.revert(working.who, task.id)
    await working.tasks.revert(working.who, again.id)
    assert await working.read(task, "a") == ""
    script = "git --git-dir ~/.paddock/trees/*.git for-each-ref --format='%(refname)'"
    ran = await working.plane.services.commands.run(
        working.who, task.sandbox_id, command("sh", "-c", script)
    )
    assert ran.stdout.decode().count("/reverted-") == 3


async def test_nothing_is_reverted_under_a_task_at_work(working):
    task = await working.done({"write": ["a", "1"]}, {"say": "x"})
    place = Workspace(sandbox=task.sandbox_id)
    other = await working.begin({"say": "x"}, {"sleep": 30}, workspace=place)
    await working.until(other, lambda now: now.state is S.RUNNING)
    with pytest.raises(Conflict, match="another task is at work"):
        await working.tasks.revert(working.who, task.id)
    await working.tasks.cancel(working.who, other.id)
    await working.ended(other)


async def test_hostile_counts_of_an_agent_are_not_counted(working):
    usage = {"input_tokens": -5, "output_tokens": 10**30, "cost_usd": "much"}
    task = await working.done({"usage": usage}, {"usage": {"input_tokens": 7}}, {"say": "x"})
    assert (task.spent.tokens, task.spent.cost_usd) == (7, 0.0)


async def test_a_fork_is_refused_at_once_where_there_are_none(working):
    made = await working.done({"say": "x"})
    with pytest.raises(Unsupported, match="cannot fork"):
        await working.begin({"say": "x"}, workspace=Workspace(fork=made.sandbox_id))


class Building(ReferenceProvider):
    """One that has a template to build first."""

    async def create(self, key, spec):
        await asyncio.sleep(5)
        return await super().create(key, spec)


@pytest.mark.slow
async def test_what_is_built_before_an_agent_can_begin_takes_none_of_its_time(database):
    async with (
        disposable(provider=Building, database=database, settings=SETTINGS) as plane,
        at_work(plane),
    ):
        working = Working(plane, await operator(plane))
        task = await working.done({"say": "a"}, timeout_s=4.0)
        assert task.state is S.COMPLETED, task.detail
