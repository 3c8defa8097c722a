"""A conversation by the Agent Client Protocol, whoever is on the other side.

initialize ──> session/new, session/resume or session/load ──> session/prompt, turn by turn

State: `calls`, our open requests; `plan`, what is wanted, until the prompt is on its way;
`waiting`, messages for the turns to come; `told`, messages that the model has not seen; `tools`,
open calls of tools; `saying` and `last`, see `joining`; `cancelling`, `stopping`, `over`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.adapters.agents import acp_tools, rpc
from paddock.adapters.agents.acp_usage import usage
from paddock.adapters.agents.endings import died
from paddock.adapters.agents.joining import finished, joined
from paddock.adapters.agents.lines import Json, at, known, rows, table, text
from paddock.adapters.agents.words import AS_IT_STANDS, is_command
from paddock.domain.agent import Brief, Say, Talk, ToolServer
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.message import Message, Mode

_K = AgentEventKind
_VERSION = "2.0"
_LONGEST_ID = 200
_ABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
_CLIENT = {"name": "paddock", "title": "Paddock", "version": "1"}
_CHUNKS = {"agent_message_chunk": _K.MESSAGE, "agent_thought_chunk": _K.THINKING}
_TOOLS = ("tool_call", "tool_call_update")
_NOISE = frozenset(
    "user_message_chunk available_commands_update current_mode_update config_option_update "
    "session_info_update usage_update".split()
)
_ALLOWS = ("allow_once", "allow_always")

# How far a message is: sent into a running turn, with a tool's end after that, or as its own turn.
_SENT, _PASSED, _ALONE = "sent", "passed", "alone"


def begun(brief: Brief, *, meters: bool) -> Talk:
    """`meters`: the server's counts of tokens are of whole turns."""
    step = _Step({"meters": meters, "plan": _plan(brief)})
    hello = {"protocolVersion": 1, "clientCapabilities": _ABILITIES, "clientInfo": _CLIENT}
    step.ask("initialize", hello, {"for": "initialize"})
    return step.talk()


def heard(talk: Talk, line: bytes) -> Talk:
    step = _Step(dict(talk.state))
    match rpc.heard(line):
        case rpc.Answer() as answer:
            _answered(step, answer)
        case rpc.Asked() as asked:
            _asked(step, asked)
        case rpc.Notice("session/update", params):
            _updated(step, params)
    return step.talk()


def told(talk: Talk, message: Message) -> Talk:
    step = _Step(dict(talk.state))
    state = step.state
    if state.get("stopping"):
        return step.talk()
    if state.get("over"):
        state["then"] = "\n\n".join(filter(None, (state.get("then", ""), message.text)))
        return step.talk(then=state["then"], delivered=(message.id,))
    given = {"id": message.id, "text": message.text}
    if message.mode is Mode.TURN:
        state["waiting"] = [*state.get("waiting", []), given]
    elif "plan" in state:
        # Nothing is being done yet that could be broken off: it goes with the prompt.
        state["plan"] = {**state["plan"], "also": [*state["plan"]["also"], given]}
    elif message.mode is Mode.NOW and not state.get("cancelling"):
        step.prompt([given], _SENT)
    else:
        _interrupt(step, given)
    return step.talk()


def dropped(talk: Talk, message_ids: Collection[str]) -> Talk:
    step = _Step(dict(talk.state))
    step.state["waiting"] = _without(step.state.get("waiting", []), message_ids)
    if plan := step.state.get("plan"):
        step.state["plan"] = {**plan, "also": _without(plan["also"], message_ids)}
    return step.talk()


def _without(given: list[Json], message_ids: Collection[str]) -> list[Json]:
    return [item for item in given if item["id"] not in message_ids]


def stopped(talk: Talk) -> Talk:
    step = _Step({**talk.state, "stopping": True, "waiting": []})
    if "plan" in step.state or not _prompts(step):
        step.state["over"] = True
    else:
        step.tell("session/cancel", {"sessionId": step.state["session"]})
    return step.talk()


def ended(talk: Talk, program: str, exit_code: int | None, said: str) -> Talk:
    step = _Step(dict(talk.state))
    step.finish()
    if not step.state.get("over") and not step.state.get("stopping"):
        step.events.append(died(program, exit_code, said))
    return step.talk()


