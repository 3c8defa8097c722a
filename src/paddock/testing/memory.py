"""Inside a Python program: what it has in memory goes into a file, and a new process goes on there.

A model of what CRIU and gVisor do to any process. Memory is the plain values of the main module,
and the place is one of its lines outside of `with`, `for`, `try` and calls: the next one that the
program comes to. A program that has more than that is never done, which is refused in the end.

It stands alone, because it is copied to where the programs of a sandbox import it.
"""

import ast
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

REQUEST = signal.SIGRTMIN + 5

_FILE, _NAME = "<string>", "<module>"


class _Program:
    """The program of this process, and where its memory goes."""

    text = ""
    images = Path()


def listen(images: Path) -> None:
    """From now on the signal is heeded; the image goes to this directory, if it is there then."""
    words = Path("/proc/self/cmdline").read_text().split("\0")
    if words[1:2] == ["-c"]:
        _Program.text, _Program.images = words[2], images
        signal.signal(REQUEST, _asked)


def _asked(_number: int, frame: FrameType | None) -> None:
    """It is never a good moment now: wait for the next line of the main module."""
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != (_FILE, _NAME):
        frame = frame.f_back
    if frame is not None:
        frame.f_trace = _at_line
        sys.settrace(lambda *_: None)


def _at_line(frame: FrameType, event: str, _argument: object) -> Any:
    if event == "line" and frame.f_lineno in _plain_lines(ast.parse(_Program.text).body):
        sys.settrace(None)
        frame.f_trace = None
        _write_down(frame)
    return frame.f_trace


def _plain_lines(body: list[ast.stmt]) -> Iterator[int]:
    """Where a statement begins and nothing else is under way."""
    for statement in body:
        if isinstance(statement, ast.If | ast.While):
            yield from _plain_lines([*statement.body, *statement.orelse])
        elif statement.lineno == statement.end_lineno:
            yield statement.lineno


def _write_down(frame: FrameType) -> None:
    """And stand still until somebody has taken the image away."""
    memory = {name: value for name, value in frame.f_globals.items() if not name.startswith("__")}
    modules = {name: value for name, value in memory.items() if isinstance(value, ModuleType)}
    image = {
        "program": _Program.text,
        "line": frame.f_lineno,
        "modules": {name: module.__name__ for name, module in modules.items()},
        "values": {name: value for name, value in memory.items() if name not in modules},
        "argv": sys.argv,
        "cwd": str(Path.cwd()),
        "env": dict(os.environ),
    }
    file = _Program.images / f"{os.getpid()}.json"
    try:
        text = json.dumps(image)
        if json.loads(text) == image:
            part = file.with_suffix(".part")
            part.write_text(text)
            part.rename(file)
    except (TypeError, ValueError, FileNotFoundError):
        return  # not plain, or nobody waits for it any more
    while file.exists():
        time.sleep(0.005)


def go_on(file: Path) -> None:
    """Be the program of that image, and take the image away when it runs."""
    image = json.loads(file.read_text())
    _Program.text = image["program"]
    os.environ.update(image["env"])
    os.chdir(image["cwd"])
    sys.argv[:] = image["argv"]
    code = compile(_Program.text, _FILE, "exec")

    def jump(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line":
            # It can be set, but only here.
            frame.f_lineno = image["line"]  # type: ignore[misc]
            sys.settrace(None)
            frame.f_trace = None
            file.unlink()
        return jump

    modules = {name: __import__(module) for name, module in image["modules"].items()}
    sys.settrace(jump)
    exec(code, {"__name__": "__main__", **modules, **image["values"]})  # noqa: S102 - its purpose
