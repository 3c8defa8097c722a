"""What a kernel says, as lines of the answer."""

from __future__ import annotations

import time
from typing import Any

from .rich import CHART, DATA

_FORMATS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "text/latex": "latex",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "application/json": "json",
    "application/javascript": "javascript",
    CHART: "chart",
    DATA: "data",
}
_BINARY = ("png", "jpeg", "pdf")


def line_of(kind: str, content: dict[str, Any]) -> dict[str, Any] | None:
    """None for what clients are not told."""
    if kind == "stream":
        return {"type": content["name"], "text": content["text"], "timestamp": time.time_ns()}
    if kind in ("execute_result", "display_data"):
        shown = _result(content.get("data", {}))
        return {"type": "result", "is_main_result": kind == "execute_result", **shown}
    if kind == "error":
        return {
            "type": "error",
            "name": content["ename"],
            "value": content["evalue"],
            "traceback": "\n".join(content["traceback"]),
        }
    if kind == "execute_input":
        return {"type": "number_of_executions", "execution_count": content["execution_count"]}
    return None


def _result(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for kind, value in data.items():
        name = _FORMATS.get(kind)
        if name is None:
            extra[kind] = value
        elif name in _BINARY:
            found[name] = value.replace("\n", "")
        elif name == "text":
            found[name] = _unquoted(value)
        else:
            found[name] = value
    return {**found, "extra": extra} if extra else found


def _unquoted(text: str) -> str:
    """A string's own text, as E2B sends it: without the quotes around it, but with its escapes."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text
