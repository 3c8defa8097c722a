"""OpenAI's Responses API."""

from collections.abc import Iterator
from itertools import count

from paddock.testing.models.conversation import Asked, Entry, Json, Tool, inner, objects, texts
from paddock.testing.models.dialects.openai import error
from paddock.testing.models.reply import SIGNATURE, Event, Reply, ToolCall, pieces
from paddock.testing.models.script import Usage

__all__ = ["error", "events", "read", "whole"]

_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def read(body: Json) -> Asked:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
    # Codex's newer models have their tools within the conversation.
    declared = [objects(body.get("tools")), *(objects(item.get("tools")) for item in items)]
    system = [Entry("system", text) for text in texts(body.get("instructions"))]
    return Asked(
        model=str(body.get("model", "")),
        entries=(*system, *(entry for item in items for entry in _entries(item))),
        tools=tuple(tool for tools in declared for tool in _tools(tools)),
        streams=body.get("stream") is True,
        schema=inner(body, "text", "format", "schema") or None,
    )


def _entries(item: Json) -> Iterator[Entry]:
    kind = item.get("type", "message")
    if kind in _CALLS:
        yield Entry("assistant", calls=(str(item.get("name")),))
    elif kind in _OUTPUTS:
        yield Entry("tool", "\n".join(texts(item.get("output"))))
    elif kind == "reasoning":
        yield Entry("assistant")
    elif kind == "message":
        for text in texts(item.get("content")):
            match item.get("role"):
                case "assistant":
                    yield Entry("assistant", text)
                case "user":
                    yield Entry("user", text)
                case _:
                    yield Entry("system", text)


def _tools(declared: list[Json]) -> Iterator[Tool]:
    for tool in declared:
        if tool.get("type") == "namespace":
            yield from _tools(objects(tool.get("tools")))
        elif tool.get("type") in ("function", "custom"):
            is_custom = tool.get("type") == "custom"
            yield Tool(str(tool.get("name", "")), inner(tool, "parameters"), is_custom)


def whole(reply: Reply) -> Json:
    return _response(reply, "completed", _items(reply))


def events(reply: Reply, asked: Asked) -> Iterator[Event]:
    numbers = count()
    for name, fields in _streamed(reply):
        yield Event({"type": name, "sequence_number": next(numbers), **fields}, name)


def _streamed(reply: Reply) -> Iterator[tuple[str, Json]]:
    begun = _response(reply, "in_progress", [])
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    items = _items(reply)
    for index, item in enumerate(items):
        yield "response.output_item.added", {"output_index": index, "item": _begun(item)}
        where = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            yield from _message({**where, "content_index": 0}, item["content"][0])
        elif item["type"] == "function_call":
            yield from _text(where, "response.function_call_arguments", "arguments", item)
        elif item["type"] == "custom_tool_call":
            yield from _text(where, "response.custom_tool_call_input", "input", item)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": _response(reply, "completed", items)}


def _begun(item: Json) -> Json:
    empty: Json = {"message": {"content": []}, "function_call": {"arguments": ""}}
    empty["custom_tool_call"] = {"input": ""}
    begun = empty.get(item["type"])
    return {**item, **begun, "status": "in_progress"} if begun else item


def _message(where: Json, part: Json) -> Iterator[tuple[str, Json]]:
    yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
    yield from _text(where, "response.output_text", "text", part)
    yield "response.content_part.done", {**where, "part": part}


def _text(where: Json, name: str, field: str, whole: Json) -> Iterator[tuple[str, Json]]:
    for piece in pieces(whole[field]):
        yield f"{name}.delta", {**where, "delta": piece}
    yield f"{name}.done", {**where, field: whole[field]}


def _response(reply: Reply, status: str, items: list[Json]) -> Json:
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": reply.model,
        "output": items,
        "parallel_tool_calls": True,
        "usage": _usage(reply.usage) if status == "completed" else None,
    }


def _items(reply: Reply) -> list[Json]:
    items: list[Json] = []
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        thoughts = {"type": "reasoning", "id": f"rs_{reply.id}", "summary": summary}
        items.append({**thoughts, "encrypted_content": SIGNATURE})
    if reply.text:
        head = {"type": "message", "id": f"msg_{reply.id}", "role": "assistant"}
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        items.append({**head, "status": "completed", "content": [part]})
    return [*items, *(_call(number, call) for number, call in reply.numbered_calls())]


def _call(number: str, call: ToolCall) -> Json:
    kind, mark, field = ("function_call", "fc", "arguments")
    if call.is_custom:
        kind, mark, field = ("custom_tool_call", "ctc", "input")
    item = {"type": kind, "id": f"{mark}_{number}", "call_id": f"call_{number}", "name": call.name}
    if call.namespace:
        item["namespace"] = call.namespace
    return {**item, field: call.text, "status": "completed"}


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