@dataclass(slots=True)
class _Step:
    """One step of the conversation, while it is being made."""

    state: dict[str, Any]
    events: list[AgentEvent] = field(default_factory=list)
    says: list[Say] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    session: str = ""

    @property
    def calls(self) -> rpc.Calls:
        return rpc.Calls.of(self.state.get("calls", {}), _VERSION)

    def ask(self, method: str, params: Json, about: Json, message: str = "") -> None:
        calls, line = self.calls.ask(method, params, about)
        self.state["calls"] = calls.kept()
        self.says.append(Say(line, message=message))

    def tell(self, method: str, params: Json) -> None:
        self.says.append(Say(self.calls.tell(method, params)))

    def prompt(self, given: list[Json], how: str, first: str = "") -> None:
        """A turn, or what joins one that runs."""
        texts = [*([first] if first else []), *(item["text"] for item in given)]
        texts = [AS_IT_STANDS, *texts] if is_command(texts[0]) else texts
        blocks = [{"type": "text", "text": said} for said in texts]
        names = [item["id"] for item in given]
        # One is delivered when the agent's input has taken it; what goes with others as well.
        carried = names[0] if len(names) == 1 and not first else ""
        self.delivered += [] if carried else names
        self.state["told"] = {**self.state.get("told", {}), **dict.fromkeys(names, how)}
        params = {"sessionId": self.state["session"], "prompt": blocks}
        self.ask("session/prompt", params, {"for": "prompt", "messages": names}, carried)

    def finish(self) -> None:
        """What was being said is said."""
        self.state, events = finished(self.state)
        self.events += events

    def has_seen(self, *how: str) -> None:
        told = self.state.get("told", {})
        self.seen += [name for name, where in told.items() if where in how]
        self.state["told"] = {name: where for name, where in told.items() if where not in how}

    def fail(self, why: str, **more: Any) -> None:
        self.events.append(AgentEvent(_K.ERROR, {"message": why, "final": True, **more}))

    def complete(self, *, is_good: bool) -> None:
        data = {"text": self.state.get("last", ""), "ok": is_good}
        self.events.append(AgentEvent(_K.COMPLETED, data))

    def talk(self, **more: Any) -> Talk:
        return Talk(
            state=self.state,
            events=tuple(self.events),
            says=tuple(self.says),
            seen=tuple(self.seen),
            session=self.session,
            is_over=bool(self.state.get("over")),
            **{"delivered": tuple(self.delivered), **more},
        )


def _plan(brief: Brief) -> Json:
    """What is needed until the session is there. The prompt is kept no longer than that."""
    return {
        "prompt": brief.prompt,
        "also": [],
        "cwd": brief.cwd,
        "session": brief.session,
        "servers": [_server(server) for server in brief.tools],
    }


def _server(server: ToolServer) -> Json:
    if server.url:
        return {"type": "http", "name": server.name, "url": server.url, "headers": []}
    command, *arguments = server.command
    env = [{"name": name, "value": value} for name, value in server.env.items()]
    return {"name": server.name, "command": command, "args": arguments, "env": env}


def _prompts(step: _Step) -> list[Json]:
    """Turns that run, and what has joined them."""
    return [about for about in step.calls.open.values() if about["for"] == "prompt"]


def _interrupt(step: _Step, given: Json) -> None:
    waiting = step.state.get("waiting", [])
    urgent = [item for item in waiting if item.get("urgent")]
    later = [item for item in waiting if not item.get("urgent")]
    step.state["waiting"] = [*urgent, {**given, "urgent": True}, *later]
    if not step.state.get("cancelling"):
        step.state["cancelling"] = True
        step.tell("session/cancel", {"sessionId": step.state["session"]})


def _answered(step: _Step, answer: rpc.Answer) -> None:
    calls, about = step.calls.answered(answer)
    step.state["calls"] = calls.kept()
    match about:
        case {"for": "prompt"}:
            _turned(step, answer, about["messages"])
        case {"for": kind} if answer.error is not None:
            step.fail(f"{kind} failed: {answer.why}")
            step.state["over"] = True
        case {"for": "initialize"}:
            _opened(step, table({"of": answer.result}, "of"))
        case {"for": "session"}:
            _ready(step, table({"of": answer.result}, "of"))


def _opened(step: _Step, result: Json) -> None:
    step.state["version"] = text(result, "agentInfo", "version")[:_LONGEST_ID]
    plan = step.state.get("plan", {})
    abilities = table(result, "agentCapabilities")
    servers = _reachable(step, plan["servers"], abilities)
    params = {"cwd": plan["cwd"], "mcpServers": servers}
    if not plan["session"]:
        step.ask("session/new", params, {"for": "session"})
        return
    # Resuming says nothing again of what was said before; loading says it all.
    if at(abilities, "sessionCapabilities", "resume") is not None:
        method = "session/resume"
    elif abilities.get("loadSession"):
        method = "session/load"
    else:
        step.fail("this agent cannot go on with an earlier session")
        step.state["over"] = True
        return
    step.ask(method, {"sessionId": plan["session"], **params}, {"for": "session"})


def _reachable(step: _Step, servers: list[Json], abilities: Json) -> list[Json]:
    if at(abilities, "mcpCapabilities", "http"):
        return servers
    for server in (server for server in servers if "url" in server):
        why = f"it cannot use the MCP server {server['name']}: it takes none by HTTP"
        step.events.append(AgentEvent(_K.ERROR, {"message": why, "final": False}))
    return [server for server in servers if "url" not in server]


