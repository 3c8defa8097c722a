"""Codex: `codex app-server`, which speaks JSON-RPC over lines and stays up for more turns.

A message goes into the running turn by `turn/steer`, or begins a turn of its own. When its input
is closed it ends.
"""

import json
from collections.abc import Collection
from typing import Any

from paddock.adapters.agents import codex_stream as stream
from paddock.adapters.agents.checks import check_model, check_options
from paddock.adapters.agents.lines import Json
from paddock.adapters.agents.rpc import heard
from paddock.domain.agent import AuthFile, Brief, Launch, Need, Package, Talk, ToolServer, Traits
from paddock.domain.message import Message, Mode

_KEY = "OPENAI_API_KEY"
_ROUTE = "openai"
_PROVIDER = "paddock"
_BASE_URL = "https://api.openai.com/v1"
_TRAITS = Traits(
    name="codex",
    title="Codex",
    package=Package("@openai/codex", "0.166.0", "@openai/codex-linux-*/vendor/*/bin/codex"),
    modes=frozenset(Mode),
    resumes=True,
    tools=True,
    reports_usage=True,
    needs=(Need(_KEY, _ROUTE),),
    auth_files=(AuthFile("CODEX_AUTH", ".codex/auth.json"),),
    default_model="gpt-6.1-sol",
)
# Otherwise it asks its maker and GitHub for this and that, and waits for a lost network for ever.
_QUIET: Json = {
    "check_for_update_on_startup": False,
    "analytics": {"enabled": False},
    "features": {
        "plugins": False,
        "apps": False,
        "remote_plugin": False,
        "plugin_discovery_prefetch": False,
        "unbounded_connection_retries": False,
    },
}


class Codex:
    """See `codex_stream` for what is kept of a conversation."""

    @property
    def traits(self) -> Traits:
        return _TRAITS

    def check(self, brief: Brief) -> None:
        check_model(_TRAITS.name, brief.model)
        check_options(_TRAITS.name, brief)

    def launch(self, brief: Brief) -> Launch:
        """Settings are arguments, so that a file of the user's own stays as it is."""
        servers = {server.name: _server(server) for server in brief.tools}
        tools = {"mcp_servers": servers} if servers else {}
        settings = {**_QUIET, **_provider(brief), **tools}
        overrides = [f"{name}={_toml(value)}" for name, value in settings.items()]
        flags = (part for override in overrides for part in ("-c", override))
        env = {**brief.env, "HOME": brief.home}
        # It would look there instead of in its home.
        env.pop("CODEX_HOME", None)
        return Launch((brief.program, "app-server", *flags), env)

    def begin(self, brief: Brief) -> Talk:
        return stream.begun(brief, brief.model or _TRAITS.default_model)

    def hear(self, talk: Talk, line: bytes) -> Talk:
        return stream.step(talk.state, heard(line))

    def tell(self, talk: Talk, message: Message) -> Talk:
        return stream.told(talk.state, message)

    def drop(self, talk: Talk, message_ids: Collection[str]) -> Talk:
        return stream.dropped(talk.state, message_ids)

    def taken(self, talk: Talk, message_id: str) -> Talk:
        """Never asked for: it has no inbox."""
        return talk.further()

    def stop(self, talk: Talk) -> Talk:
        return stream.stopped(talk.state)

    def end(self, talk: Talk, exit_code: int | None, said: str) -> Talk:
        return stream.ended(talk.state, exit_code, said)


def _provider(brief: Brief) -> Json:
    """A provider of its own: the built-in one knows no other address, and tries WebSockets."""
    base = brief.routes.get(_ROUTE, "")
    variable = brief.keys.get(_ROUTE, "") or (_KEY if _KEY in brief.env else "")
    if not base and not variable:
        # Whoever has logged in goes where that is good for.
        return {}
    key: Json = {"env_key": variable} if variable else {"requires_openai_auth": True}
    own = {"name": _PROVIDER, "base_url": base or _BASE_URL, "wire_api": "responses", **key}
    return {"model_provider": _PROVIDER, "model_providers": {_PROVIDER: own}}


def _server(server: ToolServer) -> Json:
    if server.url:
        token = {"bearer_token_env_var": server.token_variable} if server.token_variable else {}
        return {"url": server.url, **token}
    command, *arguments = server.command
    return {"command": command, "args": arguments, "env": dict(server.env)}


def _toml(value: Any) -> str:
    """As TOML in one line; its strings and lists are those of JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(of)}" for name, of in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
