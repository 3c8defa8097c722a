"""Gemini CLI: its prompt on its input, events on its output, and messages by hooks.

It takes nothing on its input once it works. So messages lie in the run's inbox, and a hook of the
agent takes them from there: after a tool for the same turn, and at the end of a turn for another.
Nothing it understands breaks off what it does; it is ended, and a new run goes on with its session.
"""

import json
import shlex
from collections.abc import Collection
from importlib.resources import files

from paddock.adapters.agents import gemini_stream as stream
from paddock.adapters.agents.checks import check_model, check_options, session_of
from paddock.adapters.agents.lines import Json, parsed, written
from paddock.adapters.agents.words import as_it_stands
from paddock.domain.agent import (
    Brief,
    Door,
    Launch,
    Need,
    Package,
    PlacedFile,
    Say,
    Talk,
    ToolServer,
    Traits,
    WorkMode,
)
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Message, Mode

_PACKAGE = Package("@google/gemini-cli", "0.61.0", ".bin/gemini")
_KEY = "GEMINI_API_KEY"
_TRAITS = Traits(
    name="gemini",
    title="Gemini CLI",
    package=_PACKAGE,
    modes=frozenset(Mode),
    resumes=True,
    tools=True,
    reports_usage=True,
    needs=(Need(_KEY, "gemini"),),
    default_model="gemini-2.5-pro",
    keeps_to=frozenset({WorkMode.EXPLORE, WorkMode.VALIDATE}),
)
_PLACE = ".paddock/gemini"
_HOOK = "inbox.cjs"
_SETTINGS: Json = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "telemetry": {"enabled": False},
}
_SWITCHES = {
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    # Otherwise a parent of its own keeps signals from it.
    "GEMINI_CLI_NO_RELAUNCH": "true",
    "NO_BROWSER": "1",
}
_HOOK_TIMEOUT_MS = 10_000
_MANNERS = {
    WorkMode.IMPLEMENT: ("--yolo",),
    WorkMode.EXPLORE: ("--approval-mode", "plan"),
    WorkMode.VALIDATE: ("--yolo",),
}
_WRITING = ["write_file", "replace"]


class Gemini:
    """The state is `gemini_stream`'s."""

    @property
    def traits(self) -> Traits:
        return _TRAITS

    def check(self, brief: Brief) -> None:
        check_options(_TRAITS.name, brief)
        check_model(_TRAITS.name, brief.model)
        if brief.keys.get("gemini", _KEY) != _KEY:
            raise InvalidRequest(
                f"Gemini CLI looks for its key in {_KEY} only, not in {brief.keys['gemini']}",
                remediation=f"give the secret the name {_KEY}",
            )

    def launch(self, brief: Brief) -> Launch:
        place = f"{brief.home}/{_PLACE}"
        session = ("-r", earlier) if (earlier := session_of(brief.session)) else ()
        # Without a model it asks another one first which to use.
        model = ("-m", brief.model or _TRAITS.default_model)
        base = brief.routes.get("gemini", "")
        env = {**brief.env, **_SWITCHES, "HOME": brief.home, "GEMINI_CLI_HOME": place}
        hook = files("paddock.adapters.agents").joinpath("gemini_inbox.cjs").read_bytes()
        settings = json.dumps(_settings(brief, f"{place}/{_HOOK}")).encode()
        return Launch(
            (brief.program, "-o", "stream-json", *_MANNERS[brief.mode], *model, *session),
            {**env, "PWD": brief.cwd, **({"GOOGLE_GEMINI_BASE_URL": base} if base else {})},
            (
                PlacedFile(f"{place}/.gemini/settings.json", settings),
                PlacedFile(f"{place}/{_HOOK}", hook),
            ),
            closes_input=True,
        )

    def begin(self, brief: Brief) -> Talk:
        said = as_it_stands(brief.prompt).encode()
        return Talk(state={"version": _PACKAGE.version}, says=(Say(said),))

    def hear(self, talk: Talk, line: bytes) -> Talk:
        said = parsed(line)
        return talk.further() if said is None else stream.step(talk.state, said)

    def tell(self, talk: Talk, message: Message) -> Talk:
        state = talk.state
        if state.get("stopping") and "then" not in state:
            return talk.further()
        breaks = message.mode is Mode.INTERRUPT and state.get("begun")
        if breaks or state.get("over") or state.get("then"):
            then = "\n\n".join(filter(None, (state.get("then", ""), message.text)))
            must_stop = not state.get("over")
            after = {**state, "then": then, "stopping": must_stop}
            return Talk(after, delivered=(message.id,), must_stop=must_stop, then=then)
        # Before its first words there is nothing to break off, and no session to go on with.
        mode = "turn" if message.mode is Mode.TURN else "now"
        body = written({"id": message.id, "mode": mode, "text": message.text})
        told = {**state.get("told", {}), message.id: stream.PUT}
        says = (Say(body, Door.INBOX, message.id),)
        return Talk(state={**state, "told": told}, says=says)

    def drop(self, talk: Talk, message_ids: Collection[str]) -> Talk:
        """Never asked for: what it is told, it has at once."""
        return talk.further()

    def taken(self, talk: Talk, message_id: str) -> Talk:
        return stream.taken(talk.state, message_id)

    def stop(self, talk: Talk) -> Talk:
        return Talk(state={**talk.state, "stopping": True}, must_stop=True)

    def end(self, talk: Talk, exit_code: int | None, said: str) -> Talk:
        return stream.ended(talk.state, exit_code, said)


def _settings(brief: Brief, hook: str) -> Json:
    servers = {server.name: _server(server) for server in brief.tools}
    events = ("BeforeAgent", "AfterTool", "AfterAgent")
    tools = {"tools": {"exclude": _WRITING}} if brief.mode is WorkMode.VALIDATE else {}
    hooks = {it: [_hook(hook, it)] for it in events}
    return {**_SETTINGS, **tools, "mcpServers": servers, "hooks": hooks}


def _hook(script: str, event: str) -> Json:
    # The one thing that a shell sees; nothing in it but our own path and name.
    command = f"node {shlex.quote(script)} {event}"
    hook = {"type": "command", "name": "paddock", "command": command, "timeout": _HOOK_TIMEOUT_MS}
    return {"matcher": "*", "hooks": [hook]}


def _server(server: ToolServer) -> Json:
    if server.url:
        bearer = {"Authorization": f"Bearer ${{{server.token_variable}}}"}
        headers = {"headers": bearer} if server.token_variable else {}
        return {"httpUrl": server.url, "trust": True, **headers}
    command, *arguments = server.command
    return {"command": command, "args": arguments, "env": dict(server.env), "trust": True}
