"""The guardian at work: what is found is done once, told and audited, and never fails silently."""

import asyncio
import json
from dataclasses import replace

import pytest

from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.errors import Conflict, LimitExceeded, Unavailable
from paddock.domain.guardian import BUILT_IN, Act, Facts, GuardianPolicy, Place
from paddock.domain.ids import new_id
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.ports.clock import SystemClock
from paddock.ports.reviewer import Review, Standing
from paddock.services.guardian import MOST_TRIES, Guardian, Readers
from tests.adapters.store.conftest import place, postgres_place, sqlite_place, store

__all__ = ["place", "postgres_place", "sqlite_place", "store"]  # fixtures
pytestmark = pytest.mark.timeout(60)
NOW = 1_000_000.0
DANGER = AgentEvent(
    AgentEventKind.TOOL_CALL, {"name": "Bash", "input": {"command": "rm -rf / --token=hush"}}
)


class Deeds:
    """What was really done, each once; it may refuse for a while."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.done: dict[str, tuple[str, str]] = {}
        self.refusing: dict[str, Exception] = {}

    def _do(self, kind: str, text: str, once: str) -> dict[str, str]:
        self.calls.append((kind, once))
        if error := self.refusing.get(kind):
            raise error
        self.done.setdefault(once, (kind, text))
        return {"state": {"ask": "waiting", "stop": "failed"}.get(kind, "running")}

    async def nudge(self, task_id, text, *, once):
        return self._do("nudge", text, once)

    async def ask(self, task_id, question, detail, *, expires_s, once):
        assert expires_s > 0
        assert detail["rule"]
        return self._do("ask", question, once)

    async def pause(self, task_id, why, *, rule, once):
        return self._do("pause", why, once)

    async def stop(self, task_id, why, *, once):
        return self._do("stop", why, once)


class Watched:
    """A task on record, and its guardian."""

    def __init__(self, store, task: TaskRecord) -> None:
        self.store, self.id, self.team_id = store, task.id, task.team_id
        self.deeds = Deeds()
        self.guardian = Guardian(SystemClock(), self.deeds)

    async def task(self) -> TaskRecord:
        return await self.store.read(lambda tx: tx.tasks.get("", self.id))

    async def change(self, change) -> TaskRecord:
        return await self.store.write(
            lambda tx: tx.tasks.replace(change(tx, tx.tasks.get("", self.id)))
        )

    async def see(self, *events: AgentEvent, **more) -> TaskRecord:
        facts = Facts(more.pop("now", NOW), place=Place("/workspace", "/home/user"))
        facts = replace(facts, policy=GuardianPolicy(acts=more))
        return await self.change(
            lambda _tx, task: replace(task, watch=self.guardian.judge(task, events, facts))
        )

    async def act(self) -> list[str]:
        outcome = await self.guardian.carry_out(await self.task())
        await self.change(outcome.write)
        return await self.told()

    async def told(self) -> list[str]:
        return [event.kind for event in await self.events()]

    async def events(self):
        return await self.store.read(lambda tx: tx.events.after(0, 100, subject=self.id))


@pytest.fixture
async def watched(store):
    team = Team(new_id("tem"), new_id("team"), 1.0)
    task = TaskRecord(new_id("tsk"), team.id, "a", TaskWish("do it", "command"), 1.0, 1.0)
    task = replace(task, state=TaskState.RUNNING)
    await store.write(lambda tx: tx.teams.add(team))
    await store.write(lambda tx: tx.tasks.add(task))
    return Watched(store, task)


@pytest.mark.proves("M7")
@pytest.mark.parametrize(
    ("act", "kind"),
    [
        ("note", "guardian.noted"),
        ("nudge", "guardian.nudged"),
        ("ask", "guardian.asked"),
        ("pause", "guardian.paused"),
        ("stop", "guardian.stopped"),
    ],
)
async def test_what_is_found_is_done_once_told_and_audited(watched, act, kind):
    await watched.see(DANGER, DANGER, danger=Act(act))
    assert await watched.act() == [kind]
    assert await watched.act() == [kind]
    assert [done for done, _ in watched.deeds.calls] == ([] if act == "note" else [act])
    (event,) = await watched.events()
    (entry,) = await watched.store.read(lambda tx: tx.audit.after(0, 10, team_id=watched.team_id))
    for data in (event.data, entry.detail):
        assert data["rule"] == "danger"
        assert data["before"] == {
            "state": "running",
            "danger": "removes-all",
            "program": "rm",
            "tool": "Bash",
        }
        assert data["after"] == ({} if act == "note" else {"state": data["after"]["state"]})
        assert "hush" not in json.dumps(data)
    assert (entry.actor, entry.action) == ("paddock/guardian", kind)


@pytest.mark.proves("M7")
async def test_a_crash_between_the_deed_and_its_record_does_it_once(watched):
    await watched.see(DANGER)
    await watched.guardian.carry_out(await watched.task())
    after_restart = Guardian(SystemClock(), watched.deeds)
    outcome = await after_restart.carry_out(await watched.task())
    await watched.change(outcome.write)
    assert len(watched.deeds.calls) == 2
    assert len(watched.deeds.done) == 1
    assert await watched.told() == ["guardian.asked"]


async def test_what_is_found_while_something_is_carried_out_is_not_lost(watched):
    await watched.see(DANGER)
    outcome = await watched.guardian.carry_out(await watched.task())
    secret = {"name": "Read", "input": {"path": "~/.netrc"}}
    await watched.see(AgentEvent(AgentEventKind.TOOL_CALL, secret))
    await watched.change(outcome.write)
    (left,) = watched.guardian.due(await watched.task())
    assert (left.number, left.before["danger"]) == (2, "reads-secret")


@pytest.mark.proves("M7")
async def test_a_nudge_that_an_agent_cannot_take_becomes_a_question(watched):
    watched.deeds.refusing["nudge"] = Conflict("command takes no messages")
    await watched.see(DANGER, danger=Act.NUDGE)
    assert await watched.act() == ["guardian.failed"]
    assert await watched.act() == ["guardian.failed", "guardian.asked"]
    failed, _ = await watched.events()
    assert failed.data["error"] == "command takes no messages"
    assert watched.deeds.done.keys() == {"guardian-1"}


@pytest.mark.proves("M7")
async def test_an_agent_that_nobody_can_be_asked_about_stands_still(watched):
    watched.deeds.refusing["ask"] = LimitExceeded("too many questions")
    await watched.see(DANGER)
    assert await watched.act() == ["guardian.failed"]
    assert await watched.act() == ["guardian.failed", "guardian.paused"]
    assert (await watched.events())[0].data["then"] == "pause instead, or again"


async def test_what_may_work_later_is_tried_again_and_not_for_ever(watched):
    watched.deeds.refusing["pause"] = Unavailable("not now")
    await watched.see(DANGER, danger=Act.PAUSE)
    for _ in range(MOST_TRIES + 3):
        told = await watched.act()
    assert told == ["guardian.failed"] * MOST_TRIES
    last = (await watched.events())[-1]
    assert last.data["then"] == "it is given up"


async def test_an_error_that_nobody_expected_is_told_as_well(watched):
    watched.deeds.refusing["stop"] = ZeroDivisionError("by 0")
    await watched.see(DANGER, danger=Act.STOP)
    assert await watched.act() == ["guardian.failed"]
    assert (await watched.events())[0].data["error"] == "ZeroDivisionError: by 0"


class Breaking:
    name = "breaking"

    def judge(self, seen, event, facts):
        raise RuntimeError("a bug")


@pytest.mark.proves("M6")
async def test_a_rule_that_breaks_is_told_of_once_and_stops_no_other(watched):
    rules = (Breaking(), *BUILT_IN)
    watched.guardian = Guardian(SystemClock(), watched.deeds, rules=rules)
    await watched.see(DANGER, DANGER, DANGER)
    assert await watched.act() == ["guardian.failed", "guardian.asked"]
    failed = (await watched.events())[0]
    assert failed.data["why"] == "the rule breaking failed: RuntimeError: a bug"


class Reader:
    """Says what it is told to say, or nothing."""

    def __init__(self, answer) -> None:
        self.answer, self.read = answer, []

    async def review(self, transcript):
        self.read.append(transcript)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        return self.answer


async def reviewed(watched, reader, *, now=NOW) -> list[str]:
    readers = Readers(reader, timeout_s=0.2)
    watched.guardian = Guardian(SystemClock(), watched.deeds, readers=readers)
    said = AgentEvent(AgentEventKind.MESSAGE, {"text": "I write a game instead."})
    await watched.see(said, review=Act.NUDGE, now=now)
    facts = Facts(now, policy=GuardianPolicy(acts={"review": Act.NUDGE}))
    found = await watched.guardian.review(await watched.task(), facts)
    if found is not None:
        await watched.change(lambda _tx, task: found.write(task))
    return await watched.act()


@pytest.mark.proves("M6")
async def test_a_reader_that_sees_an_agent_astray_is_heard(watched):
    reader = Reader(Review(Standing.ASTRAY, "It writes a game.", "Fix the parser."))
    assert await reviewed(watched, reader) == ["guardian.nudged"]
    ((transcript),) = reader.read
    assert (transcript.prompt, transcript.lines) == ("do it", ("agent: I write a game instead.",))
    ((_, text),) = watched.deeds.done.values()
    assert text.endswith("It writes a game. Fix the parser.")


async def test_a_reader_that_is_content_says_nothing_and_is_not_asked_again_at_once(watched):
    reader = Reader(Review(Standing.ON_TRACK))
    assert await reviewed(watched, reader) == []
    assert await reviewed(watched, reader, now=NOW + 10) == []
    assert len(reader.read) == 1
    assert await reviewed(watched, reader, now=NOW + 1e10) == []
    assert len(reader.read) == 2


@pytest.mark.proves("M6", "Q4")
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "no answer within 0.2 s"),
        (Unavailable("nobody there"), "nobody there"),
        (KeyError("x"), "KeyError"),
        (Review(Standing.UNKNOWN, "too little to read"), "cannot tell: too little to read"),
    ],
)
async def test_a_reader_that_fails_is_unknown_never_content_and_blocks_nothing(
    watched, answer, why
):
    async with asyncio.timeout(10):
        assert await reviewed(watched, Reader(answer)) == ["guardian.failed"]
    (event,) = await watched.events()
    assert why in event.data["why"]
    assert watched.deeds.calls == []


async def test_a_task_that_wants_a_reader_where_there_is_none_hears_so(watched):
    assert await reviewed(watched, None) == ["guardian.failed"]
    assert "[tasks.reviewer]" in (await watched.events())[0].data["why"]


@pytest.mark.proves("M6")
async def test_only_so_many_tasks_are_read_at_once():
    going, most = 0, 0

    class Slow:
        async def review(self, transcript):
            nonlocal going, most
            going += 1
            most = max(most, going)
            await asyncio.sleep(0.01)
            going -= 1
            return Review(Standing.ON_TRACK)

    readers = Readers(Slow(), most=3)
    await asyncio.gather(*(readers.read(None) for _ in range(20)))
    assert most == 3
