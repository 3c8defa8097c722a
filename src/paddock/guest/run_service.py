"""The calls about durable runs: start once by key, follow from any offset, acknowledge."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import signal
import time
from collections.abc import Awaitable
from functools import partial
from typing import Callable

from . import connect, disk, fields, inbox, leftover, run_output
from .connect import Call, Message
from .errors import GuestError, invalid
from .removal import remove_now
from .run import Run, Terms
from .state import GuestState

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}\Z")
_DEFAULT_CAP = 64 << 20
_SMALLEST_CAP = 4096
_LARGEST_CAP = 64 << 30
_LONGEST_MS = 30 * 24 * 3600 * 1000
_SIGNALS = {
    f"SIG{name}": signal.Signals[f"SIG{name}"]
    for name in "HUP INT QUIT KILL USR1 USR2 TERM CONT STOP WINCH".split()
}


class Runs:
    """Every run that was not acknowledged yet."""

    def __init__(self, state: GuestState) -> None:
        self._state = state
        self._directory = f"{state.config.state_dir}/runs"
        self._runs: dict[str, Run] = {}
        self._load()

    def _load(self) -> None:
        """Take up what a guest before this one left: ended runs as they are, others as lost."""
        disk.make_private(self._directory)
        left_over: dict[int, int] = {}
        for name in disk.names(self._directory):
            directory = f"{self._directory}/{name}"
            kept = disk.read_json(f"{directory}/run.json")
            if not isinstance(kept, dict):
                remove_now(directory)
                continue
            left = kept.pop("process", None)
            run = self._runs[name] = Run(self._state, directory, Terms(**kept))
            if run.is_running:
                left_over.update(leftover.find(left))
                run.record_loss()
        self._state.tasks.start(leftover.end(self._state.children, left_over))

    def forget_all(self) -> None:
        """This is another sandbox now, and the runs were the old one's."""
        for run in self._runs.values():
            run.forget()
        self._runs.clear()
        inbox.remove_all(self._state)
        disk.make_private(self._directory)

    @property
    def running(self) -> list[Run]:
        return [run for run in self._runs.values() if run.is_running]

    def find(self, message: Message) -> Run:
        key = fields.text(message, "key")
        if key not in self._runs:
            raise GuestError("not_found", f"there is no run {key}, or it was acknowledged")
        return self._runs[key]

    async def start(self, call: Call, message: Message) -> Message:
        key = fields.text(message, "key")
        if not _KEY.match(key):
            raise invalid(f"run key {key!r}: use up to 128 of A-Z a-z 0-9 . _ : @ -")
        digest = _digest(message)
        known = self._runs.get(key)
        if known is not None:
            if known.terms.digest != digest:
                raise GuestError("already_exists", f"run {key} was started with another request")
            return {"run": known.describe()}
        return {"run": self._start(call, key, digest, message).describe()}

    async def get(self, call: Call, message: Message) -> Message:
        return {"run": self.find(message).describe()}

    async def list(self, call: Call, message: Message) -> Message:
        return {"runs": [run.describe() for run in self._runs.values()]}

    async def acknowledge(self, call: Call, message: Message) -> Message:
        """With offsets: these bytes were read. Without: the run's end was seen, forget it."""
        if message.get("key") not in self._runs:
            return {}
        run = self.find(message)
        offsets = {
            name: fields.number(message, name, 0)
            for name in ("stdout", "stderr", "pty")
            if message.get(name) is not None
        }
        if any(name not in run.logs for name in offsets):
            raise invalid(f"run {run.terms.key} has only {', '.join(run.logs)}")
        run.acknowledge(offsets)
        if not offsets:
            if run.is_running:
                raise GuestError("failed_precondition", f"run {run.terms.key} has not ended")
            del self._runs[run.terms.key]
            run.forget()
            if run.terms.has_inbox:
                await inbox.remove(self._state, run.terms.key)
        return {}

    async def signal(self, call: Call, message: Message) -> Message:
        """With `graceMs` the run is ended: the signal is SIGTERM, and its tree is killed after."""
        run = self._find_running(message)
        assert run.process is not None
        if message.get("graceMs") is not None:
            run.process.end("cancelled", fields.number(message, "graceMs", 0) / 1000)
            return {}
        name = fields.text(message, "signal", "SIGTERM")
        if name not in _SIGNALS:
            raise invalid(f"signal {name!r} is none of {' '.join(_SIGNALS)}")
        await run.process.signal(_SIGNALS[name])
        return {}

    async def send_input(self, call: Call, message: Message) -> Message:
        """With `seq`, the same input sent again is taken once, and none out of its order. Who sends
        it again while it is being written waits for the same end."""
        run = self._find_running(message)
        seq = fields.number(message, "seq", 0)
        if seq and seq <= run.inputs:
            return {}
        try:
            await asyncio.shield(run.writing.get(seq) or self._write(run, seq, message))
        except OSError as error:
            raise GuestError("failed_precondition", f"it reads no more: {error}") from None
        run.inputs = max(run.inputs, seq)
        return {}

    def _write(self, run: Run, seq: int, message: Message) -> asyncio.Future[None]:
        """Begun before the first await, so that it is written in this order, whoever goes away."""
        stdin = run.process.stdin if run.process is not None else None
        if stdin is None or not stdin.is_open:
            raise GuestError("failed_precondition", f"run {run.terms.key} has no open input")
        known = max((run.inputs, *run.writing))
        if seq > known + 1:
            raise GuestError(
                "failed_precondition",
                f"run {run.terms.key} was sent input {seq}, and has only {known} before it",
            )
        written = stdin.put(fields.binary(message, "data"))
        if seq:
            run.writing[seq] = written
        written.add_done_callback(lambda done: run.note_written(seq, done))
        return written

    async def close_input(self, call: Call, message: Message) -> Message:
        run = self._find_running(message)
        if run.process is not None and run.process.stdin is not None and not run.terms.terminal:
            run.process.stdin.close()
        return {}

    async def resize(self, call: Call, message: Message) -> Message:
        run = self._find_running(message)
        if not run.terms.terminal or run.process is None:
            raise GuestError("failed_precondition", f"run {run.terms.key} has no terminal")
        run.process.resize(fields.size({"size": message}, "size") or (80, 24))
        return {}

    def _find_running(self, message: Message) -> Run:
        run = self.find(message)
        if not run.is_running:
            raise GuestError("failed_precondition", f"run {run.terms.key} has ended")
        return run

    def _start(self, call: Call, key: str, digest: str, message: Message) -> Run:
        state = self._state
        user = fields.text(message, "user", "")
        account = state.account(user) if user else call.account
        stdin = fields.binary(message, "stdin")
        keep_open = fields.flag(message, "keepStdinOpen")
        terminal = fields.size(message, "pty")
        own = {"PADDOCK_RUN_KEY": key}
        if fields.flag(message, "inbox", True):
            own["PADDOCK_INBOX"] = inbox.path_of(state, key)
        command = state.command(
            fields.words(message, "cmd"),
            account=account,
            env={**fields.mapping(message, "env"), **own},
            cwd=fields.text(message, "cwd", ""),
            stdin=bool(stdin) or keep_open,
            terminal=terminal,
        )
        timeout = fields.number(message, "timeoutMs", 0, _LONGEST_MS) / 1000
        terms = _terms(key, digest, message, command.cwd, account.name)
        directory = f"{self._directory}/{key}"
        disk.make_private(directory)
        run = Run(state, directory, terms)
        try:
            if terms.has_inbox:
                inbox.make(state, key, account)
            disk.write_json(f"{directory}/run.json", terms.as_dict())
            run.start(command, timeout or None)
        except BaseException:
            remove_now(directory)
            if terms.has_inbox:
                remove_now(inbox.path_of(state, key))
            raise
        self._runs[key] = run
        _remember_process(run)
        if stdin:
            state.tasks.start(_feed(run, stdin, keep_open))
        return run


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    runs = state.runs
    messages = inbox.Messages(state)
    table = {
        "StartRun": connect.unary(runs.start, connect.INPUT_LIMIT),
        "GetRun": connect.unary(runs.get),
        "ListRuns": connect.unary(runs.list),
        "TailRun": connect.server_stream(partial(run_output.tail, runs), {"keepalive": {}}),
        "ReadRun": connect.unary(partial(run_output.read, runs)),
        "AckRun": connect.unary(runs.acknowledge),
        "SignalRun": connect.unary(runs.signal),
        "SendRunInput": connect.unary(runs.send_input, connect.INPUT_LIMIT),
        "CloseRunInput": connect.unary(runs.close_input),
        "ResizeRun": connect.unary(runs.resize),
        "PutMessage": connect.unary(messages.put),
        "ListMessages": connect.unary(messages.list),
    }
    return {f"POST /paddock.Guest/{name}": method for name, method in table.items()}


