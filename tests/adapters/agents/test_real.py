"""Real agents, driven by their adapters, against a model that follows a script."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.adapters.agents.registry import agent_named
from paddock.domain.agent import ToolServer
from paddock.domain.agent_event import AgentEventKind as Kind
from paddock.domain.message import Mode
from paddock.domain.task_wish import LONGEST_PROMPT
from paddock.ports.agent import Agent
from paddock.testing.models import (
    CallMcp,
    EditFile,
    Fail,
    ReadFile,
    RunShell,
    Script,
    ScriptedModel,
    Turn,
    Usage,
    WriteFile,
)
from tests.adapters.agents.driving import Driven, brief_for, drive, driving, message
from tests.testing.models import agents
from tests.testing.models.agents import NotInstalled, Place

pytestmark = [pytest.mark.timeout(180)]

WRITE = Turn(
    think="A file is wanted.",
    say="I will write it.",
    calls=(WriteFile("a.txt", "one\ntwo\n"),),
    usage=Usage(1000, 50, 400, 100, 20),
)
WORK = (WRITE, Turn(calls=(ReadFile("a.txt"),)), Turn(calls=(EditFile("a.txt", "two", "2"),)))
DONE = Turn(say="Done.")
# A tool that goes on until the test has seen that it runs and has said what it wanted to say.
WAIT = "for i in $(seq 300); do test -e go && break; sleep 0.1; done"
LONG = Turn(calls=(RunShell(f"touch begun; {WAIT}; echo out"),))


@dataclass(frozen=True)
class Real:
    """What differs between agents."""

    name: str
    route: str
    suffix: str
    model: str
    input_tokens: int
    """Of WORK and DONE: the script's numbers, as this kind of API counts them."""
    quick: dict[str, str]
    """Settings with which a failure does not take long."""
    listens: bool = False
    """A tool at work does not keep it from listening."""


REAL = [
    Real(
        "claude_code",
        "anthropic",
        "",
        "claude-sonnet-4-5",
        4500,
        {"CLAUDE_CODE_MAX_RETRIES": "1"},
    ),
    Real("codex", "openai", "/v1", "gpt-5.5", 4000, {}),
    # With this one it has other tools.
    Real("codex", "openai", "/v1", "gpt-6.1-sol", 4000, {}, listens=True),
]


*FIRST, _OTHER_TOOLS = REAL


@pytest.fixture(
    params=[*FIRST, pytest.param(_OTHER_TOOLS, marks=pytest.mark.slow)],
    ids=[real.model for real in REAL],
)
def real(request):
    return request.param


@dataclass
class Stage:
    """An installed agent and a place for it."""

    real: Real
    agent: Agent
    program: Path
    place: Place

    def brief(self, model: ScriptedModel, prompt: str = "do the task", **more):
        """The key has a name that the agent does not look for by itself."""
        return brief_for(
            self.place,
            self.program,
            prompt,
            routes={self.real.route: model.url + self.real.suffix},
            keys={self.real.route: "TEAM_KEY"},
            **{"model": self.real.model, **more},
        )

    def driving(self, model: ScriptedModel, prompt: str = "do the task", **more):
        brief = self.brief(model, prompt, **more)
        return driving(self.agent, brief, self.place, {"TEAM_KEY": "scripted"})

    async def drive(self, model: ScriptedModel, prompt: str = "do the task", **more) -> Driven:
        brief = self.brief(model, prompt, **more)
        return await drive(self.agent, brief, self.place, {"TEAM_KEY": "scripted"})

    async def begun(self, driven: Driven) -> None:
        """A tool is at work."""
        await driven.until_kind(Kind.TOOL_CALL)
        async with asyncio.timeout(20):
            while not (self.place.workspace / "begun").exists():
                await asyncio.sleep(0.02)

    def go(self) -> None:
        (self.place.workspace / "go").touch()


@pytest.fixture
def stage(real, need, tmp_path):
    agent = agent_named(real.name)
    package = agent.traits.package
    try:
        program = agents.install(package)
    except NotInstalled as error:
        need(str(package), str(error))
    return Stage(real, agent, program, Place.under(tmp_path))


