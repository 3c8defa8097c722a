"""Anthropic's Messages API."""

import json
from collections.abc import Iterator

from paddock.testing.models.conversation import Asked, Entry, Json, Tool, inner, objects, texts
from paddock.testing.models.reply import SIGNATURE, Event, Reply, pieces
from paddock.testing.models.script import Fail, Usage

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(body: Json) -> Asked:
    system = [Entry("system", text) for text in texts(body.get("system"))]
    messages = [entry for message in objects(body.get("messages")) for entry in _entries(message)]
    return Asked(
        model=str(body.get("model", "")),
        entries=(*system, *messages),
        tools=tuple(
            Tool(str(tool.get("name", "")), inner(tool, "input_schema"))
            for tool in objects(body.get("tools"))
        ),
        streams=body.get("stream") is True,
        schema=inner(body, "output_config", "format", "schema") or None,
    )


def _entries(message: Json) -> Iterator[Entry]:
    role, content = message.get("role"), message.get("content")
    if role == "assistant":
        blocks = objects(content)
        calls = tuple(str(block.get("name")) for block in blocks if block.get("type") == "tool_use")
        yield Entry("assistant", "".join(texts(content)), calls)
        return
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield Entry("tool", "\n".join(texts(block.get("content"))))
        else:
            yield Entry("system" if role == "system" else "user", "\n".join(texts(block)))


def whole(reply: Reply) -> Json:
    return {**_head(reply), "content": _blocks(reply), **_stop(reply), "usage": _usage(reply.usage)}


def events(reply: Reply, asked: Asked) -> Iterator[Event]:
    early = {**_usage(reply.usage), "output_tokens": 1}
    start: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": early}
    yield _event("message_start", message={**_head(reply), **start})
    for index, block in enumerate(_blocks(reply)):
        empty, deltas = _streamed(block)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=_stop(reply), usage=_usage(reply.usage))
    yield _event("message_stop")


def error(failure: Fail, request_id: str) -> Json:
    usual = "api_error" if failure.status >= 500 else "invalid_request_error"
    kind = failure.kind or _KINDS.get(failure.status, usual)
    return {
        "type": "error",
        "error": {"type": kind, "message": failure.message},
        "request_id": request_id,
    }


def _head(reply: Reply) -> Json:
    return {
        "id": f"msg_01{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
    }


def _stop(reply: Reply) -> Json:
    return {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}


def _blocks(reply: Reply) -> list[Json]:
    blocks: list[Json] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": SIGNATURE})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for number, call in reply.numbered_calls():
        head = {"type": "tool_use", "id": f"toolu_01{number}", "name": call.name}
        blocks.append({**head, "input": call.arguments})
    return blocks


def _streamed(block: Json) -> tuple[Json, list[Json]]:
    """A block as it begins, and what is added to it."""
    match block:
        case {"type": "thinking", "thinking": thinking, "signature": signature}:
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(thinking)]
            proof = {"type": "signature_delta", "signature": signature}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, proof]
        case {"type": "text", "text": text}:
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
            return {"type": "text", "text": ""}, deltas
        case _:
            written = pieces(json.dumps(block["input"], ensure_ascii=False))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in written]
            return {**block, "input": {}}, deltas


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "service_tier": "standard",
    }


def _event(name: str, **fields: object) -> Event:
    return Event({"type": name, **fields}, name)
