"""What Gemini CLI prints with `-o stream-json`, in the vocabulary of all agents.

State: `version` and `session`; `begun`, once the model has answered; `calls`, tools whose results
are to come; `told`, messages in the inbox that the model has not seen; `saying` and `last`, see
`joining`; `then`, what another run begins with; `stopping`, `over`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paddock.adapters.agents import diffs
from paddock.adapters.agents.checks import session_of
from paddock.adapters.agents.endings import died
from paddock.adapters.agents.joining import finished, joined
from paddock.adapters.agents.lines import Json, cut, cut_input, known, number, table, text, whole
from paddock.domain.agent import Talk
from paddock.domain.agent_event import LONGEST_DATA, AgentEvent, AgentEventKind

State = Mapping[str, Any]
_K = AgentEventKind
_LONGEST_NAME = 200
_MOST_CALLS = 16
_TOOK = "Agent execution blocked: paddock-took "
"""What its hook says at the end of a turn; see `gemini_inbox.cjs`."""
_STATUS = re.compile(r'"code":\s*(\d{3})\b')


# How far a message is: in the inbox, taken from it, or taken with a tool's end after that.
PUT, TAKEN, PASSED = "put", "taken", "passed"


def step(state: State, said: Json) -> Talk:
    kind = text(said, "type")
    if kind in _STEPS:
        return _STEPS[kind](state, said)
    event = AgentEvent(_K.OTHER, {"type": kind[:_LONGEST_NAME]})
    return Talk(state=state, events=(event,) if kind else ())


def taken(state: State, message_id: str) -> Talk:
    told = state.get("told", {})
    if told.get(message_id) == PUT:
        state = {**state, "told": {**told, message_id: TAKEN}}
    return Talk(state=state, is_over=bool(state.get("over")))


def ended(state: State, exit_code: int | None, said: str) -> Talk:
    kept, events = finished(state)
    if not (kept.get("over") or kept.get("stopping")):
        events += (died("gemini", exit_code, said),)
    elif kept.get("stopping") and not kept.get("over"):
        events += (_completed(kept, is_good=False),)
    return Talk(state=kept, events=events)


def _started(state: State, said: Json) -> Talk:
    session = session_of(text(said, "session_id"))
    model = text(said, "model")[:_LONGEST_NAME]
    data = known(version=state.get("version", ""), model=model, session=session)
    return Talk(state={**state, "session": session}, events=(AgentEvent(_K.STARTED, data),))


def _message(state: State, said: Json) -> Talk:
    if text(said, "role") != "assistant":
        return Talk(state=state)
    kept, seen = _seen(state, PASSED)
    kept, events = joined(kept, _K.MESSAGE, text(said, "content"))
    return _begun(Talk(state=kept, events=events, seen=seen))


def _called(state: State, said: Json) -> Talk:
    kept, seen = _seen(state, PASSED)
    kept, events = finished(kept)
    name, given = text(said, "tool_name")[:_LONGEST_NAME], table(said, "parameters")
    number = text(said, "tool_id")[:_LONGEST_NAME]
    call = AgentEvent(_K.TOOL_CALL, {"id": number, "name": name, **cut_input(given)})
    calls = {**kept.get("calls", {}), number: _edit(name, given)}
    kept["calls"] = dict(list(calls.items())[-_MOST_CALLS:])
    return _begun(Talk(state=kept, events=(*events, call), seen=seen))


def _begun(talk: Talk) -> Talk:
    """Only after its first words is its session on disk, so that a run can go on with it."""
    if talk.state.get("begun"):
        return talk
    state = {**talk.state, "begun": True}
    return replace(talk, state=state, session=state.get("session", ""))


def _edit(tool: str, given: Json) -> Json:
    """What a call will have edited, if it goes well; nothing for other tools."""
    path = text(given, "file_path")[: LONGEST_DATA >> 2]
    if tool == "replace":
        old, new = text(given, "old_string"), text(given, "new_string")
        kind = "update" if old else "add"
        return {"path": path, "kind": kind, "diff": diffs.between(path, old, new)[:LONGEST_DATA]}
    # Whether there was a file before, and what was in it, is not said.
    return {"path": path, "kind": "update", "diff": ""} if tool == "write_file" else {}


def _result(state: State, said: Json) -> Talk:
    name, is_good = text(said, "tool_id")[:_LONGEST_NAME], text(said, "status") == "success"
    output = text(said, "output") or text(said, "error", "message")
    data = {"id": name, "ok": is_good, **cut("output", output)}
    kept, events = finished(state)
    calls = dict(kept.get("calls", {}))
    edit = calls.pop(name, {})
    events += (AgentEvent(_K.TOOL_RESULT, data),)
    if edit and is_good:
        events += (diffs.edited(edit["path"], edit["kind"], edit["diff"]),)
    # The hook ran before this was printed: the next request holds what it had taken.
    told = kept.get("told", {})
    passed = {name: PASSED if how == TAKEN else how for name, how in told.items()}
    return Talk(state={**kept, "calls": calls, "told": passed}, events=events)


def _warned(state: State, said: Json) -> Talk:
    why = text(said, "message")
    if why.startswith(_TOOK):
        # It would have ended here, but its hook had something for another turn.
        told = state.get("told", {})
        names = tuple(name for name in why.removeprefix(_TOOK).split() if name in told)
        kept, events = finished({**state, "told": {**told, **dict.fromkeys(names, PASSED)}})
        return Talk(state=kept, events=(*events, _completed(kept)), delivered=names)
    event = AgentEvent(_K.ERROR, {**cut("message", why), "final": False})
    return Talk(state=state, events=(event,))


def _over(state: State, said: Json) -> Talk:
    is_good = text(said, "status") == "success"
    # All requests are done, and what was taken before was in one of them.
    kept, seen = _seen(state, PASSED, TAKEN) if is_good else (state, ())
    kept, events = finished(kept)
    how = _completed(kept) if is_good else _failure(text(said, "error", "message"))
    events += (*_usage(table(said, "stats")), how)
    return Talk(state={**kept, "over": True}, events=events, seen=seen, is_over=True)


def _completed(state: State, *, is_good: bool = True) -> AgentEvent:
    return AgentEvent(_K.COMPLETED, {"text": state.get("last", ""), "ok": is_good})


def _usage(stats: Json) -> tuple[AgentEvent, ...]:
    given, total = whole(stats, "input_tokens"), whole(stats, "total_tokens")
    # Thoughts are in the sum only.
    spoken = whole(stats, "output_tokens")
    output = max(total - given, spoken)
    data = {
        "input_tokens": given,
        "cached_tokens": whole(stats, "cached"),
        "output_tokens": output,
        "reasoning_tokens": output - spoken,
    }
    return (AgentEvent(_K.USAGE, data),) if number(stats, "total_tokens") else ()


def _failure(why: str) -> AgentEvent:
    found = _STATUS.search(why)
    status = {"status": int(found[1])} if found else {}
    data = cut("message", why or "it failed, and does not say why")
    return AgentEvent(_K.ERROR, {**data, "final": True, **status})


def _seen(state: State, *how: str) -> tuple[State, tuple[str, ...]]:
    told = state.get("told", {})
    seen = tuple(name for name, where in told.items() if where in how)
    rest = {name: where for name, where in told.items() if where not in how}
    return {**state, "told": rest}, seen


_STEPS: Mapping[str, Callable[[State, Json], Talk]] = {
    "init": _started,
    "message": _message,
    "tool_use": _called,
    "tool_result": _result,
    "error": _warned,
    "result": _over,
}