@pytest.mark.proves("T3")
async def test_it_writes_and_edits_a_file(stage):
    async with ScriptedModel(Script((*WORK, DONE))) as model:
        driven = await stage.drive(model)
        assert not model.problems
        assert [request.turn for request in model.turns] == [0, 1, 2, 3]
    assert (stage.place.workspace / "a.txt").read_text() == "one\n2\n"
    assert driven.exit_code == 0
    (started,) = driven.of(Kind.STARTED)
    assert started["version"] == stage.agent.traits.package.version
    assert started["model"] == stage.real.model
    edits = driven.of(Kind.FILE_EDITED)
    assert [edit["kind"] for edit in edits] == ["add", "update"]
    assert {Path(edit["path"]).name for edit in edits} == {"a.txt"}
    assert "+one\n+two\n" in edits[0]["diff"]
    assert "-two\n+2\n" in edits[1]["diff"]
    calls, results = driven.of(Kind.TOOL_CALL), driven.of(Kind.TOOL_RESULT)
    assert {call["id"] for call in calls} == {result["id"] for result in results}
    assert all(result["ok"] for result in results)
    assert driven.of(Kind.COMPLETED) == [{"text": "Done.", "ok": True}]
    assert not driven.of(Kind.OTHER)
    assert driven.total("input_tokens") == stage.real.input_tokens
    assert (driven.total("cached_tokens"), driven.total("output_tokens")) == (400, 200)


@pytest.mark.proves("T4")
@pytest.mark.slow
async def test_a_later_run_goes_on(stage):
    script = Script((*WORK, DONE, Turn(say="Again.")))
    async with ScriptedModel(script) as model:
        first = await stage.drive(model)
        second = await stage.drive(model, "go on", key="run-2", session=first.session)
        assert not model.problems
        assert [request.turn for request in model.turns] == [0, 1, 2, 3, 4]
        assert "do the task" in model.turns[4].asked.said("user")
        assert "Done." in model.turns[4].asked.said("assistant")
    assert second.session == first.session
    assert second.of(Kind.COMPLETED) == [{"text": "Again.", "ok": True}]
    # Each token once, though agents go on counting over runs.
    assert (second.total("input_tokens"), second.total("output_tokens")) == (1000, 50)


@pytest.mark.proves("M3")
@pytest.mark.slow
async def test_a_message_for_now_reaches_the_model_within_the_turn(stage):
    async with ScriptedModel(Script((LONG, DONE))) as model, stage.driving(model) as driven:
        await stage.begun(driven)
        await driven.tell(message("steer to the left", Mode.NOW))
        await driven.until(lambda run: run.delivered == ["msg_1"])
        assert stage.real.listens or not driven.seen
        stage.go()
        await driven.finished()
        assert [request.turn for request in model.turns] == [0, 1]
        assert "steer to the left" in model.turns[1].said()
    assert driven.seen == ["msg_1"]
    assert driven.of(Kind.COMPLETED) == [{"text": "Done.", "ok": True}]


@pytest.mark.slow
async def test_a_message_for_the_next_turn_waits_for_the_end_of_this_one(stage):
    script = Script((LONG, DONE, Turn(say="Seen.")))
    async with ScriptedModel(script) as model, stage.driving(model) as driven:
        await stage.begun(driven)
        await driven.tell(message("and then Y", Mode.TURN))
        stage.go()
        await driven.finished()
        assert ["and then Y" in request.said() for request in model.turns] == [False, False, True]
    assert (driven.delivered, driven.seen) == (["msg_1"], ["msg_1"])
    assert [done["text"] for done in driven.of(Kind.COMPLETED)] == ["Done.", "Seen."]
    assert driven.total("input_tokens") == 3000


@pytest.mark.proves("M4")
@pytest.mark.slow
async def test_an_interruption_breaks_off_what_it_does(stage):
    script = Script((LONG, Turn(say="Turned.")))
    async with ScriptedModel(script) as model, stage.driving(model) as driven:
        await stage.begun(driven)
        await driven.tell(message("stop that, do Z", Mode.INTERRUPT))
        await driven.finished()
        assert "stop that, do Z" in model.turns[1].said()
    assert not (stage.place.workspace / "go").exists()
    assert (driven.delivered, driven.seen) == (["msg_1"], ["msg_1"])
    assert [done["ok"] for done in driven.of(Kind.COMPLETED)] == [False, True]
    assert not driven.of(Kind.ERROR)


