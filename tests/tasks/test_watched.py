"""Agents that are watched: what the guardian does, and what people answer."""

import pytest

from paddock.domain.approval import MOST_PENDING, Answer, Kind, State
from paddock.domain.budget import Budget
from paddock.domain.errors import Conflict, LimitExceeded
from paddock.domain.guardian import GuardianConfig
from paddock.domain.message import MessageState, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskState
from paddock.domain.vitals import Thresholds
from paddock.services.approvals import Question
from paddock.services.task_config import TasksConfig
from paddock.settings import AgentsConfig, Settings
from tests.control_plane import disposable
from tests.tasks.conftest import OWN, Working, at_work, command, on_local, operator

S = TaskState
OWN_PID = {"run": "echo $PPID > pid"}
USAGE = {"usage": {"input_tokens": 80, "output_tokens": 40}}


async def answer(working, task, state, note=""):
    services = working.plane.services
    who = await operator(working.plane)
    return await services.approvals.answer(who, task.waits_for, Answer(state, note=note))


async def waiting(working, *steps, **more):
    task = await working.begin(*steps, **more)
    return await working.until(task, lambda now: now.state is S.WAITING)


@pytest.mark.proves("R2")
async def test_a_budget_that_is_used_up_waits_for_somebody_and_goes_on_with_as_much_again(working):
    task = await waiting(
        working, {"say": "a"}, USAGE, {"await": 1}, {"say": "b"}, budget=Budget(tokens=100)
    )
    assert "the budget is used up: 120 of 100 tokens" in task.detail
    await answer(working, task, State.ALLOWED_ONCE, "go on, but be brief")
    ended = await working.ended(task)
    assert (ended.state, ended.extensions) == (S.COMPLETED, 1)
    sent = await working.tasks.messages(working.who, task.id)
    assert [(each.text, each.state) for each in sent] == [
        ("go on, but be brief", MessageState.SEEN)
    ]
    kinds = [each.kind for each in await working.events(task)]
    assert kinds.index("task.waiting") < kinds.index("guardian.asked") < len(kinds)
    audited = working.plane.services.store
    entries = await audited.read(lambda tx: tx.audit.after(0, 100_000))
    mine = [each for each in entries if each.subject == task.id and "guardian" in each.action]
    assert [each.detail["before"]["used"] for each in mine] == [120]


async def test_an_agent_that_used_up_its_budget_and_is_done_waits_for_nobody(database):
    """It says what it used right before it says that it is done."""
    calm = TasksConfig(health=Thresholds(beat_every_s=30.0, beat_lasts_s=60.0))
    settings = Settings(agents=AgentsConfig(own=(OWN,)), tasks=calm)
    async with disposable(database=database, settings=settings) as plane, at_work(plane):
        working = Working(plane, await operator(plane))
        steps = ({"say": "a"}, USAGE, {"sleep": 0.5})
        done = await working.done(*steps, budget=Budget(tokens=100))
        assert (done.state, done.used.tokens) == (S.COMPLETED, 120)
        # It stays at work: one that ended together with "b" would need no answer either.
        busy = (*steps, {"say": "b"}, {"await": 1})
        more = await waiting(working, *busy, budget=Budget(tokens=100))
        assert more.waits_rule == "budget_gone"
        await answer(working, more, State.DENIED)
        assert (await working.ended(more)).reason is Reason.BUDGET


async def kill_agent(working, task):
    """One whose first step was `OWN_PID`."""
    kill = command("sh", "-c", f"kill -9 $(cat {task.directory}/pid)")
    ran = await working.plane.services.commands.run(working.who, task.sandbox_id, kill)
    assert ran.exit_code == 0, ran.stderr


async def test_a_budget_is_asked_about_again_when_the_agent_died_before_somebody_answered(working):
    more = [{"await": 1}, {"say": "done"}]
    task = await waiting(working, OWN_PID, USAGE, *more, budget=Budget(tokens=100))
    await kill_agent(working, task)
    again = await working.until(
        task, lambda now: now.state.is_final or now.waits_for not in ("", task.waits_for)
    )
    assert (again.state, len(again.restarts)) == (S.WAITING, 1), again.detail
    assert "the budget is used up: 120 of 100 tokens" in again.detail
    await answer(working, again, State.ALLOWED_ONCE, "go on")
    ended = await working.ended(task)
    assert (ended.state, ended.extensions) == (S.COMPLETED, 1)


