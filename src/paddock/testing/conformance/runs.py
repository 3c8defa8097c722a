"""Durable runs: they go on while nobody watches, and nothing they said is lost or told twice."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from paddock.domain.errors import Conflict, NotFound
from paddock.domain.reason import Reason
from paddock.guest_client.runs import Chunk, RunExit, TailEvent
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import Nonconformity, expect, refused, same
from paddock.testing.conformance.subject import Box, Subject

_LINES = 60
# Says a number every 20 ms, then ends with a code of its own.
_COUNT = f"""
import sys, time
for number in range({_LINES}):
    print(number, flush=True)
    time.sleep(0.02)
sys.exit(7)
"""
_WANTED = b"".join(b"%d\n" % number for number in range(_LINES))


@check(proves=("E6", "E2"))
async def a_run_goes_on_while_nobody_watches(subject: Subject) -> None:
    """A new client, after a restart, reads on from its offset: nothing twice, nothing missing."""
    seen = await subject.create(subject.key(), subject.spec())
    async with subject.reached(seen) as box:
        run = await box.guest.runs.start("count", ["python3", "-c", _COUNT])
        heard = await _first_words(box)
    expect(len(heard) < len(_WANTED), "the run ended before anybody could look away")
    await subject.restart()
    await asyncio.sleep(0.3)
    async with subject.reached(seen) as box:
        again = await box.guest.runs.start("count", ["python3", "-c", _COUNT])
        same(again.started_at, run.started_at, "when the run under this key was started")
        rest, end = await _to_the_end(box, len(heard))
        same(heard + rest, _WANTED, "what was read before and after")
        same((end.exit_code, end.reason), (7, Reason.EXITED), "how the run ended")
        await box.guest.runs.ack("count")
        await refused(box.guest.runs.get("count"), NotFound, "an acknowledged run")


@check(proves=("P14",))
async def a_run_is_started_once_by_its_key(subject: Subject) -> None:
    """The same key and request is the same run; another request under the key is Conflict."""
    async with subject.sandbox() as box:
        once = ["sh", "-c", "echo ran >> ran; echo done"]
        for _ in range(3):
            await box.guest.runs.start("once", once)
        said, _ = await _to_the_end(box, 0, "once")
        await box.guest.runs.start("once", once)
        same(said, b"done\n", "what it said")
        same(await box.say("cat ran"), "ran", "what it left behind")
        other = box.guest.runs.start("once", ["true"])
        await refused(other, Conflict, "another request under the same key")


async def _first_words(box: Box) -> bytes:
    """Some output, and then the client looks away in the middle of it."""
    heard = b""
    tail = cast(AsyncGenerator[TailEvent, None], box.guest.runs.tail("count"))
    async with aclosing(tail) as events:
        async for event in events:
            heard += event.data if isinstance(event, Chunk) else b""
            if heard.count(b"\n") >= 3:
                break
    return heard


async def _to_the_end(box: Box, offset: int, key: str = "count") -> tuple[bytes, RunExit]:
    heard, end = b"", None
    async for event in box.guest.runs.tail(key, offset=offset):
        heard += event.data if isinstance(event, Chunk) else b""
        end = event if isinstance(event, RunExit) else end
    if end is None:
        raise Nonconformity(f"the output of run {key} has no end")
    return heard, end
