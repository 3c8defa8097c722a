"""Claude Code: `claude -p`, with lines of JSON on its input and its output.

Its input stays open for messages: it takes them at the next tool boundary, or after the turn, and
says of each when it has it and when the model gets it. When the input is closed it ends.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from paddock.adapters.agents import claude_stream as stream
from paddock.adapters.agents.checks import check_model, check_options, is_variable, uuid_or_nothing
from paddock.adapters.agents.lines import Json, parsed
from paddock.domain.agent import (
    AuthFile,
    Brief,
    Launch,
    Need,
    Package,
    Say,
    Talk,
    ToolServer,
    Traits,
    WorkMode,
)
from paddock.domain.message import Message, Mode

_OWN_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_TRAITS = Traits(
    name="claude_code",
    title="Claude Code",
    package=Package(
        "@anthropic-ai/claude-code", "2.1.325", "@anthropic-ai/claude-code-linux-*/claude"
    ),
    modes=frozenset(Mode),
    resumes=True,
    tools=True,
    reports_usage=True,
    needs=tuple(Need(variable, "anthropic") for variable in _OWN_KEYS),
    auth_files=(AuthFile("CLAUDE_CREDENTIALS", ".claude/.credentials.json"),),
    default_model="claude-opus-5-5",
    keeps_to=frozenset({WorkMode.EXPLORE, WorkMode.VALIDATE}),
)
_STREAMS = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
_WAYS = ("--replay-user-messages", "--strict-mcp-config")
_FREE = "--dangerously-skip-permissions"
_MANNERS = {
    WorkMode.IMPLEMENT: (_FREE,),
    WorkMode.EXPLORE: ("--permission-mode", "plan"),
    WorkMode.VALIDATE: (_FREE, "--disallowedTools", "Edit,Write,NotebookEdit"),
}
# A refused key is tried again too, with waits that double: six take half a minute.
_DEFAULTS = {"CLAUDE_CODE_MAX_RETRIES": "6"}
_SETTINGS = {
    # What the sandbox is: without it the agent refuses to work unasked as root.
    "IS_SANDBOX": "1",
    # Otherwise it also talks to its maker, whatever its base URL.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}


class ClaudeCode:
    """See `claude_stream` for what is kept of a conversation."""

    @property
    def traits(self) -> Traits:
        return _TRAITS

    def check(self, brief: Brief) -> None:
        check_model(_TRAITS.name, brief.model)
        check_options(_TRAITS.name, brief)

    def launch(self, brief: Brief) -> Launch:
        earlier = uuid_or_nothing(brief.session)
        session = ("--resume", earlier) if earlier else ("--session-id", stream.uuid_of(brief.key))
        model = ("--model", brief.model or _TRAITS.default_model)
        settings = _settings(brief.keys.get("anthropic", ""))
        servers = {server.name: _server(server) for server in brief.tools}
        tools = ("--mcp-config", json.dumps({"mcpServers": servers})) if servers else ()
        ways = (*_WAYS, *_MANNERS[brief.mode], *_allowed(brief))
        argv = (brief.program, "-p", *_STREAMS, *ways, *model, *session, *settings, *tools)
        return Launch(argv, {**_DEFAULTS, **brief.env, **_SETTINGS, **_places(brief)})

    def begin(self, brief: Brief) -> Talk:
        return Talk(state=stream.BEGUN, says=(Say(stream.user(brief.prompt)),))

    def hear(self, talk: Talk, line: bytes) -> Talk:
        return stream.step(talk.state, parsed(line))

    def tell(self, talk: Talk, message: Message) -> Talk:
        return stream.told(talk.state, message)

    def drop(self, talk: Talk, message_ids: Collection[str]) -> Talk:
        """Nothing is kept here but what interrupts."""
        return stream.step(talk.state, None)

    def taken(self, talk: Talk, message_id: str) -> Talk:
        """Never asked for: it has no inbox."""
        return talk.further()

    def stop(self, talk: Talk) -> Talk:
        return stream.stopped(talk.state)

    def end(self, talk: Talk, exit_code: int | None, said: str) -> Talk:
        return stream.ended(talk.state, exit_code, said)


def _places(brief: Brief) -> Mapping[str, str]:
    base = brief.routes.get("anthropic", "")
    return {"HOME": brief.home, **({"ANTHROPIC_BASE_URL": base} if base else {})}


def _settings(variable: str) -> tuple[str, ...]:
    """A key in a variable that the agent does not know is fetched from there by a command."""
    if not variable or variable in _OWN_KEYS or not is_variable(variable):
        return ()
    return ("--settings", json.dumps({"apiKeyHelper": f"printenv {variable}"}))


def _allowed(brief: Brief) -> tuple[str, ...]:
    """Who is only to look may speak at its desk all the same."""
    desks = [f"mcp__{each.name}" for each in brief.tools if each.token_variable]
    is_asked = desks and brief.mode is WorkMode.EXPLORE
    return ("--allowedTools", ",".join(desks)) if is_asked else ()


def _server(server: ToolServer) -> Json:
    if server.url:
        # It puts the variable in by itself, so that no list of processes shows the value.
        bearer = {"Authorization": f"Bearer ${{{server.token_variable}}}"}
        return {
            "type": "http",
            "url": server.url,
            **({"headers": bearer} if server.token_variable else {}),
        }
    command, *arguments = server.command
    given: dict[str, Any] = {"type": "stdio", "command": command, "args": arguments}
    return {**given, "env": dict(server.env)}
