"""Contexts: a Jupyter kernel each, with a language and a directory of its own."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from pathlib import Path
from queue import Empty
from typing import Any

import zmq
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from tornado.web import HTTPError

from . import UNLIMITED
from .outputs import line_of
from .rich import introduction
from .variables import set_code, unset_code

_START_S = 60
_LOOK_S = 1.0
_ANSWER_S = 0.2
_INTERRUPT_S = 5.0
_UNTIL_TAKEN = 5
"""Interrupts, a second apart, of a cell that the kernel may not have taken yet: until then it hears
none. One that it has taken is sent a single one, as another would cut short what it does to end."""
_ALIASES = {
    "py": "python",
    "python3": "python",
    "js": "javascript",
    "ts": "typescript",
    "sh": "bash",
}
LANGUAGES = ("python", "javascript", "typescript", "bash")


class Specs(KernelSpecManager):
    """The kernels that come with this file, and nothing that somebody has installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        # Jupyter asks for Python's by names of its choice.
        language = kernel_name if kernel_name in LANGUAGES else "python"
        argv = [sys.executable, sys.argv[0], language, "-f", "{connection_file}"]
        return KernelSpec(argv=argv, language=kernel_name, display_name=kernel_name)


class Refused(HTTPError):
    """The answer to a request that cannot be met. The status line has the message as well as the
    body: E2B's JavaScript SDK shows nothing else."""

    def __init__(self, message: str, status: int = 400) -> None:
        line = message.encode("ascii", "replace").decode()
        super().__init__(status, reason="".join(c if c.isprintable() else "?" for c in line))
        self.message = message


