"""What a scripted model says: plain data, from Python or from a TOML file."""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec


class BadScript(ValueError):
    """A script that cannot be played; the message says where it is wrong."""


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plain data; a misspelt field is an error."""


class WriteFile(_Data, frozen=True, tag="write_file", tag_field="do"):
    """Write a whole file, with whatever tool the agent has for it."""

    path: str
    content: str


class EditFile(_Data, frozen=True, tag="edit_file", tag_field="do"):
    """Replace `old` by `new`. Whole lines only, because some agents edit by patches."""

    path: str
    old: str
    new: str


class ReadFile(_Data, frozen=True, tag="read_file", tag_field="do"):
    """Read a file."""

    path: str


class RunShell(_Data, frozen=True, tag="run_shell", tag_field="do"):
    """Run a line of shell."""

    command: str


class CallMcp(_Data, frozen=True, tag="call_mcp", tag_field="do"):
    """Call a tool of an MCP server under the name that the agent gives it."""

    server: str
    tool: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)


class CallTool(_Data, frozen=True, tag="call_tool", tag_field="do"):
    """Call exactly this tool, also one that was not offered. A text is a custom tool's input."""

    name: str
    arguments: Mapping[str, Any] | str = msgspec.field(default_factory=dict)


Call = WriteFile | EditFile | ReadFile | RunShell | CallMcp | CallTool


class Usage(_Data, frozen=True):
    """Tokens, written into the reply as they stand here."""

    input: int = 1000
    output: int = 50
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Fail(_Data, frozen=True):
    """Answer with an HTTP error instead, `times` times before the turn is played; else always."""

    status: int
    message: str = "scripted failure"
    kind: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    times: int | None = None

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599:
            raise ValueError(f"a failure has a status from 400 to 599, not {self.status}")


class Cut(_Data, frozen=True):
    """Break the connection after so many events. `times` as in `Fail`."""

    after: int = 1
    times: int | None = None


class Turn(_Data, frozen=True):
    """One reply of the model: it thinks, says something, then calls tools.

    `wait_s` passes before the reply begins and `pause_s` before each of its events. `gate` holds
    the reply back until the gate of that name is opened; `hang` never answers.
    """

    say: str = ""
    think: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage = Usage()
    wait_s: float = 0
    pause_s: float = 0
    gate: str = ""
    hang: bool = False
    fail: Fail | None = None
    cut: Cut | None = None

    def __post_init__(self) -> None:
        if self.wait_s < 0 or self.pause_s < 0:
            raise ValueError("wait_s and pause_s are 0 or more seconds")
        if not (self.say or self.think or self.calls or self.hang or self.fail or self.cut):
            raise ValueError("a turn does something: say, think, calls, hang, fail or cut")


class Script(_Data, frozen=True):
    """Turns, in order, for the conversations that are about it.

    Those that come with the API key `key`, or whose user says `marker`; without either, all that no
    other script is for. `afterwards` answers what comes after the last turn; without it that is an
    error. Requests that offer no tools are side requests, titles and the like, unless
    `without_tools` says that they are played as well.
    """

    turns: tuple[Turn, ...]
    name: str = "script"
    key: str = ""
    marker: str = ""
    afterwards: Turn | None = None
    without_tools: bool = False

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError(f"the script {self.name!r} has no turns")
        if self.key and self.marker:
            raise ValueError(f"the script {self.name!r} goes by key or by marker, not by both")


class _Several(_Data, frozen=True):
    """A file with more than one script."""

    scripts: tuple[Script, ...]


def load_scripts(path: Path) -> tuple[Script, ...]:
    """The scripts of a TOML file: one with `[[turns]]`, or several under `[[scripts]]`."""
    try:
        return parse_scripts(path.read_text())
    except (BadScript, OSError, UnicodeDecodeError) as error:
        raise BadScript(f"{path}: {error}") from error


def parse_scripts(text: str) -> tuple[Script, ...]:
    try:
        content = tomllib.loads(text)
        if "scripts" in content:
            return checked(msgspec.convert(content, _Several).scripts)
        return checked((msgspec.convert(content, Script),))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadScript(f"not a script: {error}") from error


def gates(script: Script) -> set[str]:
    """The names of the gates at which its turns wait."""
    every = (*script.turns, *([script.afterwards] if script.afterwards else []))
    return {turn.gate for turn in every if turn.gate}


def checked(scripts: Sequence[Script]) -> tuple[Script, ...]:
    """The same, if it is always clear which of them is meant."""
    if not scripts:
        raise BadScript("no script at all: give at least one")
    for what in ("name", "key", "marker"):
        counted = Counter(getattr(script, what) for script in scripts)
        twice = [value for value, count in counted.items() if value and count > 1]
        if twice:
            raise BadScript(f"two scripts have the {what} {twice[0]!r}: give each its own")
    rest = [script.name for script in scripts if not script.key and not script.marker]
    if len(rest) > 1:
        raise BadScript(f"{', '.join(rest)} have neither key nor marker: only one script may")
    return tuple(scripts)
