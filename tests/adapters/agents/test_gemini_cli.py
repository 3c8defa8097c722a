"""The real Gemini CLI by its adapter, against a scripted model."""

import asyncio

import pytest

from paddock.adapters.agents.gemini import Gemini
from paddock.domain.agent import ToolServer
from paddock.domain.agent_event import AgentEventKind as Kind
from paddock.domain.message import Mode
from paddock.testing.models import (
    CallMcp,
    EditFile,
    Fail,
    RunShell,
    Script,
    ScriptedModel,
    Turn,
    Usage,
    WriteFile,
)
from tests.adapters.agents.driving import brief_for, drive, driving, message
from tests.testing.models import agents
from tests.testing.models.agents import ECHO, GEMINI, NotInstalled, Place

pytestmark = [pytest.mark.timeout(240)]

KEYS = {"GEMINI_API_KEY": "scripted-key-of-some-length"}
WORK = Script(
    (
        Turn(
            say="I will.",
            calls=(WriteFile("a.txt", "hello\nworld\n"),),
            usage=Usage(1000, 50, 400, 0, 20),
        ),
        Turn(calls=(EditFile("a.txt", "world", "paddock"),)),
        Turn(calls=(CallMcp("echo", "say", {"what": "hi"}),)),
        Turn(say="All done."),
    ),
    afterwards=Turn(say="More is done."),
)


@pytest.fixture
def place(tmp_path):
    return Place.under(tmp_path)


@pytest.fixture
def brief(need, place):
    def made(model, prompt="do the task", **more):
        try:
            program = agents.install(GEMINI)
        except NotInstalled as error:
            need(str(GEMINI), str(error))
        routes = {"routes": {"gemini": model.url}, "keys": {"gemini": "GEMINI_API_KEY"}}
        tools = {"tools": (ToolServer("echo", tuple(ECHO)),)}
        return brief_for(place, program, prompt, **routes, **tools, **more)

    return made


@pytest.mark.proves("T21", "T3")
async def test_it_works_with_its_tools(brief, place):
    async with ScriptedModel(WORK) as model:
        driven = await drive(Gemini(), brief(model), place, KEYS)
        assert [request.turn for request in model.turns] == [0, 1, 2, 3]
        assert not model.problems
        assert "ECHOED hi" in model.turns[3].asked.said("tool")
    assert (place.workspace / "a.txt").read_text() == "hello\npaddock\n"
    started = driven.of(Kind.STARTED)[0]
    assert (started["version"], started["model"]) == ("0.61.0", "gemini-2.5-pro")
    assert started["session"] == driven.session != ""
    assert driven.of(Kind.MESSAGE) == [{"text": "I will."}, {"text": "All done."}]
    names = [call["name"] for call in driven.of(Kind.TOOL_CALL)]
    assert names == ["write_file", "replace", "mcp_echo_say"]
    assert all(result["ok"] for result in driven.of(Kind.TOOL_RESULT))
    _, updated = driven.of(Kind.FILE_EDITED)
    assert "-world\n" in updated["diff"]
    assert "+paddock\n" in updated["diff"]
    used = driven.of(Kind.USAGE)
    tokens = {"input_tokens": 4000, "cached_tokens": 400, "output_tokens": 220}
    assert used == [{**tokens, "reasoning_tokens": 20}]
    assert driven.of(Kind.COMPLETED) == [{"text": "All done.", "ok": True}]
    assert not driven.of(Kind.ERROR)


@pytest.mark.proves("T4")
@pytest.mark.slow
async def test_another_run_goes_on(brief, place):
    async with ScriptedModel(WORK) as model:
        first = await drive(Gemini(), brief(model), place, KEYS)
        asked = brief(model, "now go on", session=first.session)
        again = await drive(Gemini(), asked, place, KEYS)
        assert "do the task" in model.turns[-1].said()
        assert "now go on" in model.turns[-1].said()
    assert first.session == again.session != ""
    assert again.of(Kind.MESSAGE) == [{"text": "More is done."}]
    assert again.total("input_tokens") == 1000


