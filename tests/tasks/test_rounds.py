"""Tasks that go on until their checks pass, or until it makes no sense any more."""

import asyncio
from dataclasses import replace

import pytest

from paddock.domain.budget import Budget
from paddock.domain.errors import Conflict
from paddock.domain.message import MessageState, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState as S
from paddock.domain.task_course import Step
from paddock.domain.task_faults import Fault
from paddock.domain.task_rounds import CheckState, Left, after_round, judged
from paddock.domain.task_wish import LONGEST_PROMPT, Check, Rounds, TaskWish, When, Workspace
from paddock.ports.clock import SystemClock
from paddock.services.task_checks import run_checks
from paddock.services.task_plans import Submission
from tests.tasks.conftest import command

GOOD = Check("good", ("grep", "-q", "right", "answer"), description="the answer is right")


def shell(name, line, **more):
    return Check(name, ("/bin/sh", "-c", line), **more)


@pytest.mark.proves("T13", "T14")
async def test_an_agent_tries_until_its_checks_pass(working):
    says = shell("says", "cat answer; grep -q right answer", description="it is right")
    task = await working.done(
        {"echo": True},
        {"write": ["answer", "wrong, at first"]},
        {"end": "I think so"},
        {"echo": True},
        {"write": ["answer", "wrong, again"]},
        {"end": "now"},
        {"write": ["answer", "right"]},
        {"say": "it is right"},
        checks=(says, shell("there", "test -e answer")),
        rounds=Rounds(5),
    )
    assert (task.state, task.result.message) == (S.COMPLETED, "it is right"), task.detail
    states = [[each.state for each in one.outcomes] for one in task.result.rounds]
    assert states == [["failed", "passed"], ["failed", "passed"], ["passed", "passed"]]
    assert [each.state for each in task.result.checks] == [CheckState.PASSED] * 2
    first, second = [each for each in await working.said(task) if "\n" in each]
    assert "- says: it is right (`/bin/sh -c cat answer" in first
    assert "wrong, at first" in second
    assert "round 1 of at most 5" in second
    assert "there" in second
    told = await working.events(task, "task.round")
    assert [(each.data["round"], each.data["failed"]) for each in told] == [
        (1, ["says"]),
        (2, ["says"]),
        (3, []),
    ]
    kinds = [each.kind for each in await working.events(task, "task.")]
    assert kinds.count("task.running") == 3
    assert kinds.count("task.completed") == 1


@pytest.mark.proves("T13")
async def test_who_changes_nothing_is_not_asked_for_ever(working):
    task = await working.done({"write": ["answer", "no"]}, checks=(GOOD,), rounds=Rounds(20))
    assert (task.state, task.reason) == (S.FAILED, Reason.NO_PROGRESS)
    assert len(task.result.rounds) == 3
    assert [each.state for each in task.result.checks] == [CheckState.FAILED]
    assert [each.path for each in task.result.files] == ["answer"]


@pytest.mark.proves("T13", "T14")
async def test_rounds_have_an_end(working):
    steps = [step for n in range(5) for step in ({"append": ["answer", str(n)]}, {"end": "so"})]
    task = await working.done(*steps, checks=(GOOD,), rounds=Rounds(2))
    assert (task.state, task.reason) == (S.FAILED, Reason.CHECKS_FAILED)
    assert "these checks fail: good, after 2 rounds" in task.detail
    assert await working.read(task, "answer") == "01"


@pytest.mark.proves("T13", "R2")
async def test_a_budget_that_is_used_up_ends_rounds(working):
    steps = [step for n in range(5) for step in ({"append": ["answer", str(n)]}, {"end": "so"})]
    task = await working.done(
        *steps, checks=(GOOD,), rounds=Rounds(9), budget=Budget(turns=4), guardian=QUIET
    )
    assert (task.state, task.reason) == (S.FAILED, Reason.BUDGET)
    assert len(task.rounds) == 2


QUIET = {"budget_gone": "off"}


