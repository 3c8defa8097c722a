"""The fence: what a sandbox cannot see, read or do; tried only as far as it takes to know."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from paddock.domain.errors import PaddockError
from paddock.domain.ids import new_ulid
from paddock.ports.provider import Isolation
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check, isolated
from paddock.testing.conformance.expect import Nonconformity, expect, same
from paddock.testing.conformance.refusals import admits_that_nothing_is_fenced
from paddock.testing.conformance.subject import Box, Subject

_FEW_PROCESSES = 30


@asynccontextmanager
async def _process_here(marker: str) -> AsyncIterator[None]:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", probes.SLEEP, marker)
    try:
        yield
    finally:
        child.kill()
        await child.wait()


@check(proves=("P10",), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def processes_of_the_host_are_not_seen(subject: Subject) -> None:
    """A fresh sandbox sees a handful of processes, and none that this host runs."""
    marker = f"marker-{new_ulid()}"
    async with subject.sandbox() as box, _process_here(marker):
        seen, *marked = (await box.tell(probes.PROCESSES, marker)).split()
        same(marked, [], "processes of this host that are seen inside")
        expect(int(seen) < _FEW_PROCESSES, f"{seen} processes are seen in a fresh sandbox")


@check(proves=("P10", "S6"), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def files_of_the_host_are_not_read(subject: Subject) -> None:
    """Neither a command as root nor the file service reads a file of this host, `..` or not."""
    with tempfile.TemporaryDirectory(prefix="paddock-canary-") as directory:
        canary = Path(directory, f"canary-{new_ulid()}")
        canary.write_text("sings")
        # Only the fence shall stand in the way, not the file's mode.
        Path(directory).chmod(0o755)
        async with subject.sandbox() as box:
            ways = {"as it is": str(canary), "with ..": f"../../../../../../../..{canary}"}
            for way, path in ways.items():
                result = await box.run("cat", path, user="root")
                expect(result.exit_code != 0, f"a command reads a file of the host, path {way}")
                await _unreadable(box, path, way)


async def _unreadable(box: Box, path: str, way: str) -> None:
    try:
        content = await box.guest.files.read(path)
    except PaddockError:
        return
    raise Nonconformity(f"the file service reads a file of the host, path {way}: {content[:20]!r}")


@check(proves=("P10",), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def neighbours_see_nothing_of_each_other(subject: Subject) -> None:
    """Two sandboxes share neither files outside of their homes nor processes."""
    marker = f"marker-{new_ulid()}"
    async with subject.sandbox() as one, subject.sandbox() as other:
        await one.say('echo secret > "/tmp/$1"', marker)
        await one.tell(probes.DAEMON_OF, marker, probes.SLEEP)
        there = await other.say('test -e "/tmp/$1" && echo there || echo not', marker)
        same(there, "not", "a file of the neighbour")
        marked = (await other.tell(probes.PROCESSES, marker, user="root")).split()[1:]
        same(marked, [], "processes of the neighbour")


@check(proves=("P10",), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def nothing_can_be_mounted(subject: Subject) -> None:
    """The user cannot mount a file system; where the kernel is shared, root cannot either."""
    await _cannot(subject, probes.MOUNT, "mount a file system")


@check(proves=("P10",), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def the_clock_cannot_be_set(subject: Subject) -> None:
    """The user cannot set the clock; where the kernel is shared, root cannot either."""
    await _cannot(subject, probes.SET_CLOCK, "set the clock")


async def _cannot(subject: Subject, program: str, what: str) -> None:
    # A kernel of one's own may obey its root: that harms nobody else.
    shared_kernel = subject.capabilities.isolation is Isolation.CONTAINER
    users = (None, "root") if shared_kernel else (None,)
    async with subject.sandbox() as box:
        for user in users:
            said = await box.tell(program, user=user)
            expect(said != "did", f"{user or 'the default user'} can {what}")


@check(proves=("P10",), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def the_guest_is_out_of_reach_of_commands(subject: Subject) -> None:
    """A command can neither signal the process that started it nor read its memory."""
    async with subject.sandbox() as box:
        same(await box.tell(probes.ATTACK_GUEST), "", "what a command may do to the guest")
        same(await box.say("echo on"), "on", "a command after the attack")
