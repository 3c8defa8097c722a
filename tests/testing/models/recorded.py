"""What real agents sent to model APIs, and replies that they understood."""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from paddock.testing.models.conversation import Asked
from paddock.testing.models.routes import Kind, Route, route

SAMPLES = Path(__file__).parent / "samples"
AGENTS = sorted(path.name.removesuffix(".requests.jsonl") for path in SAMPLES.glob("*.jsonl"))


@dataclass(frozen=True)
class Recorded:
    """A request of an agent, read."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    route: Route
    asked: Asked


@cache
def requests(agent: str) -> tuple[Recorded, ...]:
    """The agent's requests to a model; tools that a request has from the one before included."""
    found: list[Recorded] = []
    for line in (SAMPLES / f"{agent}.requests.jsonl").read_text().splitlines():
        sent = json.loads(line)
        way = route(sent["path"].partition("?")[0])
        if way is None or way.kind is not Kind.REPLY:
            continue
        asked = way.dialect.read(way.body(sent["body"]))
        if "same list" in str(sent["body"].get("tools")):
            asked = replace(asked, tools=found[-1].asked.tools)
        found.append(Recorded(sent["path"], sent["headers"], sent["body"], way, asked))
    return tuple(found)


def asked(agent: str) -> Asked:
    """The first request of an agent that offers tools."""
    return next(request.asked for request in requests(agent) if request.asked.tools)


def reply(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.reply.json").read_text())


def events(name: str) -> list[tuple[str, Any]]:
    return parsed((SAMPLES / f"{name}.reply.sse").read_text())


def parsed(stream: str) -> list[tuple[str, Any]]:
    """The events of a stream: name, and data where that is JSON."""
    found = []
    for block in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if fields:
            data = fields["data"]
            found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found
