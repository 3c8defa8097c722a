"""Items of Codex's turns as events: each has a beginning and an end."""

import re
from collections.abc import Iterator
from typing import Any

from paddock.adapters.agents import diffs
from paddock.adapters.agents.lines import Json, cut, cut_input, known, rows, table, text
from paddock.domain.agent_event import AgentEvent, AgentEventKind

_K = AgentEventKind
_TOOLS = frozenset(
    {"dynamicToolCall", "collabAgentToolCall", "webSearch", "imageView", "imageGeneration", "sleep"}
)
_SILENT = frozenset({"userMessage", "hookPrompt", "functionCallOutput", "subAgentActivity"})
_HEADER = re.compile(r"^--- ", re.MULTILINE)


def item_started(item: Json, parent: Json) -> Iterator[AgentEvent]:
    name, given = _called(item)
    if name:
        call = {"id": text(item, "id"), "name": name, **cut_input(given), **parent}
        yield AgentEvent(_K.TOOL_CALL, call)


def item_ended(item: Json, parent: Json) -> Iterator[AgentEvent]:
    kind, is_done = text(item, "type"), text(item, "status") == "completed"
    match kind:
        case "agentMessage":
            yield AgentEvent(_K.MESSAGE, {"text": text(item, "text"), **parent})
        case "reasoning":
            if thought := "\n\n".join(_texts(item, "summary") or _texts(item, "content")):
                yield AgentEvent(_K.THINKING, {"text": thought, **parent})
        case "commandExecution":
            ok = is_done and item.get("exitCode") in (0, None)
            yield _result(item, parent, ok=ok, output=text(item, "aggregatedOutput"))
        case "fileChange":
            yield _result(item, parent, ok=is_done)
            yield from _edits(rows(item, "changes")) if is_done else ()
        case "mcpToolCall":
            output = "\n".join(_texts(item, "result", "content")) or text(item, "error", "message")
            yield _result(item, parent, ok=is_done and not item.get("error"), output=output)
        case _ if kind in _TOOLS:
            yield _result(item, parent, ok=text(item, "status") != "failed")
        case _ if kind not in _SILENT:
            yield AgentEvent(_K.OTHER, {"type": f"item/{kind}"})


def _called(item: Json) -> tuple[str, Json]:
    """Which tool, and with what; no name for an item that is none."""
    kind = text(item, "type")
    match kind:
        case "commandExecution":
            return "shell", known(command=text(item, "command"), cwd=text(item, "cwd"))
        case "fileChange":
            paths = [text(change, "path") for change in rows(item, "changes")]
            return "apply_patch", {"paths": paths}
        case "mcpToolCall":
            name = f"mcp__{text(item, 'server')}__{text(item, 'tool')}"
            return name, table(item, "arguments")
    if kind not in _TOOLS:
        return "", {}
    given = {name: value for name, value in item.items() if name not in ("id", "type", "status")}
    return text(item, "tool") or kind, given


def _result(item: Json, parent: Json, *, ok: bool, output: str = "") -> AgentEvent:
    data = {"id": text(item, "id"), "ok": ok, **cut("output", output), **parent}
    return AgentEvent(_K.TOOL_RESULT, data)


def _edits(changes: list[Any]) -> Iterator[AgentEvent]:
    """The whole text of a file that comes or goes; of another only the pieces that change."""
    for change in changes:
        path, said = text(change, "path"), text(change, "diff")
        match text(change, "kind", "type"):
            case "add":
                yield diffs.edited(path, "add", diffs.between(path, None, said))
            case "delete":
                yield diffs.edited(path, "delete", diffs.between(path, said, None))
            case _:
                diff = said if _HEADER.match(said) else diffs.headed(path, said)
                yield diffs.edited(path, "update", diff)


def _texts(item: Json, *path: str) -> list[str]:
    """Of parts that are texts, or have one."""
    found = (part if isinstance(part, str) else text(part, "text") for part in rows(item, *path))
    return [part for part in found if part]