@pytest.mark.proves("M3")
@pytest.mark.slow
async def test_messages_reach_the_model_after_a_tool_and_after_a_turn(brief, place):
    script = Script(
        (
            Turn(calls=(RunShell("sleep 3; echo A"),)),
            Turn(say="I turn.", gate="late"),
            Turn(say="And another."),
            Turn(say="And a late one."),
        )
    )
    async with ScriptedModel(script) as model:
        async with driving(Gemini(), brief(model), place, KEYS) as driven:
            await driven.until_kind(Kind.TOOL_CALL)
            await driven.tell(message("afterwards another", Mode.TURN, "msg_turn"))
            await driven.tell(message('turn "left" $(id)', Mode.NOW, "msg_now"))
            await model.wait_for(lambda request: request.turn == 1)
            await driven.until(lambda now: now.delivered)
            assert driven.delivered == ["msg_now"]
            # There is no tool any more after which it could be taken.
            await driven.tell(message("this is late", Mode.NOW, "msg_late"))
            model.open("late")
            await driven.finished()
        assert 'turn "left" $(id)' in model.turns[1].said()
        assert "afterwards another" not in model.turns[1].said()
        assert "afterwards another" in model.turns[2].asked.said("user")
        assert "this is late" in model.turns[2].asked.said("user")
    assert sorted(driven.seen) == ["msg_late", "msg_now", "msg_turn"]
    assert [done["text"] for done in driven.of(Kind.COMPLETED)] == ["I turn.", "And another."]


@pytest.mark.proves("M4")
@pytest.mark.slow
async def test_an_interruption_ends_it_and_another_run_goes_on(brief, place):
    # A call that was not finished is not in the session, so that the script begins again.
    wait = "timeout 30 sh -c 'until test -e go; do sleep 0.1; done'"
    once = RunShell(f"test -e begun || {{ touch begun; {wait}; }}")
    script = Script((Turn(say="I wait.", calls=(once,)), Turn(say="Something else.")))
    async with ScriptedModel(script) as model:
        async with driving(Gemini(), brief(model), place, KEYS) as driven:
            await driven.until_kind(Kind.TOOL_CALL)
            async with asyncio.timeout(30):
                while not (place.workspace / "begun").exists():
                    await asyncio.sleep(0.05)
            await driven.tell(message("do something else", Mode.INTERRUPT))
            await driven.finished()
        # Its tool is in a session of its own, and lives on where no sandbox ends it.
        (place.workspace / "go").touch()
        assert driven.then == "do something else"
        asked = brief(model, driven.then, session=driven.session)
        after = await drive(Gemini(), asked, place, KEYS)
        assert "do the task" in model.turns[-1].said()
        assert "do something else" in model.turns[-1].said()
    assert not driven.of(Kind.ERROR)
    assert driven.of(Kind.COMPLETED) == [{"text": "I wait.", "ok": False}]
    assert after.of(Kind.COMPLETED)[0]["ok"]


@pytest.mark.slow
async def test_what_comes_before_its_first_words_goes_with_its_prompt(brief, place):
    async with ScriptedModel(Script((Turn(say="Heard."),))) as model:
        async with driving(Gemini(), brief(model), place, KEYS) as driven:
            await driven.tell(message("and be quick", Mode.INTERRUPT))
            await driven.finished()
        assert "and be quick" in model.turns[0].said()
    assert driven.seen == ["msg_1"]


@pytest.mark.proves("T3")
@pytest.mark.slow
async def test_a_refused_key_is_a_final_error(brief, place):
    async with ScriptedModel(Script((Turn(fail=Fail(401, "bad key")),))) as model:
        driven = await drive(Gemini(), brief(model), place, KEYS)
    error = driven.of(Kind.ERROR)[-1]
    assert (error["final"], error["status"]) == (True, 401)
    assert "bad key" in error["message"]
    assert not driven.of(Kind.COMPLETED)


@pytest.mark.slow
async def test_a_session_that_is_not_there_is_an_error(brief, place):
    async with ScriptedModel(WORK) as model:
        asked = brief(model, session="00000000-0000-4000-8000-000000000001")
        driven = await drive(Gemini(), asked, place, KEYS)
    assert "resuming session" in driven.of(Kind.ERROR)[0]["message"]


@pytest.mark.proves("T3")
@pytest.mark.slow
async def test_a_long_prompt_that_looks_like_a_command_arrives_as_it_is(brief, place):
    prompt = "/memory show " + 'it\'s "not" a `$(command)` é\\n\n' * 40_000
    async with ScriptedModel(Script((Turn(say="Heard."),))) as model:
        driven = await drive(Gemini(), brief(model, prompt), place, KEYS)
        assert prompt in model.turns[0].said()
    assert driven.of(Kind.MESSAGE) == [{"text": "Heard."}]