async def test_who_resumes_a_task_without_budget_gives_as_much_again_also_to_a_dead_agent(working):
    task = await working.begin(
        OWN_PID,
        USAGE,
        {"await": 1},
        {"say": "done"},
        budget=Budget(tokens=100),
        guardian={"budget_gone": "pause"},
    )
    task = await working.until(task, lambda now: now.state is S.WAITING)
    await kill_agent(working, task)
    await working.until(task, lambda now: now.conversation.has_ended)
    await working.tasks.resume(working.who, task.id)
    await working.until(task, lambda now: now.state is S.RUNNING)
    await working.tasks.send(working.who, task.id, "go on", Mode.NOW)
    ended = await working.ended(task)
    assert (ended.state, ended.extensions) == (S.COMPLETED, 1)


@pytest.mark.proves("T22", "R2")
async def test_turns_are_counted_while_the_agent_works_and_bound_it_there(working):
    steps = [{"run": f"echo {number}"} for number in range(200)]
    task = await waiting(working, *steps, {"await": 1}, {"say": "b"}, budget=Budget(turns=2))
    assert "the budget is used up" in task.detail
    assert task.used.turns >= 2
    assert "of 2 turns" in task.detail
    await answer(working, task, State.DENIED)
    ended = await working.ended(task)
    assert (ended.state, ended.reason) == (S.FAILED, Reason.BUDGET)


async def test_what_a_sandbox_asks_for_keeps_nobody_from_being_asked_about_its_agent(working):
    steps = [{"say": "a"}, {"await": 1}, USAGE, {"sleep": 100}]
    task = await working.begin(*steps, budget=Budget(tokens=100))
    task = await working.until(task, lambda now: now.conversation.judged.did_something)
    approvals, store = working.plane.services.approvals, working.plane.services.store

    async def ask(number):
        host = f"host{number}.example:443"
        asked = Question(Kind.EGRESS, host, host, "", "test", {}, 3600.0)
        sandbox = await store.read(lambda tx: tx.sandboxes.get(task.team_id, task.sandbox_id))
        await store.write(lambda tx: approvals.ask(tx, sandbox, asked))

    for number in range(MOST_PENDING):
        await ask(number)
    with pytest.raises(LimitExceeded):
        await ask(MOST_PENDING)
    await working.tasks.send(working.who, task.id, "go", Mode.NOW)
    task = await working.until(task, lambda now: now.state.is_final or now.state is S.WAITING)
    assert (task.state, task.waits_rule) == (S.WAITING, "budget_gone")
    await answer(working, task, State.DENIED)
    assert (await working.ended(task)).reason is Reason.BUDGET


async def test_who_says_no_ends_the_task_with_what_there_is(working):
    steps = [{"write": ["a", "1"]}, USAGE, {"sleep": 100}]
    task = await waiting(working, *steps, budget=Budget(tokens=100))
    await answer(working, task, State.DENIED, "too dear")
    ended = await working.ended(task)
    assert (ended.state, ended.reason) == (S.FAILED, Reason.BUDGET)
    assert "too dear" in ended.detail
    assert [each.path for each in ended.result.files] == ["a"]


@pytest.mark.proves("M6", "M7")
async def test_a_dangerous_command_is_asked_about_and_the_agent_stands_still(working):
    push = "git push --force origin main; sleep 1; echo more >> log"
    steps = [{"say": "x"}, {"run": push}, {"append": ["log", "after\n"]}, {"sleep": 0.1}]
    task = await waiting(working, *steps, {"say": "done"})
    assert "main or master" in task.detail
    with pytest.raises(Conflict, match="waits for the answer"):
        await working.tasks.resume(working.who, task.id)
    await answer(working, task, State.ALLOWED_ONCE)
    assert (await working.ended(task)).state is S.COMPLETED


async def test_a_task_that_waits_can_be_cancelled(working):
    task = await waiting(working, USAGE, {"say": "x"}, {"sleep": 9}, budget=Budget(tokens=100))
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task)).state is S.CANCELLED