@pytest.mark.proves("T13")
async def test_errors_of_an_agent_are_rounds_too_and_so_many_in_a_row_are_enough(working):
    mended = await working.done(
        {"say": "a"},
        {"crash": 7},
        {"write": ["answer", "right"]},
        {"say": "done"},
        checks=(GOOD,),
        rounds=Rounds(5),
    )
    assert mended.state is S.COMPLETED, mended.detail
    assert [bool(each.error) for each in mended.rounds] == [True, False]
    again = [{"say": "a"}, {"crash": 7}] * 5
    task = await working.done(*again, checks=(GOOD,), rounds=Rounds(9, errors=2))
    assert (task.state, task.reason) == (S.FAILED, Reason.AGENT_ERROR)
    assert len(task.rounds) == 2
    assert [each.state for each in task.result.checks] == [CheckState.UNKNOWN]


@pytest.mark.proves("T17", "T7")
@pytest.mark.parametrize(
    ("check", "fault"),
    [
        pytest.param(Check("lint", ("no-such-linter",)), Fault.COMMAND, id="command"),
        pytest.param(shell("build", "no-such-make"), Fault.COMMAND, id="shell"),
        pytest.param(shell("x", "echo ENOSPC: no space; exit 1"), Fault.DISK, id="disk"),
        pytest.param(Check("slow", ("sleep", "60"), 0.5), Fault.UNKNOWN, id="slow"),
    ],
)
async def test_a_fault_of_the_surroundings_costs_no_round(working, check, fault):
    task = await working.done({"say": "done"}, checks=(check,), rounds=Rounds(5))
    assert (task.state, task.reason) == (S.FAILED, Reason.SURROUNDINGS)
    assert task.detail.startswith(f"{fault}: ")
    assert [each.fault for each in task.rounds] == [fault]


@pytest.mark.proves("T17", "T7")
async def test_a_model_that_refuses_is_not_asked_again(working):
    task = await working.done(
        {"fail": "API Error: 401 invalid x-api-key"}, checks=(GOOD,), rounds=Rounds(5)
    )
    assert (task.state, task.reason) == (S.FAILED, Reason.SURROUNDINGS)
    assert task.conversation.run == 1


@pytest.mark.proves("T10", "Q4")
async def test_a_check_without_an_answer_has_not_passed(working):
    checks = (
        Check("absent", ("no-such-program",)),
        Check("slow", ("/bin/sh", "-c", "echo begun; sleep 60"), 0.5),
        Check("fine", ("true",)),
        Check("wrong", ("false",)),
    )
    task = await working.done({"say": "done"}, checks=checks)
    absent, slow, fine, wrong = task.result.checks
    assert (absent.state, absent.exit_code) == (CheckState.UNKNOWN, 127)
    assert "could not be started" in absent.why
    assert (slow.state, slow.exit_code, slow.output) == (CheckState.UNKNOWN, 124, "begun\n")
    assert "not over after 0.5 s" in slow.why
    assert (fine.state, wrong.state) == (CheckState.PASSED, CheckState.FAILED)
    shown = await working.plane.admin.get(f"/v1/tasks/{task.id}")
    found = [(each["state"], each["why"] is None) for each in shown.body["result"]["checks"]]
    assert found == [("unknown", False), ("unknown", False), ("passed", True), ("failed", True)]


