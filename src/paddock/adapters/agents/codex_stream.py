"""What Codex says, and what follows from each of its lines.

Of a conversation is kept:

    rpc         requests that are not answered yet
    thread      its session, once there is one
    queue       what turns are to begin with, in order: first the prompt, then messages
    hints       messages for a turn that is going on, or will be soon
    starting    a turn was asked for and has not begun
    turn        the turn that is going on: only then can it be steered or broken off
    last        that turn, or the one before
    steered     messages given to the turn that it has not repeated yet
    awaited     messages that turns of their own begin with, and whether they are delivered
    breaks      the turn is to be broken off, because somebody wants that
    breaking    the agent has been told so
    counted     the tokens of the whole thread when they were counted last
    stopping    no turn is to come
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from paddock.adapters.agents.checks import session_of
from paddock.adapters.agents.codex_items import item_ended, item_started
from paddock.adapters.agents.endings import died
from paddock.adapters.agents.lines import Json, known, rows, table, text, whole
from paddock.adapters.agents.rpc import Answer, Asked, Calls, Heard, Notice
from paddock.domain.agent import Brief, Say, Talk
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.message import Message, Mode

State = Mapping[str, Any]
_K = AgentEventKind
_PROMPT = "prompt"
_NEW: State = {
    "thread": "",
    "hints": [],
    "starting": False,
    "turn": "",
    "last": "",
    "steered": {},
    "awaited": {},
    "breaks": False,
    "breaking": False,
    "counted": 0,
    "stopping": False,
}
_CLIENT = {
    "clientInfo": {"name": "paddock", "title": "Paddock", "version": "1"},
    "capabilities": {"experimentalApi": True, "requestAttestation": False},
}
_KNOWN = frozenset({"error", "warning", "guardianWarning", "deprecationNotice", "configWarning"})
# Pieces of what comes as a whole as well, and the state of things that are not the agent's work.
_NOISE = ("delta", "Delta", "updated", "Updated", "changed", "progress", "PartAdded", "resolved")
_NOISY = ("thread/", "account/", "remoteControl/", "mcpServer/", "hook/", "model", "skills/")
_APPROVALS = {
    "item/commandExecution/requestApproval": "accept",
    "item/fileChange/requestApproval": "accept",
    "execCommandApproval": "approved",
    "applyPatchApproval": "approved",
}


def begun(brief: Brief, model: str) -> Talk:
    """It takes one after the other, so that no answer need be waited for."""
    calls, initialize = Calls().ask("initialize", _CLIENT, "initialize")
    # In every mode of work: its own fence takes namespaces that sandboxes do not give, and without
    # a shell it is blind.
    free: Json = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
    params = {**free, "cwd": brief.cwd, "model": model}
    method = "thread/start"
    if brief.session:
        method, params = (
            "thread/resume",
            {**params, "threadId": brief.session, "excludeTurns": True},
        )
    calls, thread = calls.ask(method, params, "thread")
    state = {**_NEW, "rpc": calls.kept(), "queue": [{"id": "", "text": brief.prompt}]}
    says = (initialize, calls.tell("initialized"), thread)
    return Talk(state=state, says=tuple(Say(line) for line in says))


def step(state: State, said: Heard | None) -> Talk:
    match said:
        case Answer():
            talk = _answered(state, said)
        case Asked():
            talk = Talk(state=state, says=(Say(_reply(said)),))
        case Notice():
            talk = _noticed(state, said)
        case _:
            talk = Talk(state=state)
    return _moved_on(talk)


def told(state: State, message: Message) -> Talk:
    if state["stopping"]:
        return _moved_on(Talk(state=state))
    entry = {"id": message.id, "text": message.text}
    queue = state["queue"]
    if message.mode is Mode.NOW:
        return _moved_on(Talk(state={**state, "hints": [*state["hints"], entry]}))
    if message.mode is Mode.TURN:
        return _moved_on(Talk(state={**state, "queue": [*queue, entry]}))
    # A prompt that the agent has not begun with yet still comes first.
    place = 1 if queue and not queue[0]["id"] else 0
    queue = [*queue[:place], entry, *queue[place:]]
    return _moved_on(Talk(state={**state, "queue": queue, "breaks": True}))


def dropped(state: State, message_ids: Collection[str]) -> Talk:
    rest = {
        where: [entry for entry in state[where] if entry["id"] not in message_ids]
        for where in ("queue", "hints")
    }
    return _moved_on(Talk(state={**state, **rest}))


def stopped(state: State) -> Talk:
    dropped: Json = {"queue": [], "hints": [], "steered": {}}
    return _moved_on(Talk(state={**state, **dropped, "stopping": True, "breaks": True}))


def ended(state: State, exit_code: int | None, said: str) -> Talk:
    if _is_over(state) or state["stopping"]:
        return Talk(state=state)
    return Talk(state=state, events=(died("codex", exit_code, said),))


def _is_over(state: State) -> bool:
    busy = state["turn"] or state["starting"]
    return not (busy or state["queue"] or state["hints"] or state["steered"])


def _moved_on(talk: Talk) -> Talk:
    """What is to be done in the place where it stands now."""
    state = talk.state
    if _is_over(state):
        return replace(talk, is_over=True)
    if not state["thread"] or state["starting"]:
        return talk
    if state["turn"]:
        return _in_turn(talk)
    if state["queue"] or state["hints"]:
        return _turn_begun(talk)
    return talk


def _in_turn(talk: Talk) -> Talk:
    state = talk.state
    if state["breaking"]:
        return talk
    if state["breaks"]:
        params = {"threadId": state["thread"], "turnId": state["turn"]}
        asked = _ask(talk, "turn/interrupt", params, "interrupt")
        return replace(asked, state={**asked.state, "breaks": False, "breaking": True})
    for entry in state["hints"]:
        params = {**_input(state, entry), "expectedTurnId": state["turn"]}
        talk = _ask(talk, "turn/steer", params, {"steer": entry["id"]}, message=entry["id"])
        steered = {**talk.state["steered"], entry["id"]: entry}
        talk = replace(talk, state={**talk.state, "steered": steered})
    return replace(talk, state={**talk.state, "hints": []})


def _turn_begun(talk: Talk) -> Talk:
    """With what comes first; a hint begins a turn only if nothing else does."""
    state = talk.state
    queue, hints = (state["queue"], state["hints"]) if state["queue"] else (state["hints"], [])
    first, rest = queue[0], queue[1:]
    name = first["id"]
    awaited = {**state["awaited"], **({name: bool(first.get("delivered"))} if name else {})}
    # What was to be broken off has ended; only a prompt can be broken off before it has begun.
    following = {"queue": rest, "hints": hints, "awaited": awaited, "starting": True}
    breaks = state["breaks"] and not name
    asked = _ask(talk, "turn/start", _input(state, first), {"begin": name}, message=name)
    return replace(asked, state={**asked.state, **following, "breaks": breaks})


def _input(state: State, entry: Json) -> Json:
    content = [{"type": "text", "text": entry["text"], "text_elements": []}]
    name = entry["id"] or _PROMPT
    return {"threadId": state["thread"], "clientUserMessageId": name, "input": content}


def _ask(talk: Talk, method: str, params: Json, about: Any, *, message: str = "") -> Talk:
    calls, line = Calls.of(talk.state["rpc"]).ask(method, params, about)
    state = {**talk.state, "rpc": calls.kept()}
    return replace(talk, state=state, says=(*talk.says, Say(line, message=message)))


def _answered(state: State, answer: Answer) -> Talk:
    calls, about = Calls.of(state["rpc"]).answered(answer)
    state = {**state, "rpc": calls.kept()}
    if about == "thread":
        return _thread(state, answer)
    if name := text(about, "steer"):
        return _steer_answered(state, name, answer)
    if isinstance(about, dict) and "begin" in about:
        return _begin_answered(state, text(about, "begin"), answer)
    return Talk(state=state)


def _thread(state: State, answer: Answer) -> Talk:
    thread = table(answer.result, "thread")
    name = session_of(text(thread, "id"))
    if answer.error is not None or not name:
        why = f"codex has no session for this: {answer.why or 'it gave none'}"
        nothing: Json = {"queue": [], "hints": []}
        failed = AgentEvent(_K.ERROR, {"message": why, "final": True})
        return Talk(state={**state, **nothing}, events=(failed,))
    version, model = text(thread, "cliVersion"), text(answer.result, "model")
    started = AgentEvent(_K.STARTED, {"version": version, "model": model, "session": name})
    return Talk(state={**state, "thread": name}, events=(started,), session=name)


def _steer_answered(state: State, name: str, answer: Answer) -> Talk:
    entry = table(state, "steered", name)
    if not entry:
        return Talk(state=state)
    is_taken = answer.error is None
    if is_taken and state["turn"]:
        steered = {**state["steered"], name: {**entry, "delivered": True}}
        return Talk(state={**state, "steered": steered}, delivered=(name,))
    # The turn has ended meanwhile: the message gets one of its own.
    steered = {other: kept for other, kept in state["steered"].items() if other != name}
    return Talk(state={**state, "steered": steered, "hints": [*state["hints"], entry]})


def _begin_answered(state: State, name: str, answer: Answer) -> Talk:
    awaited = state["awaited"]
    if answer.error is None:
        if awaited.get(name) is not False:
            return Talk(state=state)
        return Talk(state={**state, "awaited": {**awaited, name: True}}, delivered=(name,))
    awaited = {other: kept for other, kept in awaited.items() if other != name}
    refused = AgentEvent(_K.ERROR, {"message": f"codex began no turn: {answer.why}", "final": True})
    return Talk(state={**state, "awaited": awaited, "starting": False}, events=(refused,))


def _reply(asked: Asked) -> bytes:
    """It asks for nothing in the way it is started; unanswered it would wait for ever."""
    if decision := _APPROVALS.get(asked.method):
        return Calls().answer(asked, {"decision": decision})
    return Calls().refuse(asked)


def _noticed(state: State, notice: Notice) -> Talk:
    method, params = notice.method, notice.params
    # What a helper of the agent does, in a thread of its own, ends no turn of the agent's.
    is_own = text(params, "threadId") in ("", state["thread"])
    talk = Talk(state=state)
    match method:
        case "item/started" | "item/completed":
            talk = _item(state, notice, {} if is_own else {"parent": text(params, "threadId")})
        case "thread/tokenUsage/updated":
            talk = _used(state, params, is_own=is_own)
        case "turn/started" if is_own:
            turn = text(params, "turn", "id")
            talk = Talk(state={**state, "turn": turn, "last": turn, "starting": False})
        case "turn/completed" if is_own:
            talk = _turn_ended(state, table(params, "turn"))
        case "error" if params.get("willRetry"):
            talk = Talk(state=state, events=(_retry(table(params, "error")),))
        case _ if is_own and not _is_noise(method):
            talk = Talk(state=state, events=(AgentEvent(_K.OTHER, {"type": method}),))
    return talk


def _is_noise(method: str) -> bool:
    return method in _KNOWN or method.endswith(_NOISE) or method.startswith(_NOISY)


def _item(state: State, notice: Notice, parent: Json) -> Talk:
    """A message that the agent repeats is in its history: the next request holds it."""
    item = table(notice.params, "item")
    read = item_started if notice.method == "item/started" else item_ended
    events = tuple(read(item, parent))
    name = text(item, "clientId")
    if name in state["awaited"]:
        was_delivered = state["awaited"][name]
    elif name in state["steered"]:
        was_delivered = bool(state["steered"][name].get("delivered"))
    else:
        return Talk(state=state, events=events)
    rest = {
        place: {other: kept for other, kept in state[place].items() if other != name}
        for place in ("awaited", "steered")
    }
    delivered = () if was_delivered else (name,)
    return Talk(state={**state, **rest}, events=events, delivered=delivered, seen=(name,))


def _used(state: State, params: Json, *, is_own: bool) -> Talk:
    """Of one request to the model. What a resumed thread used before is told once more."""
    usage = table(params, "tokenUsage")
    total = whole(usage, "total", "totalTokens")
    is_old = text(params, "turnId") != state["last"] or total == state["counted"]
    if is_own and is_old:
        return Talk(state=state)
    data = {
        "input_tokens": whole(usage, "last", "inputTokens"),
        "cached_tokens": whole(usage, "last", "cachedInputTokens"),
        "output_tokens": whole(usage, "last", "outputTokens"),
        "reasoning_tokens": whole(usage, "last", "reasoningOutputTokens"),
    }
    counted = total if is_own else state["counted"]
    return Talk(state={**state, "counted": counted}, events=(AgentEvent(_K.USAGE, data),))


def _turn_ended(state: State, turn: Json) -> Talk:
    was_wanted = state["breaking"] or state["stopping"]
    # What it has taken and not used is lost with the turn, so that it begins another.
    lost = [entry for entry in state["steered"].values() if entry.get("delivered")]
    steered = {name: kept for name, kept in state["steered"].items() if kept not in lost}
    following: Json = {"turn": "", "starting": False, "breaks": False, "breaking": False}
    following |= {"steered": steered, "queue": [*lost, *state["queue"]]}
    return Talk(state={**state, **following}, events=(_outcome(turn, was_wanted=was_wanted),))


def _outcome(turn: Json, *, was_wanted: bool) -> AgentEvent:
    status = text(turn, "status")
    said = [item for item in rows(turn, "items") if text(item, "type") == "agentMessage"]
    words = text(said[-1], "text") if said else ""
    if status == "completed":
        return AgentEvent(_K.COMPLETED, {"text": words, "ok": True})
    if status == "interrupted" and was_wanted:
        return AgentEvent(_K.COMPLETED, {"text": words, "ok": False})
    error = table(turn, "error")
    why = text(error, "message") or f"the turn ended as {status or 'nothing that is known'}"
    return AgentEvent(_K.ERROR, {"message": why, "final": True, **_status(error)})


def _retry(error: Json) -> AgentEvent:
    why = ": ".join(filter(None, (text(error, "message"), text(error, "additionalDetails"))))
    return AgentEvent(_K.WAITING, {"why": why or "the model's API gave no answer"})


def _status(error: Json) -> Json:
    kinds = table(error, "codexErrorInfo").values()
    return known(
        status=next((code for kind in kinds if (code := whole(kind, "httpStatusCode"))), None)
    )
