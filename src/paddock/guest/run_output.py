"""What a run has said: one stream followed, or all of them asked for call by call."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING

from . import fields
from .connect import Call, Message, Stream, StreamOpener
from .errors import GuestError, invalid
from .run import Run

if TYPE_CHECKING:
    from .run_service import Runs

_CHUNK = 48 << 10
_READ = 256 << 10
_LONGEST_WAIT_MS = 60_000


async def tail(runs: Runs, call: Call, message: Message, opener: StreamOpener) -> None:
    """One stream from an offset on, and at last the end."""
    run = runs.find(message)
    name = fields.text(message, "stream", run.terms.streams[0])
    if name not in run.logs:
        raise invalid(f"run {run.terms.key} has no stream {name!r}: {', '.join(run.logs)}")
    offset = fields.number(message, "offset", 0)
    if offset > run.logs[name].journal.end:
        raise invalid(f"offset {offset} is past the end, {run.logs[name].journal.end}")
    await _tail(run, name, offset, opener.open(), follow=fields.flag(message, "follow"))


async def read(runs: Runs, call: Call, message: Message) -> Message:
    """What there is beyond these offsets, of all streams at once, and the end once it is told.

    With `waitMs` an answer that would be empty waits for something to tell.
    """
    run = runs.find(message)
    offsets = {name: fields.number(message, name, 0) for name in run.logs}
    for name, offset in offsets.items():
        if offset > run.logs[name].journal.end:
            raise invalid(f"{name} ends at {run.logs[name].journal.end}, before {offset}")
    wait = fields.number(message, "waitMs", 0, _LONGEST_WAIT_MS) / 1000
    deadline = time.monotonic() + wait
    call.exchange.on_disconnect = run.changed.tell
    while True:
        answer = _beyond(run, offsets)
        wait = deadline - time.monotonic()
        if answer or wait <= 0 or not call.exchange.is_connected:
            return answer
        await run.changed.wait(wait)


async def _tail(run: Run, name: str, offset: int, stream: Stream, *, follow: bool) -> None:
    journal = run.logs[name].journal
    while True:
        if run.forgotten:
            raise GuestError("not_found", f"run {run.terms.key} was forgotten")
        if offset < journal.first:
            stream.send({"gap": {"from": offset, "to": journal.first}})
            offset = journal.first
        data = journal.read(offset, _CHUNK)
        if data:
            stream.send({"offset": offset, "data": base64.b64encode(data).decode("ascii")})
            offset += len(data)
            await stream.drain()
        elif run.exit is not None:
            for start, end in run.logs[name].gaps:
                if start >= offset:
                    stream.send({"gap": {"from": start, "to": end}})
            stream.send({"exit": run.exit})
            return
        elif not follow:
            return
        else:
            await run.changed.wait()


def _beyond(run: Run, offsets: dict[str, int]) -> Message:
    """Nothing when there is nothing; the end only together with the last of the output."""
    if run.forgotten:
        raise GuestError("not_found", f"run {run.terms.key} was forgotten")
    told: list[Message] = []
    is_all = True
    for name, offset in offsets.items():
        log = run.logs[name]
        if offset < log.journal.first:
            told.append({"stream": name, "gap": {"from": offset, "to": log.journal.first}})
            offset = log.journal.first
        data = log.journal.read(offset, _READ)
        if data:
            encoded = base64.b64encode(data).decode("ascii")
            told.append({"stream": name, "offset": offset, "data": encoded})
        is_all = is_all and offset + len(data) == log.journal.end
    if run.exit is None or not is_all:
        return {"told": told} if told else {}
    told += (
        {"stream": name, "gap": {"from": start, "to": end}}
        for name in offsets
        for start, end in run.logs[name].gaps
        if start >= run.logs[name].journal.end
    )
    return {"told": told, "exit": run.exit}
