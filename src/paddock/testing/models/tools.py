"""From what a script wants done to the tools that the asking agent really has.

Which agent it is, its tools say: names first, then parameters. Where an agent has no tool for
something, its shell does it.
"""

import json
import posixpath
import re
import shlex
from collections.abc import Iterable
from typing import Any

from paddock.testing.models import patches
from paddock.testing.models.conversation import Asked, Json, Tool, inner
from paddock.testing.models.reply import ToolCall
from paddock.testing.models.schema import example
from paddock.testing.models.script import (
    Call,
    CallMcp,
    CallTool,
    EditFile,
    ReadFile,
    RunShell,
    WriteFile,
)

_PATHS = ("file_path", "filePath", "absolute_path", "path")
_COMMANDS = ("command", "cmd")
_PATCHES = ("patchText", "patch")
_REPLACED = (("old_string", "new_string"), ("oldString", "newString"), ("before", "after"))


class NoTool(Exception):
    """The agent offers nothing that could do it."""


def resolved(call: Call, asked: Asked) -> ToolCall:
    """The call as this agent understands it; NoTool if it cannot be made."""
    match call:
        case CallTool():
            given = call.arguments
            made = ToolCall(call.name, given if isinstance(given, str) else dict(given))
        case CallMcp():
            made = _mcp(call, asked)
        case WriteFile():
            made = _write(call, asked)
        case EditFile():
            made = _edit(call, asked)
        case ReadFile():
            made = _read(call, asked)
        case RunShell():
            made = _shell(call.command, asked)
    return made


def _write(call: WriteFile, asked: Asked) -> ToolCall:
    for tool in _named(asked.tools, "write", "writefile", "createfile"):
        path = _first(_PATHS, tool)
        if path and "content" in tool.properties:
            values = {path: _absolute(call.path, asked), "content": call.content}
            return _filled(tool, values)
    patch = patches.adding(call.path, call.content)
    return _patched(patch, asked) or _shell(patches.writing(call.path, call.content), asked)


def _edit(call: EditFile, asked: Asked) -> ToolCall:
    for tool in _named(asked.tools, "edit", "replace", "editfile"):
        path = _first(_PATHS, tool)
        change = _change(call, tool)
        if path and change:
            return _filled(tool, {path: _absolute(call.path, asked), **change})
    patch = patches.replacing(call.path, call.old, call.new)
    line = patches.substituting(call.path, call.old, call.new)
    return _patched(patch, asked) or _shell(line, asked)


def _change(call: EditFile, tool: Tool) -> Json:
    for old, new in _REPLACED:
        if old in tool.properties and new in tool.properties:
            return {old: call.old, new: call.new}
    if "edits" not in tool.properties:
        return {}
    # pi takes a list of changes; what it calls them, its schema says where it is given in full.
    names = list(inner(tool.properties, "edits", "items", "properties"))
    old = next((name for name in names if name.lower().startswith("old")), "oldText")
    new = next((name for name in names if name.lower().startswith("new")), "newText")
    return {"edits": [{old: call.old, new: call.new}]}


def _read(call: ReadFile, asked: Asked) -> ToolCall:
    for tool in _named(asked.tools, "read", "readfile", "view"):
        path = _first(_PATHS, tool)
        if path:
            return _filled(tool, {path: _absolute(call.path, asked)})
    return _shell(f"cat {shlex.quote(call.path)}", asked)


def _shell(command: str, asked: Asked) -> ToolCall:
    known = ("bash", "shell", "runshellcommand", "execcommand", "execute")
    for tool in _named(asked.tools, *known):
        name = _first(_COMMANDS, tool)
        if name:
            return _filled(tool, {name: command})
    if _custom(asked, "exec"):
        argument = json.dumps({"cmd": command})
        line = f"const r = await tools.exec_command({argument}); text(r.output ?? r);"
        return ToolCall("exec", line)
    offered = ", ".join(tool.name for tool in asked.tools) or "none"
    raise NoTool(f"no tool of the agent runs a command; it offers: {offered}")


def _patched(patch: str, asked: Asked) -> ToolCall | None:
    if _custom(asked, "apply_patch"):
        return ToolCall("apply_patch", patch)
    for tool in _named(asked.tools, "applypatch"):
        if name := _first(_PATCHES, tool):
            return _filled(tool, {name: patch})
    if _custom(asked, "exec"):
        return ToolCall("exec", f"text(await tools.apply_patch({json.dumps(patch)}));")
    return None


def _mcp(call: CallMcp, asked: Asked) -> ToolCall:
    arguments = dict(call.arguments)
    full = f"mcp__{call.server}__{call.tool}"
    if _custom(asked, "exec"):
        line = f"const r = await tools.{full}({json.dumps(arguments)}); text(r);"
        return ToolCall("exec", line)
    if any(tool.name == "exec_command" for tool in asked.tools):
        return ToolCall(call.tool, arguments, namespace=f"mcp__{call.server}")
    shape = re.compile(rf"(mcp_{{1,2}})?{re.escape(call.server)}_{{1,2}}{re.escape(call.tool)}")
    offered = (tool.name for tool in asked.tools if shape.fullmatch(tool.name))
    # Claude Code takes calls of tools that it has not offered yet.
    return ToolCall(next(offered, full), arguments)


def _named(tools: Iterable[Tool], *names: str) -> list[Tool]:
    """Tools of parameters that go by one of the names, however they are spelt; best first."""
    found = [(tool.name.lower().replace("_", ""), tool) for tool in tools if not tool.is_custom]
    return [tool for name in names for spelt, tool in found if spelt == name]


def _custom(asked: Asked, name: str) -> bool:
    return any(tool.is_custom and tool.name == name for tool in asked.tools)


def _first(names: Iterable[str], tool: Tool) -> str | None:
    return next((name for name in names if name in tool.properties), None)


def _filled(tool: Tool, values: Json) -> ToolCall:
    """With something harmless for whatever else the tool insists on."""
    lacking = [name for name in tool.required if name not in values]
    rest: dict[str, Any] = {name: example(inner(tool.properties, name)) for name in lacking}
    return ToolCall(tool.name, {**values, **rest})


def _absolute(path: str, asked: Asked) -> str:
    """Several agents want absolute paths, and say in their prompts where they are."""
    return posixpath.join(asked.directory(), path)
