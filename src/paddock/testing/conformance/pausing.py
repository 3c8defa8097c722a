"""Pause and resume: nothing runs in between, and what was kept goes on."""

import asyncio
import time

from paddock.domain.errors import Conflict
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Capabilities, PauseKind
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.subject import Box, Subject

_TICK_S = 0.02
_WINDOW_S = 1.0


def _can_pause(capabilities: Capabilities) -> bool:
    return capabilities.pause is not PauseKind.NO


refuses_to_pause = refuses(
    pause=lambda subject, ref: subject.provider.pause(ref),
    resume=lambda subject, ref: subject.provider.resume(ref),
)


@check(proves=("L4",), when=_can_pause, otherwise=refuses_to_pause)
async def a_paused_sandbox_stands_still_and_goes_on_where_it_was(subject: Subject) -> None:
    """No process advances while paused; after resume() memory or at least the disk is as it was."""
    async with subject.sandbox(env={"KEPT": "yes"}) as box:
        await box.say("echo work > work")
        await box.tell(probes.DAEMON_OF, "counter", probes.COUNTER, "number")
        pid, before = await _number(box)
        began = time.monotonic()
        paused = await subject.provider.pause(box.ref)
        same(paused.state, SandboxState.PAUSED, "the state after pause()")
        latency = time.monotonic() - began
        await asyncio.sleep(_WINDOW_S + 2 * latency)
        resumed = await subject.provider.resume(box.ref)
        same(resumed.state, SandboxState.RUNNING, "the state after resume()")
        async with subject.reached(resumed) as again:
            same(await again.say("cat work; echo $KEPT"), "work\nyes", "disk and environment")
            if subject.capabilities.pause is PauseKind.MEMORY:
                await _went_on(again, pid, before)


async def _went_on(box: Box, pid: int, before: int) -> None:
    """The counter is the same process, lost the time of the pause, and counts again."""
    same_pid, after = await _number(box)
    same(same_pid, pid, "the process that counts")
    expect(after >= before, f"the counter went back from {before} to {after}: memory was lost")
    most = before + _WINDOW_S / _TICK_S / 2
    expect(after < most, f"the counter went from {before} to {after} while it was paused")
    await asyncio.sleep(10 * _TICK_S)
    _, later = await _number(box)
    expect(later > after, f"the counter still stands at {after} after resume()")


async def _number(box: Box) -> tuple[int, int]:
    pid, number = (await box.say("cat number")).split()
    return int(pid), int(number)


@check(proves=("L4",), when=_can_pause, otherwise=refuses_to_pause)
async def pause_and_resume_can_be_repeated(subject: Subject) -> None:
    """Pausing what is paused and resuming what runs is success and changes nothing."""
    async with subject.sandbox() as box:
        running = await subject.provider.resume(box.ref)
        same(running.state, SandboxState.RUNNING, "the state after resume() of a running one")
        same(await box.say("echo on"), "on", "a command after resume() of a running one")
        paused = await subject.provider.pause(box.ref)
        same(await subject.provider.pause(box.ref), paused, "a second pause()")
        await subject.provider.resume(box.ref)
        again = await subject.provider.resume(box.ref)
        same(again.state, SandboxState.RUNNING, "the state after a second resume()")


@check(proves=("P2", "L4"), when=_can_pause, otherwise=refuses_to_pause)
async def a_paused_sandbox_is_found_but_takes_no_commands(subject: Subject) -> None:
    """find() shows it as paused, also after a restart; guest() and endpoint() are Conflict."""
    seen = await subject.create(subject.key(), subject.spec(ports=(8000,)))
    await subject.provider.pause(seen.ref)
    await refused(subject.provider.guest(seen.ref), Conflict, "guest() of a paused sandbox")
    await refused(subject.provider.endpoint(seen.ref, 8000), Conflict, "endpoint() of it")
    await subject.restart()
    (found,) = await subject.mine()
    same((found.ref, found.state), (seen.ref, SandboxState.PAUSED), "find() after a restart")
    await refused(subject.provider.guest(seen.ref), Conflict, "guest() of a paused sandbox")
    resumed = await subject.provider.resume(seen.ref)
    async with subject.reached(resumed) as box:
        same(await box.say("echo on"), "on", "a command after resume()")


@check(proves=("L5",), when=_can_pause, otherwise=refuses_to_pause)
async def a_paused_sandbox_can_be_destroyed(subject: Subject) -> None:
    """destroy() ends a paused sandbox as it ends a running one."""
    seen = await subject.create(subject.key(), subject.spec())
    await subject.provider.pause(seen.ref)
    await subject.provider.destroy(seen.ref)
    same(await subject.mine(), [], "find() after destroy()")