class Context:
    """Runs one cell at a time."""

    def __init__(self, language: str, cwd: str) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._lock = asyncio.Lock()
        self._started: asyncio.Task[None] | None = None
        self._manager: Any = None
        self._client: Any = None
        self._generation = 0
        """Counts what ends whatever is running: restarts that somebody wants, and its end."""
        self._lost = ""
        """Why what cells had said is forgotten, until somebody is told."""

    def shown(self) -> dict[str, str]:
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def begin(self) -> None:
        """Whoever gives up waiting does not end it for the others."""
        if self._started is None or _has_failed(self._started):
            self._started = asyncio.ensure_future(self._start())
        await asyncio.shield(self._started)

    async def _start(self) -> None:
        self._check_directory()
        self._manager = AsyncKernelManager(
            kernel_name=self.language, kernel_spec_manager=Specs(), ip="127.0.0.1"
        )
        await self._manager.start_kernel(cwd=self.cwd)
        await self._connect()

    async def _listen(self) -> None:
        self._client = self._manager.client()
        self._client.context.setsockopt(zmq.RCVHWM, UNLIMITED)
        self._client.start_channels()
        async with asyncio.timeout(_START_S):
            await self._until_heard()

    async def _until_heard(self) -> None:
        """What is said before a subscription has arrived is lost. Jupyter's own way to wait for it
        also reads what else is said until there is nothing more, which never comes where a thread
        of a cell goes on printing."""
        asked = {self._client.kernel_info()}
        while not await self._is_heard_of(asked):
            if not await self._manager.is_alive():
                raise RuntimeError("the kernel died before it said anything")
            asked.add(self._client.kernel_info())

    async def _is_heard_of(self, asked: set[str]) -> bool:
        until = time.monotonic() + _ANSWER_S
        with suppress(Empty):
            while (left := until - time.monotonic()) > 0:
                message = await self._client.get_iopub_msg(timeout=left)
                if message.get("parent_header", {}).get("msg_id") in asked:
                    return True
                await _breathe()
        return False

    async def _connect(self) -> None:
        await self._listen()
        if self.language == "python":
            await self._silently(introduction(sys.argv[0]))

    def _check_directory(self) -> None:
        """A kernel starts in its directory, with the rights that this server has."""
        shown = self.cwd[:80]
        try:
            is_directory = Path(self.cwd).is_dir()
        except OSError as error:
            raise Refused(f"Directory {shown} cannot be used: {error.strerror}.") from error
        if not is_directory:
            raise Refused(f"Directory {shown} does not exist. Create it first.")
        if not os.access(self.cwd, os.X_OK):
            raise Refused(f"Directory {shown} cannot be entered by user {getpass.getuser()}.")

    async def restart(self) -> None:
        await self.begin()
        self._check_directory()
        self._generation += 1
        await self._renew()

    async def _renew(self) -> None:
        self._client.stop_channels()
        try:
            await self._manager.restart_kernel(now=True)
            await self._connect()
        except Exception:
            # The next cell tries again, with a new kernel.
            self._generation += 1
            self._started = None
            raise

    async def end(self) -> None:
        self._generation += 1
        if self._started is None:
            return
        with suppress(Exception):  # a kernel that did not start may have left a process
            await asyncio.shield(self._started)
        if self._client is not None:
            self._client.stop_channels()
        if self._manager is not None and self._manager.has_kernel:
            await self._manager.shutdown_kernel(now=True)

    async def interrupt(self) -> None:
        await self._manager.interrupt_kernel()

    async def run(self, code: str, env: dict[str, str]) -> AsyncGenerator[dict[str, Any], None]:
        """Lines of the answer. Who stops listening interrupts the cell."""
        await self._lock.acquire()
        try:
            # Closed here, so that the next cell waits until this one has been interrupted.
            async with aclosing(self._lines(code, env)) as lines:
                async for line in lines:
                    yield line
        finally:
            self._lock.release()

    async def _lines(self, code: str, env: dict[str, str]) -> AsyncGenerator[dict[str, Any], None]:
        await self.begin()
        if self._lost:
            yield {"type": "stderr", "text": f"{self._lost}\n", "timestamp": time.time_ns()}
            self._lost = ""
        generation, asked, interrupts, ended = self._generation, "", 0, False
        try:
            if env:
                asked = self._silent(set_code(self.language, env))
                await self._until_idle(asked)
            if generation != self._generation:
                yield line_of(*_RESTARTED) or {}
                return
            asked = self._client.execute(code, allow_stdin=False, stop_on_error=False)
            interrupts = _UNTIL_TAKEN
            async for kind, content in self._messages(asked):
                if kind == "execute_input":
                    interrupts = 1
                line = line_of(kind, content)
                if line is not None:
                    yield line
            ended = True
        finally:
            await _to_its_end(self._leave(asked, env, generation, interrupts, ended=ended))

    async def _leave(
        self, asked: str, env: dict[str, str], generation: int, interrupts: int, *, ended: bool
    ) -> None:
        """As the next cell is to find it. One that was started anew is as it should be."""
        if not ended and generation == self._generation:
            await self._stop(asked, interrupts)
        if env and generation == self._generation:
            await self._silently(unset_code(self.language, env))
        if ended and generation == self._generation:
            await self._forget_answers()

    async def _forget_answers(self) -> None:
        """That a cell has ended is known by what is said of it; answers that nobody takes would be
        kept for ever, and what a cell puts into them may be large."""
        with suppress(Empty):
            while True:
                await self._client.get_shell_msg(timeout=0)

    async def _stop(self, asked: str, interrupts: int) -> None:
        """A cell that does not heed an interrupt would keep all others waiting. What one that does
        has said, and nobody has heard yet, is not read: it may be much. Variables are not
        interrupted while they are set: half of that could not be undone."""
        generation = self._generation
        try:
            async with asyncio.timeout(_INTERRUPT_S):
                await self._until_answered(asked, interrupts)
            if generation == self._generation:
                self._client.stop_channels()
                await self._listen()
        except TimeoutError:
            await self._renew()
            self._lost = "the kernel was started anew: a cell before could not be interrupted"

    async def _until_answered(self, asked: str, interrupts: int) -> None:
        """That it has ended does not come behind all that it said."""
        generation, ended, due = self._generation, "", 0.0
        while ended != asked and generation == self._generation:
            if interrupts and time.monotonic() >= due:
                await self.interrupt()
                interrupts -= 1
                due = time.monotonic() + _LOOK_S
            try:
                message = await self._client.get_shell_msg(timeout=_LOOK_S)
                ended = message.get("parent_header", {}).get("msg_id", "")
            except (TimeoutError, Empty):
                continue
            except asyncio.CancelledError:
                # Channels that are closed cancel those who wait at them.
                if generation == self._generation:
                    raise

    async def _until_idle(self, asked: str) -> None:
        async for _ in self._messages(asked):
            pass

    def _silent(self, code: str) -> str:
        asked: str = self._client.execute(code, silent=True, store_history=False)
        return asked

    async def _silently(self, code: str) -> None:
        await self._until_idle(self._silent(code))

    async def _messages(self, asked: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What is said of one request, until the kernel is idle again."""
        generation = self._generation
        while True:
            message: dict[str, Any] = {}
            try:
                message = await self._client.get_iopub_msg(timeout=_LOOK_S)
            except (TimeoutError, Empty):
                pass
            except asyncio.CancelledError:
                # Channels that are closed cancel those who wait at them.
                if generation == self._generation:
                    raise
            if generation != self._generation:
                yield _RESTARTED
                return
            if not message:
                if await self._manager.is_alive():
                    continue
                why = "the kernel has died and was restarted"
                try:
                    await self._renew()
                except (OSError, RuntimeError) as error:
                    why = f"the kernel has died and could not be started again: {error}"
                yield _error("KernelDied", why)
                return
            if message.get("parent_header", {}).get("msg_id") != asked:
                await _breathe()
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return
            yield kind, content


class Contexts:
    """All of them; each language has one that is used where none is named."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._all: dict[str, Context] = {}
        self._defaults: dict[str, Context] = {}

    async def create(self, language: str | None, cwd: str | None) -> Context:
        """A new context, once its kernel runs. One whose kernel does not start is not kept."""
        made = Context(_known(language), cwd or self._cwd)
        try:
            await made.begin()
        except BaseException:
            await made.end()
            raise
        self._all[made.id] = made
        return made

    def get(self, identifier: str) -> Context | None:
        return self._all.get(identifier)

    def default(self, language: str | None) -> Context:
        """Its kernel starts with its first cell."""
        wanted = _known(language)
        known = self._defaults.get(wanted)
        if known is None or known.id not in self._all:
            known = self._defaults[wanted] = Context(wanted, self._cwd)
            self._all[known.id] = known
        return known

    def list(self) -> list[Context]:
        return list(self._all.values())

    async def remove(self, context: Context) -> None:
        self._all.pop(context.id, None)
        await context.end()


def _known(language: str | None) -> str:
    wanted = (language or "python").lower()
    wanted = _ALIASES.get(wanted, wanted)
    if wanted not in LANGUAGES:
        raise Refused(
            f"There is no kernel for {wanted[:80]}. Use {', '.join(LANGUAGES)}, or run its own "
            "program with commands."
        )
    return wanted


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _breathe() -> None:
    """Messages that are there already are read without a pause in which others have their turn."""
    await asyncio.sleep(0)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Also where a client is found to be gone twice, by what cannot be written to it and by its
    connection: the next cell does not begin meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    await task


def _error(name: str, why: str) -> tuple[str, dict[str, Any]]:
    return "error", {"ename": name, "evalue": why, "traceback": [why]}


_RESTARTED = _error("KernelRestarted", "the context was restarted or removed meanwhile")
