"""opencode: `opencode acp`, the Agent Client Protocol.

A prompt while another runs joins it at the next request to the model, and both are answered at its
end: that is how a message reaches it now. The tokens that it tells of are those of a turn's last
request only, so it is not asked for them; they are counted on their way to the model.
"""

import json
from collections.abc import Collection, Mapping

from paddock.adapters.agents import acp_talk
from paddock.adapters.agents.checks import check_model, check_options
from paddock.adapters.agents.lines import Json
from paddock.domain.agent import (
    AuthFile,
    Brief,
    Launch,
    Need,
    Package,
    Talk,
    ToolServer,
    Traits,
    WorkMode,
)
from paddock.domain.broker.models import KNOWN
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Message, Mode

_PLACE = ".paddock/opencode"
_TRAITS = Traits(
    name="opencode",
    title="opencode",
    package=Package("opencode-ai", "1.18.33", "opencode-linux-*/bin/opencode"),
    modes=frozenset(Mode),
    resumes=True,
    tools=True,
    needs=tuple(Need(known.key_variable, route) for route, known in KNOWN.items()),
    auth_files=(AuthFile("OPENCODE_AUTH", f"{_PLACE}/data/opencode/auth.json"),),
    default_model="anthropic/claude-opus-5-5",
    keeps_to=frozenset({WorkMode.EXPLORE, WorkMode.VALIDATE}),
)
_SETTINGS = {
    "autoupdate": False,
    "share": "disabled",
    # One request less: nobody reads the titles of its sessions.
    "agent": {"title": {"disable": True}},
}
_MANNERS: Mapping[WorkMode, object] = {
    WorkMode.IMPLEMENT: "allow",
    WorkMode.EXPLORE: {"*": "allow", "edit": "deny", "bash": "deny"},
    WorkMode.VALIDATE: {"*": "allow", "edit": "deny"},
}
_SWITCHES = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
_KINDS = ("data", "config", "cache", "state")
_NAMES = {"gemini": "google"}
"""What opencode calls a provider, and so knows the limits of its models, where that differs."""
_SDKS = {"anthropic": "@ai-sdk/anthropic", "openai": "@ai-sdk/openai", "gemini": "@ai-sdk/google"}
_PATHS = {"gemini": "/v1beta", "openrouter": "/api/v1"}


class OpenCode:
    """The conversation is `acp_talk`'s. Models are spelt route/model."""

    @property
    def traits(self) -> Traits:
        return _TRAITS

    def check(self, brief: Brief) -> None:
        check_options(_TRAITS.name, brief)
        check_model(_TRAITS.name, brief.model)
        route, _, model = (brief.model or _TRAITS.default_model).partition("/")
        if not route or not model:
            raise InvalidRequest(
                f"opencode's model {brief.model!r} does not say whose it is",
                remediation="put its route in front of it, such as anthropic/claude-opus-5-5",
            )

    def launch(self, brief: Brief) -> Launch:
        place = f"{brief.home}/{_PLACE}"
        env = {
            **brief.env,
            **{f"OPENCODE_DISABLE_{name}": "1" for name in _SWITCHES},
            # Its sessions lie there, and go wherever the home goes.
            **{f"XDG_{kind.upper()}_HOME": f"{place}/{kind}" for kind in _KINDS},
            "OPENCODE_CONFIG_CONTENT": json.dumps(_config(brief)),
            "HOME": brief.home,
            # It works where this says, not where it was started.
            "PWD": brief.cwd,
        }
        return Launch((brief.program, "acp"), env)

    def begin(self, brief: Brief) -> Talk:
        return acp_talk.begun(brief, meters=False)

    def hear(self, talk: Talk, line: bytes) -> Talk:
        return acp_talk.heard(talk, line)

    def tell(self, talk: Talk, message: Message) -> Talk:
        return acp_talk.told(talk, message)

    def drop(self, talk: Talk, message_ids: Collection[str]) -> Talk:
        return acp_talk.dropped(talk, message_ids)

    def taken(self, talk: Talk, message_id: str) -> Talk:
        """Never asked for: it has no inbox."""
        return talk.further()

    def stop(self, talk: Talk) -> Talk:
        return acp_talk.stopped(talk)

    def end(self, talk: Talk, exit_code: int | None, said: str) -> Talk:
        return acp_talk.ended(talk, "opencode", exit_code, said)


def _config(brief: Brief) -> Json:
    route, _, model = (brief.model or _TRAITS.default_model).partition("/")
    name = f"{_NAMES.get(route, route)}/{model}"
    routes = sorted({*brief.routes, *brief.keys})
    providers = {_NAMES.get(known, known): _provider(known, brief) for known in routes}
    if own := providers.get(_NAMES.get(route, route)):
        own["models"] = {model: {"name": model, "tool_call": True}}
    # The others are told when the session begins, in which a value would have to stand.
    servers = {each.name: _server(each) for each in brief.tools if each.token_variable}
    more = {"permission": _MANNERS[brief.mode], **({"mcp": servers} if servers else {})}
    return {**_SETTINGS, **more, "model": name, "small_model": name, "provider": providers}


def _server(server: ToolServer) -> Json:
    bearer = {"Authorization": f"Bearer {{env:{server.token_variable}}}"}
    return {"type": "remote", "url": server.url, "headers": bearer, "oauth": False}


def _provider(route: str, brief: Brief) -> Json:
    options = {}
    if base := brief.routes.get(route, ""):
        options["baseURL"] = _base(route, base)
    if variable := brief.keys.get(route, ""):
        options["apiKey"] = f"{{env:{variable}}}"
    sdk = _SDKS.get(route, "@ai-sdk/openai-compatible")
    return {"npm": sdk, "name": route, "options": options}


def _base(route: str, url: str) -> str:
    """With the path that its SDK does not add by itself, unless there is one already."""
    scheme, _, rest = url.rstrip("/").partition("://")
    return f"{scheme}://{rest}" + ("" if "/" in rest else _PATHS.get(route, "/v1"))
