"""What an agent's tool call comes to, whatever its agent calls the tool and its arguments."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.domain.agent_event import LONGEST_DATA, AgentEvent, AgentEventKind

_COMMANDS = ("command", "cmd", "script")
_PATHS = ("path", "file_path", "filePath", "notebook_path", "absolute_path")
_LONGEST_SCRIPT = LONGEST_DATA
_MOST_WORDS = 1000
_MUCH = 3 * LONGEST_DATA
"""Of texts beside a command: with as many, the command may be one of those that were cut."""
_MOST_ARGUMENTS = 100
"""No tool has as many: one that is called so may hide among them what it is about."""
_PLACES = ("cwd", "workdir", "dir_path", "directory")
_MANY_PATHS = ("paths", "files", "changes")
WRITING = frozenset(
    "write edit multiedit notebookedit writefile editfile createfile deletefile replace "
    "strreplace strreplaceeditor strreplacebasededittool applypatch patch filechange move".split()
)
"""Tools that change files, in small letters and without `_`, `-` and spaces."""
READING = frozenset("read readfile viewfile view cat readmanyfiles viewimage".split())
_PASSING = re.compile(
    r"(?<![\d.])\d{1,9}(?:\.\d{1,9})?\s{0,2}(?:[nmµ]?s|secs?|seconds?|minutes?)\b"
    r"|\d{4}-\d\d-\d\d[T ]|\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?Z?|\bpid\W{0,3}\d{1,9}",
    re.IGNORECASE,
)
"""Times, durations and process numbers: they differ even where nothing else does."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One tool call, as far as it can be told what it does."""

    tool: str = ""
    call: str = ""
    """The agent's own name for this call, by which its result is known."""
    argv: tuple[str, ...] = ()
    """A command to be run: its words, or one script for a shell."""
    is_script: bool = False
    cwd: str = ""
    """Where it is run, if that is said."""
    paths: tuple[str, ...] = ()
    """Files that it names, beside those in a command."""
    writes: bool = False
    """It changes them."""
    reads: bool = False
    is_cut: bool = False
    """There is more of its command than is here: nobody can say what that comes to."""
    digest: str = ""
    """The same for the same tool with the same arguments."""


def deed_of(event: AgentEvent) -> Deed | None:
    """None for what is no deed, such as a thought."""
    data = event.data
    if event.kind is AgentEventKind.FILE_EDITED:
        return Deed(tool="file_edited", paths=tuple(_paths(data)), writes=True)
    if event.kind is not AgentEventKind.TOOL_CALL:
        return None
    tool, given = str(data.get("name") or "?"), data.get("input")
    if isinstance(given, str):
        given = _read(given)
    arguments: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    (argv, is_script), is_cut = _command(arguments), _has_more(arguments, data)
    plain = "".join(c for c in tool.lower() if c.isalnum())
    return Deed(
        tool=tool[:100],
        call=call_of(event),
        argv=argv,
        is_script=is_script,
        cwd=cwd if isinstance(cwd := _first(arguments, _PLACES), str) else "",
        paths=tuple(_paths(arguments)),
        writes=plain in WRITING,
        reads=plain in READING,
        is_cut=is_cut,
        # What was cut may differ behind the cut: it is the same as nothing else.
        digest=digest_of([tool, given, call_of(event) if data.get("cut") else ""]),
    )


def call_of(event: AgentEvent) -> str:
    return str(event.data.get("id") or "")[:200]


def outcome_of(event: AgentEvent) -> str:
    """The digest of what a tool gave, whenever that was and however long it took."""
    shown = _PASSING.sub("#", json.dumps(event.data.get("output"), default=str))
    return digest_of([shown, event.data.get("ok")])


def digest_of(content: object) -> str:
    text = json.dumps(content, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _first(data: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _command(arguments: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    found = _first(arguments, _COMMANDS)
    if isinstance(found, str):
        return (found[:_LONGEST_SCRIPT],), True
    if isinstance(found, list | tuple) and all(isinstance(word, str) for word in found):
        return tuple(found[:_MOST_WORDS]), False
    return (), False


def _has_more(arguments: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Whether a command is longer than what is judged, or there may be one that is not here."""
    found, is_cut = _first(arguments, _COMMANDS), bool(data.get("cut"))
    if isinstance(found, str):
        texts = sum(len(each) for each in arguments.values() if isinstance(each, str))
        is_long = len(found) >= _LONGEST_SCRIPT or not found or texts >= _MUCH
        return (is_cut and is_long) or len(found) > _LONGEST_SCRIPT
    if isinstance(found, list | tuple):
        return is_cut or len(found) > _MOST_WORDS
    return is_cut and len(arguments) >= _MOST_ARGUMENTS


def _paths(data: Mapping[str, Any]) -> Iterator[str]:
    for name in _PATHS:
        if isinstance(path := data.get(name), str) and path:
            yield path
    for name in _MANY_PATHS:
        many = data.get(name)
        for each in many if isinstance(many, list | tuple | Mapping) else ():
            path = each.get("path") if isinstance(each, Mapping) else each
            if isinstance(path, str) and path:
                yield path