@pytest.mark.proves("T10")
async def test_the_end_of_what_a_check_said_is_kept_however_much_it_was(working):
    much = shell("much", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 1")
    task = await working.done({"say": "done"}, checks=(much,))
    (found,) = task.result.checks
    assert found.output.endswith("x\nthe end\n")
    assert len(found.output) >= 2000


@pytest.mark.proves("T10")
async def test_what_takes_long_is_checked_last_and_what_was_not_run_says_so(working):
    late = shell("late", "echo late >> ran", when=When.END)
    bad = await working.done({"say": "x"}, checks=(late, Check("no", ("false",))))
    assert [each.state for each in bad.result.checks] == [CheckState.UNKNOWN, CheckState.FAILED]
    assert "others have to pass first" in bad.result.checks[0].why
    assert bad.reason is Reason.CHECKS_FAILED
    good = await working.done({"say": "x"}, checks=(late, Check("yes", ("true",))))
    assert [each.state for each in good.result.checks] == [CheckState.PASSED] * 2
    failed = await working.done({"fail": "no"}, checks=(late,))
    assert [each.state for each in failed.result.checks] == [CheckState.UNKNOWN]


@pytest.mark.proves("T14")
async def test_a_rehearsal_says_what_would_be_done_and_makes_nothing(working):
    before = await working.plane.admin.get("/v1/tasks?limit=1")
    wish = {
        "prompt": "Do it.",
        "agent": "scripted",
        "template": "plain",
        "checks": [{"name": "tests", "cmd": ["make", "test"], "description": "it adds up"}],
        "rounds": {"most": 5},
        "budget": {"cost_usd": 2.5},
    }
    answer = await working.plane.admin.post("/v1/tasks/check", wish)
    assert answer.status == 200, answer.body
    said = "\n".join(answer.body["steps"])
    assert "make a sandbox of template plain" in said
    assert "check tests by `make test`, 120 s at most: it adds up" in said
    assert "5 rounds at most" in said
    assert "2.5 cost_usd" in said
    for wrong in (
        {"agent": "nobody"},
        {"checks": []},
        {"sandbox": "not-there", "template": ""},
        {"after": ["tsk_none"]},
        {"template": "", "snapshot": "snp_none"},
        {"rounds": {"most": 21}},
    ):
        refused = await working.plane.admin.post("/v1/tasks/check", {**wish, **wrong})
        assert 400 <= refused.status < 500, (wrong, refused.body)
    assert (await working.plane.admin.get("/v1/tasks?limit=1")).body == before.body


@pytest.mark.proves("T7")
async def test_what_can_never_begin_says_why(working):
    failed = await working.done({"silent": True})
    assert failed.reason is Reason.NO_OUTPUT
    after = await working.done({"say": "x"}, after=(failed.id,))
    assert (after.state, after.reason) == (S.FAILED, Reason.DEPENDENCY)
    gone = await working.begin({"say": "x"}, {"sleep": 100})
    at_work = await working.until(gone, lambda now: now.conversation.judged.did_something)
    waiting = await working.begin({"say": "y"}, workspace=working.place(at_work))
    await working.plane.services.sandboxes.delete(working.who, at_work.sandbox_id, force=True)
    for task in (gone, waiting):
        ended = await working.ended(task)
        assert ended.state is S.FAILED
        assert ended.reason in (Reason.SANDBOX_UNAVAILABLE, Reason.USER), ended.reason


@pytest.mark.proves("T7", "T13")
async def test_checks_have_no_more_time_than_their_task(working):
    checks = (
        Check("quick", ("true",)),
        Check("bad", ("false",)),
        shell("hangs", "echo begun; sleep 300", timeout_s=200.0),
        Check("never", ("true",)),
    )
    over = await working.done({"say": "x"})
    clock, inside = SystemClock(), working.plane.services.inside
    task = replace(over, wish=replace(over.wish, checks=checks), deadline=clock.wall() + 3.0)
    async with inside.enter(working.who, over.sandbox_id, "checks") as entered:
        quick, bad, hangs, never = await run_checks(entered.guest, task, clock=clock)
    assert clock.wall() < task.deadline + 30
    assert (quick.state, bad.state) == (CheckState.PASSED, CheckState.FAILED)
    assert (hangs.state, hangs.output) == (CheckState.UNKNOWN, "begun\n")
    assert "the task's time was up" in hangs.why
    assert (never.state, never.why) == (
        CheckState.UNKNOWN,
        "the task's time was up before it was run",
    )
    found = [quick, replace(bad, state=CheckState.PASSED), hangs, never]
    made = judged(checks, found, number=1, run=1, tree="")
    following = after_round([made], Rounds(3), Left(is_late=True))
    assert (following.step, following.reason) == (Step.FAIL, Reason.DEADLINE)


async def test_a_prompt_that_gets_too_long_where_it_works_ends_its_task(working):
    prompt = "{{sandbox_id}}" * (LONGEST_PROMPT // len("{{sandbox_id}}"))
    place = Workspace(template=working.template)
    wish = TaskWish(prompt, "scripted", workspace=place, variables={})
    task = await working.ended(await working.tasks.create(working.who, Submission(wish)))
    assert (task.state, task.reason) == (S.FAILED, Reason.SURROUNDINGS)
    assert "the prompt with its variables filled in has" in task.detail
    assert task.conversation.run == 0


async def test_a_message_that_a_run_did_not_read_is_for_the_next_round(working):
    task = await working.begin(
        {"say": "a"},
        {"run": "until [ -e go ]; do sleep 0.1; done"},
        {"crash": 1},
        {"say": "b"},
        checks=(shell("fine", "true"),),
        rounds=Rounds(2),
    )
    task = await working.until(task, lambda now: now.conversation.judged.did_something)
    sent = await working.tasks.send(working.who, task.id, "and this too", Mode.TURN)

    async def state():
        return (await working.tasks.message(working.who, task.id, sent.id)).state

    async with asyncio.timeout(60):
        while await state() is not MessageState.DELIVERED:
            await asyncio.sleep(0.02)
    await touch(working, task, "go")
    ended = await working.ended(task)
    assert (ended.state, ended.conversation.run) == (S.COMPLETED, 2), ended.detail
    assert await state() is MessageState.SEEN


async def touch(working, task, name):
    line = f"touch '{task.directory}/{name}'"
    await working.plane.services.commands.run(
        working.who, task.sandbox_id, command("/bin/sh", "-c", line)
    )


HELD = "until [ -e go ]; do sleep 0.1; done; test -e fixed || { touch fixed; exit 1; }"


async def test_between_two_rounds_messages_and_a_pause_are_for_the_next_one(working):
    task = await working.begin(
        {"say": "a"}, {"end": "one"}, {"say": "b"}, checks=(shell("held", HELD),), rounds=Rounds(2)
    )
    task = await working.until(task, lambda now: now.phase == "build_check")
    sent = await working.tasks.send(working.who, task.id, "hear this", Mode.TURN)
    await working.tasks.pause(working.who, task.id)
    await touch(working, task, "go")
    still = await working.until(task, lambda now: now.state is S.WAITING)
    assert still.conversation.run == 2
    await working.tasks.resume(working.who, task.id)
    ended = await working.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    message = await working.tasks.message(working.who, task.id, sent.id)
    assert message.state is MessageState.SEEN


async def test_what_no_round_follows_for_ends_undelivered_or_is_refused(working):
    held = shell("held", "until [ -e go ]; do sleep 0.1; done")
    task = await working.begin({"say": "a"}, checks=(held,), rounds=Rounds(2))
    last = await working.begin({"say": "a"}, checks=(held,))
    for each in (task, last):
        await working.until(each, lambda now: now.phase == "build_check")
    task, last = await working.get(task), await working.get(last)
    sent = await working.tasks.send(working.who, task.id, "too late", Mode.TURN)
    await working.tasks.pause(working.who, task.id)
    with pytest.raises(Conflict, match="hears nothing more"):
        await working.tasks.send(working.who, last.id, "too late", Mode.TURN)
    with pytest.raises(Conflict, match="nothing to pause"):
        await working.tasks.pause(working.who, last.id)
    for each in (task, last):
        await touch(working, each, "go")
        ended = await working.ended(each)
        assert (ended.state, ended.paused_by) == (S.COMPLETED, ""), ended.detail
    message = await working.tasks.message(working.who, task.id, sent.id)
    assert message.state is MessageState.UNDELIVERED