@pytest.mark.slow
async def test_what_is_told_before_it_has_begun_reaches_the_model_too(stage):
    script = Script((DONE,), afterwards=Turn(say="More."))
    async with ScriptedModel(script) as model, stage.driving(model) as driven:
        for number, mode in enumerate((Mode.NOW, Mode.TURN)):
            await driven.tell(message(f"early {mode}", mode, f"msg_{number}"))
        await driven.finished()
        last = model.turns[-1].asked.said()
        assert [last.count(words) for words in ("do the task", "early now", "early turn")] == [
            1,
            1,
            1,
        ]
    assert sorted(driven.delivered) == sorted(driven.seen) == ["msg_0", "msg_1"]
    assert all(done["ok"] for done in driven.of(Kind.COMPLETED))


@pytest.mark.proves("M4")
@pytest.mark.slow
async def test_a_message_that_an_interruption_overtakes_is_not_lost(stage):
    script = Script((LONG, Turn(say="Turned.")), afterwards=Turn(say="More."))
    async with ScriptedModel(script) as model, stage.driving(model) as driven:
        await stage.begun(driven)
        await driven.tell(message("pebbles", Mode.NOW, "msg_1"))
        await driven.tell(message("feathers", Mode.INTERRUPT, "msg_2"))
        await driven.finished()
        last = model.turns[-1].asked.said()
        assert (last.count("pebbles"), last.count("feathers")) == (1, 1)
    assert sorted(driven.delivered) == sorted(driven.seen) == ["msg_1", "msg_2"]


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True], ids=["at work", "at once"])
async def test_a_stop_ends_it(stage, early):
    script = Script((LONG, LONG, DONE))
    async with ScriptedModel(script) as model, stage.driving(model) as driven:
        if not early:
            await stage.begun(driven)
            await driven.tell(message("never mind", Mode.TURN))
        await driven.stop()
        await driven.finished(20)
        # A message that the agent had already may begin a turn, which is broken off as well.
        assert len(model.turns) <= 2
    assert not driven.of(Kind.ERROR)
    assert not any(done["ok"] for done in driven.of(Kind.COMPLETED))


@pytest.mark.proves("T3")
@pytest.mark.slow
async def test_a_refused_key_is_a_failure_that_says_so(stage):
    async with ScriptedModel(Script((Turn(fail=Fail(401)),))) as model:
        driven = await stage.drive(model, env=stage.real.quick)
    errors = [error for error in driven.of(Kind.ERROR) if error["final"]]
    assert [error["status"] for error in errors] == [401]
    assert driven.of(Kind.WAITING)
    assert not driven.of(Kind.COMPLETED)


@pytest.mark.proves("T21", "T3")
@pytest.mark.slow
async def test_a_long_prompt_arrives_intact_and_tools_of_mcp_servers_are_called(stage):
    prompt = 'it\'s "$(touch /tmp/x)" `y` \\ \N{SNOWMAN}\u2028\n'.ljust(LONGEST_PROMPT - 4, "x")
    assert len(prompt.encode()) == LONGEST_PROMPT
    echo = ToolServer("echo", tuple(agents.ECHO))
    script = Script((Turn(calls=(CallMcp("echo", "say", {"what": "hi"}),)), DONE))
    async with ScriptedModel(script) as model:
        driven = await stage.drive(model, prompt, tools=(echo,))
        assert prompt in model.turns[0].said()
        assert "ECHOED hi" in model.turns[1].asked.said("tool")
    assert "ECHOED hi" in driven.of(Kind.TOOL_RESULT)[0]["output"]
    assert driven.of(Kind.COMPLETED)[0]["ok"]


@pytest.mark.slow
async def test_a_session_that_is_not_there_is_a_failure(stage):
    missing = "00000000-0000-4000-8000-000000000000"
    async with ScriptedModel(Script((DONE,))) as model:
        driven = await stage.drive(model, session=missing)
        assert not model.turns
    (error,) = driven.of(Kind.ERROR)
    assert error["final"]
    assert missing in error["message"]


@pytest.mark.proves("T3")
@pytest.mark.parametrize("name", sorted({real.name for real in REAL}))
async def test_a_program_that_is_no_agent_fails_with_what_it_said(name, tmp_path):
    place = Place.under(tmp_path)
    program = tmp_path / "program"
    program.write_text(
        "#!/bin/sh\nhead -c 300000 /dev/urandom; echo; echo '{}'; echo oops >&2; exit 3\n"
    )
    program.chmod(0o755)
    driven = await drive(agent_named(name), brief_for(place, program, "do the task"), place)
    (error,) = driven.of(Kind.ERROR)
    assert error["final"]
    assert error["message"].endswith("ended with 3 before it was done: oops")
