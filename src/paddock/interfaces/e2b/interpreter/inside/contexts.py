"""Contexts: a Jupyter kernel each, with a language and a directory of its own."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from queue import Empty
from typing import Any

from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

from .outputs import line_of
from .rich import introduction

_START_S = 60
_LOOK_S = 1.0
_ALIASES = {"py": "python", "python3": "python", "js": "javascript", "sh": "bash"}
KERNELS = ("javascript", "bash")
"""Beside Python's own, which Jupyter calls by names of its choice."""
LANGUAGES = ("python", *KERNELS)
PYTHON = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


class Specs(KernelSpecManager):
    """The kernels that come with this file, and nothing that somebody has installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = PYTHON
        if kernel_name in KERNELS:
            argv = [sys.executable, sys.argv[0], kernel_name, "-f", "{connection_file}"]
        return KernelSpec(argv=argv, language=kernel_name, display_name=kernel_name)


class UnknownLanguage(Exception):
    """There is no kernel for it."""


class Context:
    """Runs one cell at a time."""

    def __init__(self, language: str, cwd: str) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._lock = asyncio.Lock()
        self._started: asyncio.Task[None] | None = None

    def shown(self) -> dict[str, str]:
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def begin(self) -> asyncio.Task[None]:
        failed = self._started is not None and self._started.done() and self._started.exception()
        if self._started is None or failed:
            self._started = asyncio.ensure_future(self._start())
        return self._started

    async def _start(self) -> None:
        self._manager = AsyncKernelManager(
            kernel_name=self.language, kernel_spec_manager=Specs(), ip="127.0.0.1"
        )
        await self._manager.start_kernel(cwd=self.cwd)
        await self._connect()

    async def _connect(self) -> None:
        self._client = self._manager.client()
        self._client.start_channels()
        await self._client.wait_for_ready(timeout=_START_S)
        if self.language == "python":
            await self._silently(introduction(sys.argv[0]))

    async def restart(self) -> None:
        await self.begin()
        self._client.stop_channels()
        await self._manager.restart_kernel(now=True)
        await self._connect()

    async def end(self) -> None:
        await self.begin()
        self._client.stop_channels()
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
        if env:
            await self._silently(_set(self.language, env))
        asked = self._client.execute(code, allow_stdin=False, stop_on_error=False)
        ended = False
        try:
            async for kind, content in self._messages(asked):
                line = line_of(kind, content)
                if line is not None:
                    yield line
            ended = True
        finally:
            if not ended:
                await self.interrupt()
                await self._until_idle(asked)
            if env:
                await self._silently(_unset(self.language, env))

    async def _until_idle(self, asked: str) -> None:
        async for _ in self._messages(asked):
            pass

    async def _silently(self, code: str) -> None:
        asked = self._client.execute(code, silent=True, store_history=False)
        await self._until_idle(asked)

    async def _messages(self, asked: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What is said of one request, until the kernel is idle again."""
        while True:
            try:
                message = await self._client.get_iopub_msg(timeout=_LOOK_S)
            except (TimeoutError, Empty):
                if await self._manager.is_alive():
                    continue
                await self.restart()
                why = "the kernel has died and was started anew"
                yield "error", {"ename": "KernelDied", "evalue": why, "traceback": [why]}
                return
            if message.get("parent_header", {}).get("msg_id") != asked:
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

    def create(self, language: str | None, cwd: str | None) -> Context:
        wanted = (language or "python").lower()
        wanted = _ALIASES.get(wanted, wanted)
        if wanted not in LANGUAGES:
            raise UnknownLanguage(f"there is no kernel for {wanted}: use {', '.join(LANGUAGES)}")
        made = Context(wanted, cwd or self._cwd)
        self._all[made.id] = made
        return made

    def get(self, identifier: str) -> Context | None:
        return self._all.get(identifier)

    def default(self, language: str | None) -> Context:
        wanted = (language or "python").lower()
        wanted = _ALIASES.get(wanted, wanted)
        known = self._defaults.get(wanted)
        if known is None or known.id not in self._all:
            known = self._defaults[wanted] = self.create(wanted, None)
        return known

    def list(self) -> list[Context]:
        return list(self._all.values())

    async def remove(self, context: Context) -> None:
        self._all.pop(context.id, None)
        await context.end()


def _set(language: str, env: dict[str, str]) -> str:
    if language == "python":
        return f"import os as _os; _os.environ.update({env!r})"
    if language == "bash":
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items())
    return f"Object.assign(process.env, {json.dumps(env)})"


def _unset(language: str, env: dict[str, str]) -> str:
    if language == "python":
        return f"[_os.environ.pop(name, None) for name in {list(env)!r}]"
    if language == "bash":
        return f"unset {' '.join(env)}"
    return ";".join(f"delete process.env[{json.dumps(name)}]" for name in env)
