"""What a model is asked, in words that all the APIs share."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
Role = Literal["system", "user", "assistant", "tool"]

_DIRECTORY = re.compile(
    r"Primary working directory: (?P<a>\S.*)"
    r"|<cwd>(?P<b>[^<]+)</cwd>"
    r"|(?:Current w|W)orking directory: (?P<c>\S.*)"
    r"|working in the directory: (?P<d>\S.*)"
    r"|Workspace Directories:\*\*\n\s+- (?P<e>\S.*)"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of the conversation; `calls` are the names of the tools it called."""

    role: Role
    text: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the agent offers; a custom one takes a text instead of parameters."""

    name: str
    parameters: Mapping[str, Any]
    is_custom: bool = False

    @property
    def properties(self) -> Mapping[str, Any]:
        return inner(self.parameters, "properties")

    @property
    def required(self) -> tuple[str, ...]:
        found = self.parameters.get("required")
        return tuple(map(str, found)) if isinstance(found, list) else ()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to the model. `schema` is that of the JSON it wants instead of a text."""

    model: str
    entries: tuple[Entry, ...]
    tools: tuple[Tool, ...] = ()
    streams: bool = False
    schema: Mapping[str, Any] | None = None
    wants_usage: bool = True

    def said(self, *roles: Role) -> str:
        """All that these have said; without roles, all that the model did not say itself."""
        wanted = roles or ("system", "user", "tool")
        return "\n".join(entry.text for entry in self.entries if entry.role in wanted)

    def directory(self) -> str:
        """Where the agent says that it works; empty where it does not say."""
        found = _DIRECTORY.search(self.said("system", "user"))
        return next(filter(None, found.groups()), "").strip().rstrip("/.") if found else ""


def turns(entries: Sequence[Entry]) -> list[Entry]:
    """The assistant's turns; agents keep thoughts, text and calls of one turn as several items."""
    found: list[Entry] = []
    before: Role | None = None
    for entry in entries:
        if entry.role == "assistant" and before == "assistant":
            last = found.pop()
            found.append(Entry("assistant", last.text + entry.text, last.calls + entry.calls))
        elif entry.role == "assistant":
            found.append(entry)
        before = entry.role
    return found


def texts(content: object) -> Iterator[str]:
    """The texts of a content that is a string, or a list of strings and parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        yield from texts(content.get("text"))
    elif isinstance(content, list):
        for part in content:
            yield from texts(part)


def inner(content: object, *names: str) -> Json:
    """The object at the end of the names; an empty one where there is none."""
    for name in names:
        content = content.get(name) if isinstance(content, Mapping) else None
    return dict(content) if isinstance(content, Mapping) else {}


def objects(content: object) -> list[Json]:
    """The objects of a list; nothing where there is none, as requests come from anyone."""
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