async def _feed(run: Run, stdin: bytes, keep_open: bool) -> None:
    assert run.process is not None
    assert run.process.stdin is not None
    try:
        await run.process.stdin.write(stdin)
    except OSError:
        return  # it stopped reading, which is its right
    if not keep_open and not run.terms.terminal:
        run.process.stdin.close()


def _terms(key: str, digest: str, message: Message, cwd: bytes, user: str) -> Terms:
    on_full = fields.text(message, "onFull", "block")
    if on_full not in ("block", "drop"):
        raise invalid(f"onFull is {on_full!r}; it must be block or drop")
    cap = fields.number(message, "logCapBytes", _DEFAULT_CAP, _LARGEST_CAP)
    return Terms(
        key=key,
        digest=digest,
        cmd=fields.words(message, "cmd"),
        cwd=cwd.decode("utf-8", "surrogateescape"),
        user=user,
        terminal=message.get("pty") is not None,
        log_cap=max(cap, _SMALLEST_CAP),
        drops=on_full == "drop",
        started_at=time.time(),
        has_inbox=fields.flag(message, "inbox", True),
    )


def _digest(message: Message) -> str:
    """Of the request, whose env and stdin are kept nowhere else."""
    return hashlib.sha256(json.dumps(message, sort_keys=True).encode("ascii")).hexdigest()


def _remember_process(run: Run) -> None:
    """So that a guest after this one finds the program if it outlives us."""
    assert run.process is not None
    left = leftover.remember(run.process.pid)
    disk.write_json(f"{run.directory}/run.json", {**run.terms.as_dict(), "process": left})
