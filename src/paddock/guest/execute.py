"""Exec: run a command to its end and answer with all of it."""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable
from typing import Callable

from . import fields
from .body import Disconnected
from .connect import INPUT_LIMIT, Call, Message, unary
from .errors import invalid
from .process import Process
from .state import GuestState

_DEFAULT_TIMEOUT_MS = 60_000
_LONGEST_MS = 7 * 24 * 3600 * 1000
_DEFAULT_OUTPUT = 8 << 20
_MOST_OUTPUT = 64 << 20


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    return {"POST /paddock.Guest/Exec": unary(run, INPUT_LIMIT)}


class _Collected:
    """Output up to a cap for each stream; the rest is read and left out."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._pieces: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._room = {"stdout": cap, "stderr": cap}
        self.truncated = False

    def take(self, stream: str, data: bytes) -> None:
        room = self._room[stream]
        if len(data) > room:
            self.truncated = True
            data = data[:room]
        if data:
            self._room[stream] = room - len(data)
            self._pieces[stream].append(data)

    def encoded(self, stream: str) -> str:
        return base64.b64encode(b"".join(self._pieces[stream])).decode("ascii")


async def run(call: Call, message: Message) -> Message:
    """Ends with the command, at its deadline, or when the caller has gone."""
    state = call.state
    user = fields.text(message, "user", "")
    stdin = fields.binary(message, "stdin")
    timeout = fields.number(message, "timeoutMs", _DEFAULT_TIMEOUT_MS, _LONGEST_MS) / 1000
    if not timeout:
        raise invalid("timeoutMs is 0; a command without a deadline is a run")
    command = state.command(
        fields.words(message, "cmd"),
        account=state.account(user) if user else call.account,
        env=fields.mapping(message, "env"),
        cwd=fields.text(message, "cwd", ""),
        stdin=bool(stdin),
    )
    output = _Collected(fields.number(message, "maxOutputBytes", _DEFAULT_OUTPUT, _MOST_OUTPUT))
    began = time.monotonic()
    process = Process(state, command, output.take, timeout)
    call.exchange.on_disconnect = lambda: process.kill("cancelled")
    if stdin and process.stdin is not None:
        state.tasks.start(_feed(process, stdin))
    ending = await process.done
    if not call.exchange.is_connected:
        raise Disconnected
    return {
        "exitCode": ending.exit_code,
        "reason": ending.reason,
        "stdout": output.encoded("stdout"),
        "stderr": output.encoded("stderr"),
        "truncated": output.truncated,
        "durationMs": round((time.monotonic() - began) * 1000, 3),
    }


async def _feed(process: Process, stdin: bytes) -> None:
    assert process.stdin is not None
    try:
        await process.stdin.write(stdin)
    except OSError:
        return  # it stopped reading, which is its right
    process.stdin.close()