async def test_one_that_goes_in_circles_is_told_so(working):
    task = await working.done(*[{"run": "false"}] * 6, {"await": 1}, {"say": "understood"})
    assert task.state is S.COMPLETED, task.detail
    (sent,) = await working.tasks.messages(working.who, task.id)
    assert (sent.actor, sent.state) == ("paddock/guardian", MessageState.SEEN)
    assert [each.data["rule"] for each in await working.events(task, "guardian.")] == ["loop"]


async def test_edits_out_of_scope_can_stop_a_task(impatient):
    task = await impatient.done(
        {"write": ["src/a", "1"]},
        {"write": ["docs/b", "1"]},
        {"sleep": 30},
        scope=("src",),
        guardian={"scope": "stop"},
    )
    assert task.state is S.FAILED
    assert "docs/b" in task.detail


async def test_one_that_was_paused_goes_on_when_somebody_says_so(working):
    steps = [{"run": "false"}] * 4
    task = await working.begin(*steps, {"sleep": 0.5}, {"say": "x"}, guardian={"loop": "pause"})
    task = await working.until(task, lambda now: now.state is S.WAITING)
    assert not task.waits_for
    await working.tasks.resume(working.who, task.id)
    assert (await working.ended(task)).state is S.COMPLETED


@pytest.fixture(scope="module")
async def impatient():
    health = Thresholds(
        quiet_after_s=0.5,
        nudge_after_s=0.0,
        ask_after_s=0.0,
        restart_after_s=3.0,
        restart_cooldown_s=0.0,
        beat_every_s=0.5,
        stop_grace_s=1.0,
    )
    settings = Settings(
        agents=AgentsConfig(own=(OWN,)),
        tasks=TasksConfig(health=health, guardian=GuardianConfig(cooldown_s=0.0)),
    )
    async with on_local(settings) as working:
        yield working


@pytest.mark.slow
@pytest.mark.proves("H4", "H5")
async def test_an_agent_that_stands_still_is_started_again_and_one_that_works_is_not(impatient):
    stuck = await impatient.begin({"say": "x"}, {"hang": 1000}, {"say": "woken"})
    busy = await impatient.begin({"run": "timeout 4 sh -c 'while :; do :; done'"}, {"say": "done"})
    ended = await impatient.ended(stuck)
    assert (ended.state, len(ended.restarts)) == (S.COMPLETED, 1)
    assert ended.result.message == "woken"
    (told,) = await impatient.events(stuck, "task.restarted")
    assert "no output, no CPU and no network" in told.data["why"]
    worked = await impatient.ended(busy)
    assert (worked.state, worked.restarts) == (S.COMPLETED, ())
    assert worked.heartbeat_at is not None


@pytest.mark.proves("M7", "M8")
async def test_what_a_person_has_allowed_is_not_asked_about_again(impatient):
    danger = {"run": "git push --force origin main"}
    task = await waiting(
        impatient, {"say": "x"}, danger, *[danger, {"sleep": 0.2}] * 3, {"say": "y"}
    )
    await answer(impatient, task, State.ALLOWED_ONCE)
    ended = await impatient.ended(task)
    assert ended.state is S.COMPLETED, ended.detail
    (asked,) = await impatient.events(task, "guardian.asked")
    assert asked.data["rule"] == "danger"
    assert asked.data["before"]["danger"] == "forces-push"


async def test_an_agent_that_has_ended_needs_nobodys_answer(working):
    task = await working.done({"say": "x"}, budget=Budget(turns=1))
    assert task.state is S.COMPLETED, task.detail
    asked = await working.plane.services.approvals.of_task(task.id)
    assert {each.state for each in asked} <= {State.EXPIRED}


async def test_two_questions_are_asked_one_after_the_other(working):
    dangers = [{"run": "git push --force origin main"}, {"run": "git push -f origin master"}]
    task = await waiting(
        working,
        {"say": "x"},
        *dangers,
        {"sleep": 0.2},
        USAGE,
        {"sleep": 0.5},
        {"say": "done"},
        budget=Budget(tokens=100),
    )
    first = task.waits_for
    await answer(working, task, State.ALLOWED_ONCE)
    second = await working.until(
        task, lambda now: now.state.is_final or now.waits_for not in ("", first)
    )
    assert second.state is S.WAITING
    await answer(working, second, State.DENIED)
    assert (await working.ended(task)).state is S.FAILED
