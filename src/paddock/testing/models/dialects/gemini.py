"""Google's GenerateContent API, also as Code Assist wraps it."""

from collections.abc import Iterator

from paddock.testing.models.conversation import Asked, Entry, Json, Tool, inner, objects, texts
from paddock.testing.models.reply import Event, Reply
from paddock.testing.models.script import Fail, Usage

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def read(body: Json) -> Asked:
    """The path says the model and whether to stream; the router puts them in."""
    system = texts(inner(body, "systemInstruction").get("parts"))
    contents = [entry for content in objects(body.get("contents")) for entry in _entries(content)]
    config = inner(body, "generationConfig")
    return Asked(
        model=str(body.get("model", "")),
        entries=(*(Entry("system", text) for text in system), *contents),
        tools=tuple(
            Tool(
                str(function.get("name", "")),
                inner(function, "parametersJsonSchema") or inner(function, "parameters"),
            )
            for tool in objects(body.get("tools"))
            for function in objects(tool.get("functionDeclarations"))
        ),
        streams=body.get("stream") is True,
        schema=inner(config, "responseJsonSchema") or inner(config, "responseSchema") or None,
    )


def _entries(content: Json) -> Iterator[Entry]:
    parts = objects(content.get("parts"))
    if content.get("role") == "model":
        said = "".join(str(part.get("text", "")) for part in parts if not part.get("thought"))
        functions = [inner(part, "functionCall") for part in parts if inner(part, "functionCall")]
        yield Entry("assistant", said, tuple(str(call.get("name")) for call in functions))
        return
    for part in parts:
        if "functionResponse" in part:
            answer = inner(part, "functionResponse", "response")
            yield Entry("tool", "\n".join(t for value in answer.values() for t in texts(value)))
        else:
            yield from (Entry("user", text) for text in texts(part))


def whole(reply: Reply) -> Json:
    return _chunk(reply, _parts(reply), is_last=True)


def events(reply: Reply, asked: Asked) -> Iterator[Event]:
    parts = _parts(reply)
    for number, part in enumerate(parts, 1):
        yield Event(_chunk(reply, [part], is_last=number == len(parts)))


def error(failure: Fail, request_id: str) -> Json:
    usual = "INTERNAL" if failure.status >= 500 else "FAILED_PRECONDITION"
    status = failure.kind or _STATUSES.get(failure.status, usual)
    return {"error": {"code": failure.status, "message": failure.message, "status": status}}


def _parts(reply: Reply) -> list[Json]:
    parts: list[Json] = []
    if reply.thinking:
        parts.append({"text": reply.thinking, "thought": True})
    if reply.text or not reply.calls:
        parts.append({"text": reply.text})
    for number, call in reply.numbered_calls():
        function = {"id": f"fc{number}", "name": call.name, "args": call.arguments}
        parts.append({"functionCall": function})
    return parts


def _chunk(reply: Reply, parts: list[Json], is_last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    chunk: Json = {"candidates": [candidate], "modelVersion": reply.model}
    chunk["responseId"] = f"r{reply.id}"
    if is_last:
        candidate["finishReason"] = "STOP"
        chunk["usageMetadata"] = _usage(reply.usage)
    return chunk


def _usage(usage: Usage) -> Json:
    return {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output,
        "totalTokenCount": usage.input + usage.output + usage.reasoning,
        "cachedContentTokenCount": usage.cache_read,
        "thoughtsTokenCount": usage.reasoning,
    }