def _ready(step: _Step, result: Json) -> None:
    """The session is there, and the prompt goes out."""
    plan = step.state.pop("plan")
    session = plan["session"] or text(result, "sessionId")[:_LONGEST_ID]
    if not session:
        step.fail("session/new gave no session")
        step.state["over"] = True
        return
    step.state["session"] = step.session = session
    data = known(version=step.state.pop("version", ""), model=_model(result), session=session)
    step.events.append(AgentEvent(_K.STARTED, data))
    step.prompt(plan["also"], _ALONE, first=plan["prompt"])


def _model(result: Json) -> str:
    current = text(result, "models", "currentModelId")
    chosen = (it for it in rows(result, "configOptions") if text(it, "id") == "model")
    return (current or text(next(chosen, {}), "currentValue"))[:_LONGEST_ID]


def _turned(step: _Step, answer: rpc.Answer, messages: list[str]) -> None:
    """A prompt was answered: its turn is over, unless another has joined that."""
    step.finish()
    result = table({"of": answer.result}, "of")
    reason = text(result, "stopReason")
    if step.state["meters"]:
        step.events += usage(result)
    told = step.state.get("told", {})
    if reason == "end_turn":
        step.seen += [name for name in messages if name in told]
    step.state["told"] = {name: how for name, how in told.items() if name not in messages}
    if _prompts(step):
        return
    was_cancelled = step.state.pop("cancelling", False) or step.state.get("stopping", False)
    _judge(step, answer, reason, was_cancelled=was_cancelled)
    if not step.state.get("waiting"):
        step.state["over"] = True
        return
    _next(step)


def _judge(step: _Step, answer: rpc.Answer, reason: str, *, was_cancelled: bool) -> None:
    if reason == "end_turn" or was_cancelled:
        step.complete(is_good=reason == "end_turn")
    elif answer.error is not None:
        step.fail(answer.why or "the turn failed")
    else:
        step.fail(f"the turn ended early: {reason[:_LONGEST_ID] or 'it is not said why'}")


def _next(step: _Step) -> None:
    """All that is urgent as one turn, or else the first of what waits."""
    waiting = step.state.pop("waiting")
    urgent = [item for item in waiting if item.get("urgent")]
    taken = urgent or waiting[:1]
    step.state["waiting"] = waiting[len(taken) :]
    step.prompt(taken, _ALONE)


def _asked(step: _Step, asked: rpc.Asked) -> None:
    if asked.method != "session/request_permission":
        step.says.append(Say(step.calls.refuse(asked)))
        return
    tools, events = acp_tools.requested(
        step.state.get("tools", {}), table(asked.params, "toolCall")
    )
    step.finish()
    step.state["tools"] = tools
    step.events += events
    choice = _allowing(rows(asked.params, "options"))
    is_allowed = choice is not None and not step.state.get("stopping")
    outcome = (
        {"outcome": "selected", "optionId": choice} if is_allowed else {"outcome": "cancelled"}
    )
    step.says.append(Say(step.calls.answer(asked, {"outcome": outcome})))


def _allowing(options: list[Any]) -> str | None:
    """The sandbox is the fence: whatever is asked is allowed, and no more than that."""
    kinds = {text(option, "kind"): text(option, "optionId") for option in reversed(options)}
    return next((kinds[kind] for kind in _ALLOWS if kind in kinds), None)


def _updated(step: _Step, params: Json) -> None:
    state = step.state
    # While a session is being loaded it says again what was said long ago.
    if "plan" in state or text(params, "sessionId")[:_LONGEST_ID] != state.get("session"):
        return
    update = table(params, "update")
    kind = text(update, "sessionUpdate")
    if kind in _CHUNKS:
        step.has_seen(_PASSED, _ALONE)
        name = text(update, "messageId")[:_LONGEST_ID]
        piece = text(update, "content", "text")
        step.state, events = joined(step.state, _CHUNKS[kind], piece, name)
        step.events += events
    elif kind in _TOOLS:
        _tool(step, update)
    elif kind and kind not in _NOISE:
        step.events.append(AgentEvent(_K.OTHER, {"type": kind[:_LONGEST_ID]}))


def _tool(step: _Step, update: Json) -> None:
    tools, events = acp_tools.updated(step.state.get("tools", {}), update)
    if events:
        step.finish()
        step.has_seen(_ALONE)
    step.state["tools"] = tools
    step.events += events
    if acp_tools.has_ended(update):
        told: Mapping[str, str] = step.state.get("told", {})
        passed = {name: _PASSED if how == _SENT else how for name, how in told.items()}
        step.state["told"] = passed
