"""Jupyter kernels of languages whose interpreter is a program that reads code from a pipe."""

from __future__ import annotations

import base64
import codecs
import json
import os
import pkgutil
import selectors
import signal
import subprocess
import time
from typing import IO, Any

from ipykernel.kernelbase import Kernel

_PIECE = 65536
_INTERRUPT_S = 3.0
# An interrupt ends the cell and not the shell, which has nothing to say of one between cells. Every
# cell is a script of its own, read from its own word, so that nothing in it is taken for more of
# what is read here.
_BASH = """
trap 'return 130 2>/dev/null' INT
while IFS= read -r word <&0; do
    . /dev/fd/9 9< <(printf %s "$word" | base64 -d) </dev/null
    printf '{"code": %d}\\n' $? >&3
done
"""


def _node(*, is_typed: bool) -> list[str]:
    program = pkgutil.get_data(__package__, "node.js")
    assert program is not None
    # Within a block, so that cells may give its names to other things.
    return ["node", "-e", f"{{ const isTyped = {json.dumps(is_typed)}\n{program.decode()} }}"]


PROGRAMS = {
    "bash": lambda: ["bash", "-c", _BASH],
    "javascript": lambda: _node(is_typed=False),
    "typescript": lambda: _node(is_typed=True),
}


class PipedKernel(Kernel):
    """One interpreter, which lives as long as the kernel does and remembers what it was told."""

    implementation = "paddock"
    implementation_version = "1"
    language = ""
    banner = "Paddock"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._lost = ""
        """Why what cells had said is forgotten, until somebody is told."""
        self._begin()

    def _begin(self) -> None:
        self._control, theirs = os.pipe()
        argv = PROGRAMS[self.language]()
        # The program tells how a cell ended on descriptor 3, which nothing else writes to.
        mover = ["bash", "-c", f'exec "$@" 3>&{theirs}', "bash", *argv]
        self._process = subprocess.Popen(
            mover,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs],
            # A kernel does not hear interrupts while it starts, and what it starts would never.
            preexec_fn=_hear_interrupts,  # noqa: PLW1509 - no thread of a kernel holds a lock here
        )
        os.close(theirs)
        self._texts = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for _, name in self._streams()
        }

    def do_execute(self, code: str, silent: bool, *_more: Any, **_named: Any) -> dict[str, Any]:
        """Jupyter's own way to have a cell run."""
        stdin = self._process.stdin
        assert stdin is not None
        if self._lost and not silent:
            self._say("stderr", f"{self._lost}\n".encode(), silent)
            self._lost = ""
        self._end = b""
        try:
            stdin.write(base64.b64encode(code.encode()) + b"\n")
            stdin.flush()
            ended = self._follow(silent)
        except KeyboardInterrupt:
            ended = self._interrupted(silent)
        except BrokenPipeError:
            ended = None
        if ended is None:
            code_of = self._process.wait()
            os.close(self._control)
            self._begin()
            what = {"name": "Ended", "message": f"{self.language} ended with {code_of}"}
            return self._failed({**what, "stack": what["message"]}, silent)
        return self._told(ended, silent)

    def _interrupted(self, silent: bool) -> dict[str, Any] | None:
        """The program was sent the same signal, and tells of its end in its own way. One that does
        not in time is ended. Interrupts may be repeated, which is to take none of that time;
        Jupyter hears them again from the next cell on."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            ended = self._follow(silent, time.monotonic() + _INTERRUPT_S)
        except TimeoutError:
            self._process.kill()
            self._lost = f"{self.language} was started anew: a cell before could not be interrupted"
            return None
        if ended is None:
            return None
        stack = "KeyboardInterrupt"
        return {"error": {"name": stack, "message": "interrupted", "stack": stack}}

    def _follow(self, silent: bool, until: float | None = None) -> dict[str, Any] | None:
        """What it prints is passed on as it comes, until it says that the cell has ended. What is
        interrupted here and called again goes on where it was."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, "")
            for stream, name in self._streams():
                selector.register(stream, selectors.EVENT_READ, name)
            while not self._end.endswith(b"\n"):
                if not self._heard(selector, silent, until):
                    return None
        for stream, name in self._streams():
            self._drain(stream, name, silent)
            self._say(name, b"", silent, final=True)
        found: dict[str, Any] = json.loads(self._end)
        return found

    def _heard(self, selector: selectors.BaseSelector, silent: bool, until: float | None) -> bool:
        """Takes in all that is there to read; false when the program has ended."""
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        for key, _ in selector.select(left):
            data = os.read(key.fd, _PIECE)
            if key.data and data:
                self._say(key.data, data, silent)
            elif key.data:
                selector.unregister(key.fileobj)
            elif not data:
                return False
            else:
                self._end += data
        return True

    def _streams(self) -> list[tuple[IO[bytes], str]]:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        return [(stdout, "stdout"), (stderr, "stderr")]

    def _drain(self, stream: IO[bytes], name: str, silent: bool) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while selector.select(0):
                data = os.read(stream.fileno(), _PIECE)
                if not data:
                    return
                self._say(name, data, silent)

    def _say(self, name: str, data: bytes, silent: bool, *, final: bool = False) -> None:
        """Whole characters: a piece may end within one."""
        text = self._texts[name].decode(data, final)
        if text and not silent:
            content = {"name": name, "text": text}
            self.send_response(self.iopub_socket, "stream", content)

    def _told(self, ended: dict[str, Any], silent: bool) -> dict[str, Any]:
        if "error" in ended:
            return self._failed(ended["error"], silent)
        if ended.get("code"):
            why = f"exit status {ended['code']}"
            return self._failed({"name": "ExitStatus", "message": why, "stack": why}, silent)
        if "text" in ended and not silent:
            data = {"text/plain": ended["text"]}
            if ended.get("json") is not None:
                data["application/json"] = ended["json"]
            content = {"execution_count": self.execution_count, "data": data, "metadata": {}}
            self.send_response(self.iopub_socket, "execute_result", content)
        return {
            "status": "ok",
            "execution_count": self.execution_count,
            "payload": [],
            "user_expressions": {},
        }

    def _failed(self, error: dict[str, str], silent: bool) -> dict[str, Any]:
        content = {
            "ename": error["name"],
            "evalue": error["message"],
            "traceback": error["stack"].splitlines(),
        }
        if not silent:
            self.send_response(self.iopub_socket, "error", content)
        return {"status": "error", "execution_count": self.execution_count, **content}

    def do_shutdown(self, restart: bool) -> dict[str, Any]:
        self._process.kill()
        self._process.wait()
        return {"status": "ok", "restart": restart}


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class BashKernel(PipedKernel):
    """One shell."""

    language = "bash"
    language_info = {"name": "bash", "mimetype": "text/x-sh", "file_extension": ".sh"}  # noqa: RUF012


class JavascriptKernel(PipedKernel):
    """One Node.js, with top-level await."""

    language = "javascript"
    language_info = {  # noqa: RUF012 - as Jupyter has it
        "name": "javascript",
        "mimetype": "text/javascript",
        "file_extension": ".js",
    }


class TypescriptKernel(PipedKernel):
    """One Node.js that drops the types of a cell before it runs it."""

    language = "typescript"
    language_info = {  # noqa: RUF012 - as Jupyter has it
        "name": "typescript",
        "mimetype": "text/typescript",
        "file_extension": ".ts",
    }


KERNELS = {"bash": BashKernel, "javascript": JavascriptKernel, "typescript": TypescriptKernel}
