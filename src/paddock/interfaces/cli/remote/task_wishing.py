"""What else a task is given on a command line: its sandbox, tools, guardian, and a prompt with
variables."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.params import Number, Size, pairs

F = TypeVar("F", bound=Callable[..., Any])
_RESOURCES = ("cpus", "memory_mib", "disk_mib", "pids")
_NETWORKS = ("none", "allowlist", "open")
_SERVER = ("command", "args", "env", "url", "type")
"""What a server of `mcpServers` may say."""
_TYPES = {True: ("stdio",), False: ("http", "streamable-http")}
"""By whether it has a command: what its `type` may be, which then says nothing new."""
_TOOLS = "a JSON list, or an object with `mcpServers` as agents have it"


def sandbox_options(command: F) -> F:
    """Of the sandbox that is made for it, and of who watches; `sandbox_wish()` reads them."""
    for decorate in (
        click.option(
            "--tools", type=click.Path(path_type=Path), help="MCP servers, of a JSON file."
        ),
        click.option(
            "--guardian",
            multiple=True,
            metavar="RULE=ACT",
            help="What its guardian does, such as loop=ask.",
        ),
        click.option(
            "--allow",
            multiple=True,
            metavar="RULE",
            help="What it may reach, such as example.com.",
        ),
        click.option("--network", type=click.Choice(_NETWORKS), help="What it may reach outside."),
        click.option("--pids", type=click.IntRange(8), help="Most processes."),
        click.option("--disk", "disk_mib", type=Size(), help="Disk, such as 500m or 20g."),
        click.option("--memory", "memory_mib", type=Size(), help="Memory, such as 512m or 2g."),
        click.option("--cpus", type=Number(), help="Processors, such as 0.5 or 2."),
    ):
        command = decorate(command)
    return command


def prompt_options(command: F) -> F:
    """A prompt that is long or has variables; `prompt_of()` and `variables_of()` read them."""
    for decorate in (
        click.option(
            "--var",
            "variables",
            multiple=True,
            metavar="NAME=VALUE",
            help="Stands for {{NAME}} in the prompt. Never a secret.",
        ),
        click.option(
            "--prompt-file",
            type=click.Path(path_type=Path),
            help="The prompt, in place of PROMPT.",
        ),
    ):
        command = decorate(command)
    return command


def sandbox_wish(options: Mapping[str, Any]) -> dict[str, Any]:
    """As AsyncTask.create takes them; what was not said is not in it."""
    resources = {name: options[name] for name in _RESOURCES if options[name] is not None}
    network: dict[str, Any] = {"mode": options["network"]} if options["network"] else {}
    network |= {"rules": list(options["allow"])} if options["allow"] else {}
    wish = {
        "resources": resources or None,
        "network": network or None,
        "guardian": pairs(options["guardian"], "--guardian") or None,
        "tools": tools_in(options["tools"]) if options["tools"] else None,
    }
    return {name: value for name, value in wish.items() if value is not None}


def variables_of(given: tuple[str, ...]) -> dict[str, str] | None:
    """None, with none of them: then braces mean nothing."""
    return pairs(given, "--var") if given else None


def prompt_of(given: str | None, file: Path | None) -> str:
    """In whichever way it is given, once."""
    if (given is None) == (file is None):
        refuse(
            "the prompt is missing" if given is None else "the prompt is given twice",
            "give PROMPT, `-` for standard input, or --prompt-file",
        )
    if file is not None:
        return _text(file, "--prompt-file")
    return sys.stdin.buffer.read().decode("utf-8", "replace") if given == "-" else str(given)


def tools_in(file: Path) -> list[dict[str, Any]]:
    """As the API takes them, of either form."""
    try:
        said = json.loads(_text(file, "--tools"))
    except ValueError as error:
        refuse(f"--tools: {file} is no JSON: {error}", f"write {_TOOLS}")
    if isinstance(said, dict) and isinstance(said.get("mcpServers"), dict):
        return [_server(name, each) for name, each in said["mcpServers"].items()]
    if not isinstance(said, list) or not all(isinstance(each, dict) for each in said):
        refuse(f"--tools: {file} has no list of MCP servers", f"write {_TOOLS}")
    return said


def _server(name: str, said: Any) -> dict[str, Any]:
    """The program and its arguments are one list here, and two things elsewhere."""
    where = f"--tools: the MCP server {name[:80]!r}"
    if not isinstance(said, dict):
        refuse(f"{where} is no object", "give it a `command` with `args`, or a `url`")
    if unknown := sorted(set(said) - set(_SERVER)):
        refuse(
            f"{where} has {', '.join(each[:80] for each in unknown)}, which cannot be handed on",
            f"leave it out; known are: {', '.join(_SERVER)}",
        )
    for key, right in (("command", _is_text), ("url", _is_text), ("args", _is_list)):
        if key in said and not right(said[key]):
            kind = "a list of strings" if right is _is_list else "a string"
            refuse(f"{where} has other `{key}` than {kind}", f"write {kind}, or leave it out")
    env = said.get("env", {})
    if not isinstance(env, dict) or not _is_list(list(env.values())):
        refuse(f"{where} has other `env` than an object of strings", "write names and strings")
    command = [said["command"], *said.get("args", ())] if said.get("command") else []
    if bool(command) == bool(said.get("url")) or ("args" in said and not command):
        refuse(f"{where} needs either a command or a url", "give one; `args` belong to a command")
    if said.get("type", _TYPES[bool(command)][0]) not in _TYPES[bool(command)]:
        known = " or ".join(_TYPES[bool(command)])
        refuse(f"{where} is of a `type` that is not spoken here", f"write {known}, or leave it out")
    found = {"name": name, "command": command, "env": env, "url": said.get("url")}
    return {key: value for key, value in found.items() if value}


def _is_text(said: Any) -> bool:
    return isinstance(said, str)


def _is_list(said: Any) -> bool:
    return isinstance(said, list) and all(isinstance(each, str) for each in said)


def _text(file: Path, option: str) -> str:
    try:
        return file.read_bytes().decode()  # not as text: that would change line ends
    except OSError as error:
        refuse(f"{option}: {file} cannot be read: {error.strerror}", "name a readable file")
    except UnicodeDecodeError:
        refuse(f"{option}: {file} is not UTF-8 text", "save it as text")
