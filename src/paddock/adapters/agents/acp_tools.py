"""Calls of tools as the Agent Client Protocol tells of them: bit by bit, merged by their id."""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from paddock.adapters.agents import diffs
from paddock.adapters.agents.lines import Json, at, cut, cut_input, rows, table, text
from paddock.adapters.agents.patches import files_of
from paddock.domain.agent_event import LONGEST_DATA, AgentEvent, AgentEventKind

_LONGEST_NAME = 200
_MOST_CALLS = 16
"""Open ones; of more than that the oldest are forgotten, and told of as they end."""
_MOST_EDITS = 64
_MOST_DIFFS = 4
"""Of one call; of further files it is only said that they were edited."""
_ENDED = ("completed", "failed")

Open = dict[str, Json]


def updated(calls: Mapping[str, Json], update: Json) -> tuple[Open, list[AgentEvent]]:
    """What is open after this, and what has become known: that it was called, or has ended."""
    name = text(update, "toolCallId")[:_LONGEST_NAME]
    status = text(update, "status")
    call = _merged(calls.get(name, {}), update)
    events: list[AgentEvent] = []
    if not call.get("told") and _is_known(call, update, status):
        events.append(_called(name, call))
        call = {**call, "told": True, "input": {}}
    rest = {known: value for known, value in calls.items() if known != name}
    if status not in _ENDED:
        return _bounded({**rest, name: call}), events
    events.append(_result(name, update, is_good=status == "completed"))
    if status == "completed":
        events += [_edited(edit, update) for edit in call["edits"]]
    return rest, events


def has_ended(update: Json) -> bool:
    return text(update, "status") in _ENDED


def _merged(call: Json, update: Json) -> Json:
    """Most fields come piecemeal, and some servers repeat them all."""
    given = table(update, "rawInput") or call.get("input", {})
    edits = _edits(update)
    return {
        "told": call.get("told", False),
        "name": call.get("name") or _name(update),
        "input": given if len(json.dumps(given)) <= LONGEST_DATA or _is_live(update) else {},
        "edits": edits or call.get("edits", []),
    }


def _is_live(update: Json) -> bool:
    """Its input is told of at once, so that there is no need to keep it."""
    return text(update, "status") != "pending"


def _is_known(call: Json, update: Json, status: str) -> bool:
    """A call that is pending may still be without its input, or with half of it."""
    if status in ("in_progress", *_ENDED):
        return True
    return bool(call["input"]) and status != "pending"


def _called(name: str, call: Json) -> AgentEvent:
    data = {"id": name, "name": call["name"], **cut_input(call["input"])}
    return AgentEvent(AgentEventKind.TOOL_CALL, data)


def _result(name: str, update: Json, *, is_good: bool) -> AgentEvent:
    data = {"id": name, "ok": is_good, **cut("output", _output(update))}
    return AgentEvent(AgentEventKind.TOOL_RESULT, data)


def _output(update: Json) -> str:
    said = [text(item, "content", "text") for item in rows(update, "content")]
    if found := "\n".join(filter(None, said)):
        return found
    raw = update.get("rawOutput")
    if isinstance(raw, str):
        return raw
    return text(raw, "output") or (json.dumps(raw) if raw else "")


def _name(update: Json) -> str:
    """What the agent calls its tool; many say that only where vendors may put what they like."""
    own = table(update, "_meta").values()
    vendors = [text(it, "toolName") or text(it, "toolCall", "toolName") for it in own]
    named = (text(update, "name"), *vendors, text(update, "title"), text(update, "kind"))
    return next(filter(None, named), "tool")[:_LONGEST_NAME]


def _edits(update: Json) -> list[Json]:
    found = [item for item in rows(update, "content") if text(item, "type") == "diff"]
    edits = [_edit(item, has_diff=n < _MOST_DIFFS) for n, item in enumerate(found[:_MOST_EDITS])]
    return edits or _written(update) or _patched(update)


def _edit(item: Json, *, has_diff: bool) -> Json:
    path, new = text(item, "path"), item.get("newText")
    old = item.get("oldText") or None
    before, after = (side if isinstance(side, str) else None for side in (old, new))
    kind = "add" if before is None else "delete" if after is None else "update"
    return _kept(path, kind, diffs.between(path, before, after) if has_diff else "")


def _written(update: Json) -> list[Json]:
    """Some tell of a file that was written only by what their tool was called with."""
    path, new = text(update, "locations", 0, "path"), text(update, "rawInput", "content")
    if not path or not new or text(update, "kind") != "edit":
        return []
    # Whether it was there before, and with what in it, is not known; see `_edited`.
    return [{**_kept(path, "update", ""), "whole": diffs.between(path, None, new)[:LONGEST_DATA]}]


def _patched(update: Json) -> list[Json]:
    """With models of OpenAI, some have a tool that takes a patch."""
    found = islice(files_of(text(update, "rawInput", "patchText")), _MOST_EDITS)
    return [
        _kept(each.path, each.kind, each.diff if n < _MOST_DIFFS else "")
        for n, each in enumerate(found)
    ]


def _edited(edit: Json, update: Json) -> AgentEvent:
    if "whole" in edit and at(update, "rawOutput", "metadata", "exists") is False:
        return diffs.edited(edit["path"], "add", edit["whole"])
    return diffs.edited(edit["path"], edit["kind"], edit["diff"])


def _kept(path: str, kind: str, diff: str) -> Json:
    return {"path": path[: LONGEST_DATA >> 2], "kind": kind, "diff": diff[:LONGEST_DATA]}


def _bounded(calls: Open) -> Open:
    return dict(list(calls.items())[-_MOST_CALLS:])


def requested(calls: Mapping[str, Json], given: Any) -> tuple[Open, list[AgentEvent]]:
    """A call that the agent asks to be allowed: all that it will say before is said."""
    call = given if isinstance(given, dict) else {}
    return updated(calls, {**call, "status": "in_progress"})
