"""Real agents work against the scripted model, through their own tools and without a key."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.testing.models import (
    CallMcp,
    Cut,
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
from tests.testing.models import agents
from tests.testing.models.agents import CLAUDE, CODEX, GEMINI, OPENCODE, NotInstalled, Place, run

pytestmark = pytest.mark.timeout(400)

WORK = Script(
    (
        Turn(
            think="A file is wanted.",
            say="I will write it.",
            calls=(WriteFile("notes/hello.txt", "hello\nworld\n"),),
            usage=Usage(1000, 50, 400, 100, 20),
        ),
        Turn(calls=(ReadFile("notes/hello.txt"),)),
        Turn(calls=(EditFile("notes/hello.txt", "world", "paddock"),)),
        Turn(calls=(RunShell("wc -l < notes/hello.txt > count.txt; echo made-by-shell"),)),
        Turn(say="All of it is done."),
    )
)


@pytest.fixture
def installed(need):
    def program(package) -> Path:
        try:
            return agents.install(package)
        except NotInstalled as error:
            need(str(package), str(error))

    return program


@pytest.fixture
def place(tmp_path):
    return Place.under(tmp_path)


async def works(launch_with, place):
    """The agent does all of the script's work; gives its events and the model's requests."""
    async with ScriptedModel(WORK) as model:
        events = await run(launch_with(model.url), place)
        assert [request.turn for request in model.turns] == [0, 1, 2, 3, 4], model.problems
        assert not model.problems
        assert "made-by-shell" in model.turns[4].asked.said("tool")
        assert "do the task" in model.turns[0].asked.said("user")
    assert (place.workspace / "notes" / "hello.txt").read_text() == "hello\npaddock\n"
    assert (place.workspace / "count.txt").read_text().strip() == "2"
    assert "All of it is done." in json.dumps(events)
    return events, [request.path for request in model.turns]


@pytest.mark.parametrize("name", ["claude-sonnet-4-5", "claude-opus-5-5"])
async def test_claude_code_does_the_work(installed, place, name):
    program = installed(CLAUDE)
    events, _ = await works(
        lambda url: agents.claude(program, place, url, "do the task", name), place
    )
    usage = events[-1]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (5000, 250)
    assert (usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (400, 100)
    assert "A file is wanted." in json.dumps(events)


@pytest.mark.parametrize("name", ["gpt-5.5", "gpt-6-sol", "unheard-of"])
async def test_codex_does_the_work_with_each_kind_of_tools(installed, place, name):
    program = installed(CODEX)
    events, _ = await works(
        lambda url: agents.codex(program, place, url, "do the task", name), place
    )
    usage = events[-1]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (5000, 250)
    assert (usage["cached_input_tokens"], usage["reasoning_output_tokens"]) == (400, 20)


@pytest.mark.parametrize("launch", [agents.gemini, agents.gemini_with_login])
async def test_gemini_does_the_work(installed, place, launch):
    program = installed(GEMINI)
    events, paths = await works(lambda url: launch(program, place, url, "do the task"), place)
    assert paths[0].startswith("/v1beta" if launch is agents.gemini else "/v1internal:")
    assert (events[-1]["stats"]["input_tokens"], events[-1]["stats"]["cached"]) == (5000, 400)


@pytest.mark.slow
@pytest.mark.parametrize("sdk", ["openai-compatible", "anthropic", "openai", "google"])
async def test_opencode_does_the_work(installed, place, sdk):
    program = installed(OPENCODE)
    await works(lambda url: agents.opencode(program, place, url, "do the task", sdk), place)


@pytest.mark.parametrize(
    "trouble",
    [{"fail": Fail(529, times=1)}, {"cut": Cut(after=3, times=1)}],
    ids=["failure", "cut"],
)
@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_an_agent_that_tries_again_gets_the_same_turn(installed, place, agent, trouble):
    program = installed({"claude": CLAUDE, "codex": CODEX}[agent])
    script = Script((Turn(calls=(WriteFile("a.txt", "a\n"),), **trouble), Turn(say="Done.")))
    async with ScriptedModel(script) as model:
        await run(getattr(agents, agent)(program, place, model.url, "do the task"), place)
        places = [request.turn for request in model.turns]
    assert (places[0], places[-1]) == (0, 1)
    assert places.count(0) >= 2
    assert (place.workspace / "a.txt").read_text() == "a\n"


@pytest.mark.parametrize(
    ("launch", "package", "model"),
    [
        (agents.claude, CLAUDE, {}),
        (agents.codex, CODEX, {}),
        (agents.codex, CODEX, {"model": "gpt-6-sol"}),
        (agents.gemini, GEMINI, {}),
        pytest.param(agents.opencode, OPENCODE, {}, marks=pytest.mark.slow),
    ],
    ids=["claude", "codex", "codex-lite", "gemini", "opencode"],
)
async def test_tools_of_mcp_servers_are_called_by_their_neutral_names(
    installed, place, launch, package, model
):
    script = Script((Turn(calls=(CallMcp("echo", "say", {"what": "hi"}),)), Turn(say="Done.")))
    async with ScriptedModel(script) as scripted:
        begun = launch(installed(package), place, scripted.url, "do the task", **model)
        await run(begun, place)
        assert "ECHOED hi" in scripted.turns[1].asked.said("tool")


async def test_a_resumed_session_goes_on_in_the_script(installed, place):
    program = installed(CODEX)
    turns = [Turn(calls=(WriteFile(f"{n}.txt", "x\n"),)) for n in range(2)]
    said = [Turn(say="First done."), Turn(say="Second done.")]
    script = Script((turns[0], said[0], turns[1], said[1]))
    async with ScriptedModel(script) as model:
        launch = agents.codex(program, place, model.url, "do the task")
        await run(launch, place)
        assert [request.turn for request in model.turns] == [0, 1]
        again = [*launch.command[:-1], "resume", "--last", "and another"]
        await run(replace(launch, command=again), place)
        assert [request.turn for request in model.turns] == [0, 1, 2, 3]
    assert {path.name for path in place.workspace.iterdir()} == {"0.txt", "1.txt"}


async def test_agents_at_once_each_play_their_own_script(installed, tmp_path):
    scripts = [
        Script((Turn(calls=(WriteFile("a.txt", f"{n}\n"),)), Turn(say="Done.")), n, marker=f"[{n}]")
        for n in ("one", "two", "three")
    ]
    launchers = [(agents.claude, CLAUDE), (agents.codex, CODEX), (agents.codex, CODEX)]
    async with ScriptedModel(*scripts) as model, asyncio.TaskGroup() as group:
        for script, (launch, package) in zip(scripts, launchers, strict=True):
            (tmp_path / script.name).mkdir()
            place = Place.under(tmp_path / script.name)
            prompt = f"do the task {script.marker}"
            group.create_task(run(launch(installed(package), place, model.url, prompt), place))
    for script in scripts:
        assert (tmp_path / script.name / "workspace" / "a.txt").read_text() == f"{script.name}\n"
        assert [r.turn for r in model.turns if r.script == script.name] == [0, 1]


async def test_a_message_in_the_middle_of_a_run_is_in_a_later_request(installed, place):
    program = installed(CLAUDE)
    script = Script(
        (
            Turn(calls=(RunShell("echo first"),), gate="told"),
            Turn(say="I have seen it."),
        ),
        afterwards=Turn(say="I have seen it."),
    )
    async with ScriptedModel(script) as model:
        launch = agents.claude(program, place, model.url, "do the task")
        async with agents.started(launch, place) as process, asyncio.timeout(90):
            process.stdin.write(launch.stdin)
            await model.wait_for(lambda request: request.turn == 0)
            process.stdin.write(agents.claude_says("steer to the left"))
            await asyncio.sleep(0.5)
            model.open("told")
            seen = await model.wait_for(lambda request: "steer to the left" in request.said())
            process.stdin.close()
            await process.stdout.read()
    # The next one, unless this machine is so busy that the agent read it too late for that.
    assert seen.turn in (1, 2)
    assert "first" in seen.asked.said("tool")
