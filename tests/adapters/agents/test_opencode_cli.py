"""The real opencode by its adapter, against a scripted model."""

import pytest

from paddock.adapters.agents.opencode import OpenCode
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
    WriteFile,
)
from tests.adapters.agents.driving import brief_for, drive, driving, message
from tests.testing.models import agents
from tests.testing.models.agents import ECHO, OPENCODE, NotInstalled, Place

pytestmark = [pytest.mark.timeout(240)]

KEY = "ANTHROPIC_API_KEY"
KEYS = {KEY: "scripted-key-of-some-length"}
MODEL = "anthropic/claude-sonnet-4-5"
WORK = Script(
    (
        Turn(think="A file.", say="I will.", calls=(WriteFile("a.txt", "hello\nworld\n"),)),
        Turn(calls=(EditFile("a.txt", "world", "paddock"),)),
        Turn(say="All done."),
    ),
    afterwards=Turn(say="More is done."),
)


@pytest.fixture
def place(tmp_path):
    return Place.under(tmp_path)


@pytest.fixture
def brief(need, place):
    def made(server, prompt="do the task", **more):
        try:
            program = agents.install(OPENCODE)
        except NotInstalled as error:
            need(str(OPENCODE), str(error))
        routes = {"routes": {"anthropic": server.url}, "keys": {"anthropic": KEY}}
        return brief_for(place, program, prompt, **{"model": MODEL, **routes, **more})

    return made


@pytest.mark.proves("T3")
@pytest.mark.slow  # its start alone takes most of ten seconds of processor time
async def test_it_writes_and_edits_a_file(brief, place):
    async with ScriptedModel(WORK) as model:
        driven = await drive(OpenCode(), brief(model), place, KEYS)
        assert [request.turn for request in model.turns] == [0, 1, 2]
        assert len(model.requests) == 3, "no title is asked for"
        assert not model.problems
    assert (place.workspace / "a.txt").read_text() == "hello\npaddock\n"
    assert driven.exit_code == 0
    started = driven.of(Kind.STARTED)[0]
    assert (started["version"], started["model"]) == ("1.18.33", MODEL)
    assert started["session"] == driven.session != ""
    assert driven.of(Kind.THINKING) == [{"text": "A file."}]
    assert driven.of(Kind.MESSAGE) == [{"text": "I will."}, {"text": "All done."}]
    assert [call["name"] for call in driven.of(Kind.TOOL_CALL)] == ["write", "edit"]
    assert [result["ok"] for result in driven.of(Kind.TOOL_RESULT)] == [True, True]
    added, updated = driven.of(Kind.FILE_EDITED)
    assert added["kind"] == "add"
    assert "+hello\n+world\n" in added["diff"]
    assert (updated["kind"], updated["path"]) == ("update", str(place.workspace / "a.txt"))
    assert "-world" in updated["diff"]
    assert "+paddock" in updated["diff"]
    assert driven.of(Kind.COMPLETED) == [{"text": "All done.", "ok": True}]
    assert not driven.of(Kind.ERROR)


@pytest.mark.proves("T4")
@pytest.mark.slow
async def test_a_later_run_goes_on(brief, place):
    async with ScriptedModel(WORK) as model:
        first = await drive(OpenCode(), brief(model), place, KEYS)
        asked = brief(model, "now go on", session=first.session)
        second = await drive(OpenCode(), asked, place, KEYS)
        assert not model.problems
        assert "do the task" in model.turns[-1].said()
        assert "now go on" in model.turns[-1].said()
    assert second.session == first.session
    assert second.of(Kind.MESSAGE) == [{"text": "More is done."}]


@pytest.mark.proves("M3", "T21")
@pytest.mark.slow
async def test_messages_reach_the_model_within_the_turn_and_after_it(brief, place):
    script = Script(
        (
            Turn(calls=(CallMcp("echo", "say", {"what": "hi"}),)),
            Turn(calls=(RunShell("sleep 3; echo A"),)),
            Turn(say="I turn."),
            Turn(say="Another."),
        )
    )
    tools = (ToolServer("echo", tuple(ECHO)),)
    async with ScriptedModel(script) as model:
        async with driving(OpenCode(), brief(model, tools=tools), place, KEYS) as driven:
            await driven.until_kind(Kind.TOOL_CALL, 2)
            await driven.tell(message("and then another", Mode.TURN, "msg_turn"))
            await driven.tell(message("turn to the left", Mode.NOW, "msg_now"))
            await driven.until_kind(Kind.MESSAGE)
            assert driven.seen == ["msg_now"]
            await driven.finished()
        said = [request.said() for request in model.turns]
        assert ["turn to the left" in each for each in said] == [False, False, True, True]
        assert ["and then another" in each for each in said] == [False, False, False, True]
    assert "ECHOED hi" in driven.of(Kind.TOOL_RESULT)[0]["output"]
    assert driven.seen == ["msg_now", "msg_turn"]
    assert [done["text"] for done in driven.of(Kind.COMPLETED)] == ["I turn.", "Another."]


