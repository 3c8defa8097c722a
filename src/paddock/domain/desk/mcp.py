"""The desk as an MCP server: JSON-RPC by POST, each answer one JSON object. No session, no stream.

Pure: who acts on a call is told what is wanted, and given the words to answer in.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.domain.desk import saying

NEWEST = "2025-06-18"
_KNOWN = ("2024-11-05", "2025-03-26", NEWEST)
_VERBS = {"ask_person": "ask", "report_progress": "progress", "report_verdict": "verdict"}
_NO_METHOD, _NO_REQUEST, _NO_JSON = -32601, -32600, -32700
_INSTRUCTIONS = (
    "The desk of your task. Ask a person with ask_person when only a person can decide; the answer "
    "comes as your next message, so end your turn after asking."
)
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool is called: `verb` with `given` is wanted, and `id` is answered."""

    id: Any
    verb: str
    given: object


def understood(body: bytes) -> ToolCall | Json | None:
    """What is wanted of somebody; or the answer itself; or None, where there is none to give."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return _failure(None, _NO_JSON, "this is not JSON")
    if not isinstance(said, dict) or not isinstance(said.get("method"), str):
        if isinstance(said, dict) and ("result" in said or "error" in said):
            return None  # an answer, and nothing was asked
        return _failure(None, _NO_REQUEST, "this is no JSON-RPC request")
    if "id" not in said:
        return None
    given = said.get("params")
    return _called(said["id"], said["method"], given if isinstance(given, dict) else {})


def _called(number: Any, method: str, params: Json) -> ToolCall | Json:
    if method == "tools/call":
        name = params.get("name")
        verb = _VERBS.get(name, name) if isinstance(name, str) else ""
        return ToolCall(number, verb, params.get("arguments") or {})
    results = {"initialize": _about(params), "ping": {}, "tools/list": {"tools": _TOOLS}}
    if method in results:
        return _result(number, results[method])
    return _failure(number, _NO_METHOD, f"there is no method {method[:80]}")


def answered(call: ToolCall, text: str, *, is_error: bool = False) -> Json:
    content = [{"type": "text", "text": text}]
    return _result(call.id, {"content": content, "isError": is_error})


def _about(params: Mapping[str, Any]) -> Json:
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in _KNOWN else NEWEST,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "paddock", "version": "1"},
        "instructions": _INSTRUCTIONS,
    }


def _result(number: Any, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _failure(number: Any, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def _tool(name: str, description: str, required: list[str], properties: Json) -> Json:
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
        # Nothing of the workspace is changed: who is only to look may speak all the same.
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def _text(longest: int) -> Json:
    return {"type": "string", "maxLength": longest}


_TOOLS = [
    _tool(
        "ask_person",
        "Put a question to a person, with options if there are some. It returns at once: end your "
        "turn then. The answer comes as your next message, be it in minutes or tomorrow.",
        ["question"],
        {
            "question": _text(saying.LONGEST_QUESTION),
            "options": {
                "type": "array",
                "items": _text(saying.LONGEST_OPTION),
                "maxItems": saying.MOST_OPTIONS,
            },
            "timeout_s": {
                "type": "number",
                "minimum": 1,
                "description": "how long an answer is of use",
            },
        },
    ),
    _tool(
        "report_progress",
        "Tell whoever watches how far you are. At most once a second.",
        ["text"],
        {
            "text": _text(saying.LONGEST_TEXT),
            "percent": {"type": "number", "minimum": 0, "maximum": 100},
        },
    ),
    _tool(
        "report_verdict",
        "Say what you yourself make of a check, such as a test suite you ran. It is kept with the "
        "result as your word; the task's own checks run in any case.",
        ["name", "passed"],
        {
            "name": _text(saying.LONGEST_NAME),
            "passed": {"type": "boolean"},
            "detail": _text(saying.LONGEST_DETAIL),
        },
    ),
]
