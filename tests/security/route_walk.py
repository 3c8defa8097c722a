"""Calls every route of an OpenAPI document with values that a hostile tenant would try."""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp

from tests.interfaces.api.least import smallest

_AT_ONCE = 6
_DEEPEST = 3
_STREAMS_S = 1.0
_LEADING = ("template", "image", "reference", "repo", "url", "path", "source", "fromimage")
"""Fields with such a name get every value, others one each."""
_ENDING = frozenset("stop pause archive start resume fork quarantine rebuild kill".split())


@dataclass
class Walk:
    """One tenant's way through the routes."""

    call: Any
    """`await call(method, path, body, within_s=…)`, as `tests.control_plane.Client` has it."""
    own: Mapping[str, str]
    """Objects of the tenant by the name of the path's parameter; `spare` is one that may end."""
    hostile: Sequence[str]
    statuses: dict[str, list[int]] = field(default_factory=dict)

    async def through(self, document: Mapping[str, Any]) -> None:
        """Every route, those that delete last."""
        routes = [
            (path, method.upper(), operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        ]
        values = itertools.cycle(self.hostile)
        for path, method, operation in sorted(routes, key=lambda each: each[1] == "DELETE"):
            requests = [*_requests(document, operation, self.hostile, values)]
            mine, theirs = self._targets(path, method, values)
            tried = [(mine, *each) for each in requests] + [(theirs, *requests[0])]
            gate = asyncio.Semaphore(_AT_ONCE)
            answered = await asyncio.gather(
                *(self._ask(gate, method, path + query, body) for path, query, body in tried)
            )
            self.statuses[f"{method} {path}"] = answered

    def _targets(self, path: str, method: str, values: Iterator[str]) -> tuple[str, str]:
        """With the tenant's own objects, and with something else in their place."""
        ends = method == "DELETE" or path.rpartition("/")[2] in _ENDING
        own = {**self.own, "sandbox": self.own["spare" if ends else "sandbox"]}
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        mine = {name: own.get(name.partition(":")[0], next(values)) for name in names}
        theirs = {name: next(values) for name in names}
        return _filled(path, mine), _filled(path, theirs)

    async def _ask(self, gate: asyncio.Semaphore, method: str, target: str, body: Any) -> int:
        async with gate:
            try:
                answer = await self.call(method, target, body, within_s=_STREAMS_S)
            except (TimeoutError, aiohttp.ClientError):
                return 0  # a stream, or a terminal that is no WebSocket
            if method == "POST" and answer.status in (201, 202):
                await self._remove(target, answer.body)
            return answer.status

    async def _remove(self, target: str, made: Any) -> None:
        """What a create made is not needed any more."""
        found = made if isinstance(made, dict) else {}
        name = found.get("id") or found.get("sandboxID") or found.get("name")
        if name:
            place = f"{target.partition('?')[0]}/{quote(str(name), safe='')}"
            await self.call("DELETE", f"{place}?force=true", None, within_s=20)


def _filled(path: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


def _requests(
    document: Mapping[str, Any],
    operation: Mapping[str, Any],
    hostile: Sequence[str],
    values: Iterator[str],
) -> Iterator[tuple[str, Any]]:
    """Queries and bodies: the least that the route takes, then one field after the other."""
    given = [each for each in operation.get("parameters", []) if each["in"] == "query"]
    least = {each["name"]: next(values) for each in given if each.get("required")}
    body = smallest(document, operation)
    yield _query(least), body
    for each in given:
        for value in _tried(each["name"], hostile, values):
            yield _query({**least, each["name"]: value}), body
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    for place in _strings(document, schema.get("schema", {}), _DEEPEST):
        for value in _tried(place[-1], hostile, values):
            yield _query(least), _with(body, place, value)


def _tried(name: str, hostile: Sequence[str], values: Iterator[str]) -> Sequence[str]:
    leads = any(word in name.lower() for word in _LEADING)
    return hostile if leads else [next(values)]


def _query(values: Mapping[str, str]) -> str:
    return f"?{urlencode(values)}" if values else ""


def _strings(
    document: Mapping[str, Any], schema: Mapping[str, Any], depth: int
) -> Iterator[tuple[str, ...]]:
    """Where in a body there may be text."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _strings(document, choice, depth)
    if depth and schema.get("type") == "object":
        for name, inner in schema.get("properties", {}).items():
            found = set(_strings(document, inner, depth - 1))
            yield from ((name, *place) for place in sorted(found))
    elif schema.get("type") == "array":
        yield from _strings(document, schema.get("items", {}), depth)
    elif schema.get("type") == "string" and "enum" not in schema:
        yield ()


def _with(body: Any, place: tuple[str, ...], value: str) -> Any:
    if not place:
        return value
    inner = body if isinstance(body, dict) else {}
    return {**inner, place[0]: _with(inner.get(place[0]), place[1:], value)}