@pytest.mark.proves("M4")
@pytest.mark.slow
async def test_an_interruption_breaks_off_what_it_does(brief, place):
    script = Script((Turn(calls=(RunShell("sleep 60"),)), Turn(say="Something else.")))
    async with ScriptedModel(script) as model:
        async with driving(OpenCode(), brief(model), place, KEYS) as driven:
            await driven.until_kind(Kind.TOOL_CALL)
            await driven.tell(message("do something else", Mode.INTERRUPT))
            await driven.finished(30)
        assert "do something else" in model.turns[1].said()
    assert driven.of(Kind.COMPLETED) == [
        {"text": "", "ok": False},
        {"text": "Something else.", "ok": True},
    ]
    assert driven.seen == ["msg_1"]


@pytest.mark.slow
async def test_it_stops_politely(brief, place):
    script = Script((Turn(calls=(RunShell("sleep 60"),)),))
    async with ScriptedModel(script) as model:
        async with driving(OpenCode(), brief(model), place, KEYS) as driven:
            await driven.until_kind(Kind.TOOL_CALL)
            await driven.stop()
            await driven.finished(20)
    assert driven.exit_code == 0
    assert driven.of(Kind.COMPLETED) == [{"text": "", "ok": False}]


@pytest.mark.proves("T3")
@pytest.mark.slow
async def test_a_refused_key_is_a_final_error(brief, place):
    async with ScriptedModel(Script((Turn(fail=Fail(401, "bad key")),))) as model:
        driven = await drive(OpenCode(), brief(model), place, KEYS)
    error = driven.of(Kind.ERROR)[0]
    assert error["final"]
    assert "bad key" in error["message"]
    assert not driven.of(Kind.COMPLETED)


@pytest.mark.proves("T3")
@pytest.mark.slow
async def test_a_long_prompt_that_looks_like_a_command_arrives_as_it_is(brief, place):
    prompt = '/init it\'s "not" a `$(command)` é\n' * 30_000
    async with ScriptedModel(Script((Turn(say="Heard."),))) as model:
        driven = await drive(OpenCode(), brief(model, prompt), place, KEYS)
        assert prompt in model.turns[0].said()
    assert driven.of(Kind.MESSAGE) == [{"text": "Heard."}]


@pytest.mark.slow
async def test_a_session_that_is_not_there_is_an_error(brief, place):
    async with ScriptedModel(WORK) as model:
        driven = await drive(OpenCode(), brief(model, session="ses_none"), place, KEYS)
    assert driven.of(Kind.ERROR)[0]["final"]
    assert not driven.of(Kind.COMPLETED)


@pytest.mark.proves("T3")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("route", "name", "path"),
    [
        ("openai", "gpt-5.5", "/v1/responses"),
        ("gemini", "gemini-2.5-pro", "/v1beta/"),
        ("openrouter", "qwen/qwen4", "/api/v1/chat/completions"),
        ("house", "unheard-of", "/v1/chat/completions"),
    ],
)
async def test_each_route_is_spoken_to_in_its_own_dialect(brief, place, route, name, path):
    async with ScriptedModel(WORK) as model:
        given = {"routes": {route: model.url}, "keys": {route: "SOME_KEY"}}
        asked = brief(model, model=f"{route}/{name}", **given)
        driven = await drive(OpenCode(), asked, place, {"SOME_KEY": "key-of-that-route-123"})
        assert model.turns[0].path.startswith(path)
        assert "key-of-that-route-123" in str(model.turns[0].headers)
    assert driven.of(Kind.COMPLETED)[0]["ok"]
    assert (place.workspace / "a.txt").read_text() == "hello\npaddock\n"
