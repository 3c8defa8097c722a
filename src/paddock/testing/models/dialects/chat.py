"""OpenAI's Chat Completions API, which many other servers speak."""

import re
from collections.abc import Iterator

from paddock.testing.models.conversation import Asked, Entry, Json, Tool, inner, objects, texts
from paddock.testing.models.dialects.openai import error
from paddock.testing.models.reply import Event, Reply, pieces
from paddock.testing.models.script import Usage

__all__ = ["error", "events", "read", "whole"]

_INTERJECTED = re.compile(r"\s*<info-msg>.*</info-msg>\s*", re.S)
"""goose puts this between the text and the call of one turn, as if a user had said it."""


def read(body: Json) -> Asked:
    # Without custom tools, whose calls not every client of this API understands.
    functions = [inner(tool, "function") for tool in objects(body.get("tools"))]
    return Asked(
        model=str(body.get("model", "")),
        entries=tuple(e for message in objects(body.get("messages")) for e in _entries(message)),
        tools=tuple(
            Tool(str(function.get("name", "")), inner(function, "parameters"))
            for function in functions
            if function
        ),
        streams=body.get("stream") is True,
        schema=inner(body, "response_format", "json_schema", "schema") or None,
        wants_usage=inner(body, "stream_options").get("include_usage") is True,
    )


def _entries(message: Json) -> Iterator[Entry]:
    said = list(texts(message.get("content")))
    match message.get("role"):
        case "assistant":
            functions = [inner(call, "function") for call in objects(message.get("tool_calls"))]
            calls = tuple(str(function.get("name")) for function in functions)
            yield Entry("assistant", "".join(said), calls)
        case "tool":
            yield Entry("tool", "\n".join(said))
        case "user":
            yield from (Entry("user", text) for text in said if not _INTERJECTED.fullmatch(text))
        case _:
            yield from (Entry("system", text) for text in said)


def whole(reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.text},
            }
            for number, call in reply.numbered_calls()
        ]
    choice = {"index": 0, "message": message, "finish_reason": _reason(reply)}
    return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply.usage)}


def events(reply: Reply, asked: Asked) -> Iterator[Event]:
    head = _head(reply, "chat.completion.chunk")
    for delta in _deltas(reply):
        yield Event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    last = {"index": 0, "delta": {}, "finish_reason": _reason(reply)}
    yield Event({**head, "choices": [last]})
    if asked.wants_usage:
        yield Event({**head, "choices": [], "usage": _usage(reply.usage)})
    yield Event("[DONE]")


def _deltas(reply: Reply) -> Iterator[Json]:
    yield {"role": "assistant", "content": ""}
    # Not OpenAI's own, but what servers with models that think have agreed on.
    yield from ({"reasoning_content": piece} for piece in pieces(reply.thinking))
    yield from ({"content": piece} for piece in pieces(reply.text))
    for index, (number, call) in enumerate(reply.numbered_calls()):
        begun = {"name": call.name, "arguments": ""}
        head = {"index": index, "id": f"call_{number}", "type": "function"}
        yield {"tool_calls": [{**head, "function": begun}]}
        for piece in pieces(call.text):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _head(reply: Reply, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": kind,
        "created": reply.created,
        "model": reply.model,
    }


def _reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
