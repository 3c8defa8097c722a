"""What Claude Code's lines mean, and what follows from each.

Of a conversation is kept:

    working     a turn is going on: only then does an interruption do anything
    waits       a turn is about to begin
    open        messages that no turn has taken yet, by their UUID
    held        messages that are to break off a turn which has not begun yet
    breaking    the turn is being broken off, because somebody wanted that
    stopping    no turn is to come
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from paddock.adapters.agents import diffs
from paddock.adapters.agents.checks import uuid_or_nothing
from paddock.adapters.agents.endings import died
from paddock.adapters.agents.lines import (
    Json,
    cut,
    cut_input,
    known,
    number,
    rows,
    table,
    text,
    whole,
    written,
)
from paddock.adapters.agents.words import as_it_stands
from paddock.domain.agent import Say, Talk
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.message import Message, Mode

State = Mapping[str, Any]
_K = AgentEventKind
BEGUN: State = {"working": False, "waits": True, "open": {}}

_NOISE = frozenset(
    {
        "stream_event",
        "control_response",
        "control_cancel_request",
        "system/status",
        "system/thinking_tokens",
        "system/task_started",
        "system/task_notification",
        "system/hook_started",
        "system/hook_response",
        "system/notification",
        "system/informational",
    }
)


def uuid_of(name: str) -> str:
    """Sessions and messages have to be named by UUIDs."""
    return str(uuid5(NAMESPACE_URL, f"paddock:{name}"))


def user(words: str, **more: str) -> bytes:
    said = {"role": "user", "content": as_it_stands(words)}
    return written({"type": "user", "message": said, **more})


def told(state: State, message: Message) -> Talk:
    if state.get("stopping"):
        return _settled(Talk(state=state))
    if message.mode is Mode.INTERRUPT:
        held = [*state.get("held", ()), {"id": message.id, "text": message.text}]
        return _settled(_broken_off({**state, "held": held}))
    later = {"priority": "later"} if message.mode is Mode.TURN else {}
    return _given(state, message.id, message.text, **later)


def stopped(state: State) -> Talk:
    """A turn that has not begun yet is broken off when it begins."""
    return _settled(_broken_off({**state, "held": [], "stopping": True}))


def _broken_off(state: State) -> Talk:
    """The turn, if there is one, and then what it was broken off for."""
    if not state["working"]:
        return Talk(state=state)
    names = "-".join(entry["id"] for entry in state.get("held", ())) or "stop"
    request = {"subtype": "interrupt"}
    line = {"type": "control_request", "request_id": f"interrupt-{names}", "request": request}
    return _released(Talk(state={**state, "breaking": True}, says=(Say(written(line)),)))


def _released(talk: Talk) -> Talk:
    """What was held is given to the agent."""
    held = talk.state.get("held", ())
    talk = replace(talk, state={**talk.state, "held": []})
    for entry in held:
        given = _given(talk.state, entry["id"], entry["text"])
        talk = replace(talk, state=given.state, says=(*talk.says, *given.says))
    return talk


def _given(state: State, message_id: str, words: str, **more: str) -> Talk:
    name = uuid_of(message_id)
    opened = {**state["open"], name: {"id": message_id}}
    say = Say(user(words, uuid=name, **more), message=message_id)
    return Talk(state={**state, "open": opened}, says=(say,))


def step(state: State, said: Json | None) -> Talk:
    if said is None:
        return _settled(Talk(state=state))
    kind = text(said, "type")
    match kind:
        case "assistant":
            talk = _assistant(state, said)
        case "user":
            talk = _user(state, said)
        case "result":
            talk = _result(state, said)
        case "command_lifecycle":
            talk = _lifecycle(state, said)
        case "control_request":
            talk = Talk(state=state, says=(Say(_answer(said)),))
        case _:
            talk = _system(state, said, f"{kind}/{sub}" if (sub := text(said, "subtype")) else kind)
    return _settled(talk)


def ended(state: State, exit_code: int | None, said: str) -> Talk:
    if _is_over(state) or state.get("stopping"):
        return Talk(state=state)
    return Talk(state=state, events=(died("claude", exit_code, said),))


def _is_over(state: State) -> bool:
    """No turn is left, and none is to come: it would begin one for what is open even then."""
    return not (state["working"] or state["waits"] or state["open"] or state.get("held"))


def _settled(talk: Talk) -> Talk:
    state = talk.state
    if not (state["working"] or state["waits"] or state["open"]):
        # Nothing is to come that it could break off.
        talk = _released(talk) if state.get("held") else talk
    return replace(talk, is_over=_is_over(talk.state))


def _system(state: State, said: Json, kind: str) -> Talk:
    if kind == "system/init":
        return _init(state, said)
    if kind == "system/api_retry":
        return Talk(state=state, events=(_retry(said),))
    if kind == "rate_limit_event":
        status = text(said, "rate_limit_info", "status")
        waits = AgentEvent(_K.WAITING, {"why": f"rate limit: {status}"})
        return Talk(state=state, events=() if status.startswith("allowed") else (waits,))
    if kind in _NOISE:
        return Talk(state=state)
    return Talk(state=state, events=(AgentEvent(_K.OTHER, {"type": kind}),))


def _init(state: State, said: Json) -> Talk:
    """Said again at the start of every turn."""
    session = uuid_or_nothing(text(said, "session_id"))
    version, model = text(said, "claude_code_version"), text(said, "model")
    started = AgentEvent(_K.STARTED, {"version": version, "model": model, "session": session})
    events = () if state.get("started") else (started,)
    talk = Talk(state={**state, "working": True, "waits": False, "started": True})
    if state.get("held") or state.get("stopping"):
        talk = _broken_off(talk.state)
    return replace(talk, events=events, session=session)


def _retry(said: Json) -> AgentEvent:
    status = whole(said, "error_status")
    error = text(said, "error") or "no answer"
    attempts = f"attempt {whole(said, 'attempt')} of {whole(said, 'max_retries')}"
    why = f"the model's API: {error}{f' ({status})' if status else ''}, {attempts}"
    return AgentEvent(_K.WAITING, {"why": why, "retry_in_s": number(said, "retry_delay_ms") / 1000})


def _assistant(state: State, said: Json) -> Talk:
    if said.get("is_api_error_message"):
        # The result that follows says it again.
        return Talk(state=state)
    parent = known(parent=text(said, "parent_tool_use_id"))
    blocks = rows(said, "message", "content")
    events = tuple(event for block in blocks for event in _block(block, parent))
    return Talk(state=state, events=events)


def _block(block: Any, parent: Json) -> Iterator[AgentEvent]:
    match text(block, "type"):
        case "text":
            yield AgentEvent(_K.MESSAGE, {"text": text(block, "text"), **parent})
        case "thinking" if thought := text(block, "thinking"):
            yield AgentEvent(_K.THINKING, {"text": thought, **parent})
        case "tool_use":
            call = {"id": text(block, "id"), "name": text(block, "name")}
            yield AgentEvent(_K.TOOL_CALL, {**call, **cut_input(block.get("input")), **parent})


def _user(state: State, said: Json) -> Talk:
    parent = known(parent=text(said, "parent_tool_use_id"))
    blocks = [block for block in rows(said, "message", "content") if _is_result(block)]
    results = (
        AgentEvent(
            _K.TOOL_RESULT,
            {
                "id": text(block, "tool_use_id"),
                "ok": not block.get("is_error"),
                **cut("output", _output(block)),
                **parent,
            },
        )
        for block in blocks
    )
    return Talk(state=state, events=(*results, *_edits(table(said, "tool_use_result"))))


def _is_result(block: Any) -> bool:
    return text(block, "type") == "tool_result"


def _output(block: Json) -> str:
    content = block.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(text(part, "text") or f"[{text(part, 'type')}]" for part in rows(content))


def _edits(result: Json) -> Iterator[AgentEvent]:
    """Tools that change a file tell what has changed; so does none of the others."""
    path = text(result, "filePath")
    if not path or "structuredPatch" not in result:
        return
    if text(result, "type") == "create":
        yield diffs.edited(path, "add", diffs.between(path, None, text(result, "content")))
        return
    hunks = "".join(_hunk(hunk) for hunk in rows(result, "structuredPatch"))
    yield diffs.edited(path, "update", diffs.headed(path, hunks))


def _hunk(hunk: Any) -> str:
    start = whole(hunk, "oldStart"), whole(hunk, "newStart")
    size = whole(hunk, "oldLines"), whole(hunk, "newLines")
    return diffs.hunk(start, size, (str(line) for line in rows(hunk, "lines")))


def _lifecycle(state: State, said: Json) -> Talk:
    """How far a message has come. One that an earlier run took already is `completed` at once."""
    name, stage = text(said, "command_uuid"), text(said, "state")
    entry = table(state, "open", name)
    if not entry:
        return Talk(state=state)
    delivered = () if entry.get("queued") else (entry["id"],)
    if stage == "queued":
        opened = {**state["open"], name: {**entry, "queued": True}}
        return Talk(state={**state, "open": opened}, delivered=delivered)
    # This turn has it, or its own begins: the next request to the model holds it.
    rest = {other: kept for other, kept in state["open"].items() if other != name}
    begins = stage == "started" and not state["working"]
    following = {**state, "open": rest, "waits": state["waits"] or begins}
    return Talk(state=following, delivered=delivered, seen=(entry["id"],))


def _result(state: State, said: Json) -> Talk:
    was_wanted = bool(state.get("breaking"))
    queued = whole(said, "queued_turn_count") > 0 and not state.get("stopping")
    following = {**state, "working": False, "waits": queued, "breaking": False}
    return Talk(state=following, events=(*_usage(said), _outcome(said, was_wanted=was_wanted)))


def _outcome(said: Json, *, was_wanted: bool) -> AgentEvent:
    reason, failed = text(said, "terminal_reason"), bool(said.get("is_error"))
    words = text(said, "result")
    if reason == "completed" and not failed:
        return AgentEvent(_K.COMPLETED, {"text": words, "ok": True})
    if was_wanted and (reason.startswith("aborted") or not reason):
        return AgentEvent(_K.COMPLETED, {"text": words, "ok": False})
    errors = "; ".join(str(error) for error in rows(said, "errors"))
    why = errors or words or f"the turn ended with {reason or text(said, 'subtype') or 'no reason'}"
    status = known(status=whole(said, "api_error_status") or None)
    return AgentEvent(_K.ERROR, {"message": why, "final": True, **status})


def _usage(said: Json) -> Iterator[AgentEvent]:
    """Of this turn alone: the other counts of a result go on over turns and sessions."""
    models = [table(model) for model in table(said, "model_usage_since_last_result").values()]
    read = sum(whole(model, "cacheReadInputTokens") for model in models)
    fresh = sum(
        whole(model, "inputTokens") + whole(model, "cacheCreationInputTokens") for model in models
    )
    output = sum(whole(model, "outputTokens") for model in models)
    if not (read or fresh or output):
        return
    yield AgentEvent(
        _K.USAGE,
        {
            "input_tokens": fresh + read,
            "cached_tokens": read,
            "output_tokens": output,
            "cost_usd": sum(number(model, "costUSD") for model in models),
        },
    )


def _answer(said: Json) -> bytes:
    """It asks for nothing in the way it is started; unanswered it would wait for ever."""
    asked = table(said, "request")
    reply: Json = {"request_id": text(said, "request_id")}
    if text(asked, "subtype") == "can_use_tool":
        allowed = {"behavior": "allow", "updatedInput": table(asked, "input")}
        reply |= {"subtype": "success", "response": allowed}
    else:
        reply |= {"subtype": "error", "error": f"{text(asked, 'subtype')} is not known here"}
    return written({"type": "control_response", "response": reply})
