"""Fork: a second sandbox with a copy of the disk, while the first one goes on."""

from typing import Any

from paddock.domain.errors import Conflict
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Capabilities, Observation, Ref
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.snapshots import lengths
from paddock.testing.conformance.subject import Subject


def _can_fork(capabilities: Capabilities) -> bool:
    return capabilities.fork


async def _fork(subject: Subject, ref: Ref, key: str = "", **changes: Any) -> Observation:
    spec = subject.spec(template="", **changes)
    return subject.remember(await subject.provider.fork(ref, key or subject.key(), spec))


refuses_to_fork = refuses(fork=_fork)


@check(proves=("P1", "N4"), when=_can_fork, otherwise=refuses_to_fork)
async def a_fork_has_the_disk_and_both_go_on(subject: Subject) -> None:
    """The copy is consistent, the source's processes go on, and the disks are independent."""
    async with subject.sandbox() as box:
        await box.say("echo shared > file")
        await box.tell(probes.DAEMON_OF, "lockstep", probes.LOCKSTEP, "first", "second")
        seen = await _fork(subject, box.ref)
        same(seen.state, SandboxState.RUNNING, "the state of a fork")
        expect(seen.ref != box.ref, "the fork is the sandbox itself")
        grown, _ = await lengths(box)
        async with subject.reached(seen) as copy:
            same(await copy.say("cat file"), "shared", "the disk of the fork")
            first, second = await lengths(copy)
            expect(first - second in (0, 1), f"two files in step differ: {first} and {second}")
            await copy.say("echo changed > file")
            same(await box.say("cat file"), "shared", "the source after the fork changed")
            await box.say("rm file")
            same(await copy.say("cat file"), "changed", "the fork after the source changed")
        expect((await lengths(box))[0] > grown, "the source stands still since the fork")


@check(proves=("P1",), when=_can_fork, otherwise=refuses_to_fork)
async def a_fork_is_what_its_spec_says(subject: Subject) -> None:
    """Env and labels are the spec's, not the source's."""
    async with subject.sandbox(env={"WHO": "source"}, labels={"role": "source"}) as box:
        key = subject.key()
        changes = {"env": {"WHO": "fork"}, "labels": {"role": "fork"}}
        seen = await _fork(subject, box.ref, key, **changes)
        same((seen.key, seen.labels["role"]), (key, "fork"), "key and label of the fork")
        async with subject.reached(seen) as copy:
            same(await copy.say("echo $WHO"), "fork", "the environment of the fork")
        same(await box.say("echo $WHO"), "source", "the environment of the source")


@check(proves=("P1", "L2"), when=_can_fork, otherwise=refuses_to_fork)
async def the_same_key_gives_the_same_fork(subject: Subject) -> None:
    """A second fork() with a key returns the first one; of something else it is Conflict."""
    seen = await subject.create(subject.key(), subject.spec())
    other = await subject.create(subject.key(), subject.spec())
    key = subject.key()
    made = await _fork(subject, seen.ref, key)
    same(await _fork(subject, seen.ref, key), made, "a second fork() with the key")
    await subject.restart()
    same(await _fork(subject, seen.ref, key), made, "the same after a restart")
    await refused(_fork(subject, other.ref, key), Conflict, "the key for another source")
    differing = _fork(subject, seen.ref, key, env={"A": "1"})
    await refused(differing, Conflict, "the key with another spec")
    same(len(await subject.mine()), 3, "sandboxes after fork() calls with one key")


@check(proves=("P1", "N4"), when=_can_fork, otherwise=refuses_to_fork)
async def a_fork_outlives_its_source(subject: Subject) -> None:
    """When the source is destroyed, the fork keeps running with all of its disk."""
    async with subject.sandbox() as box:
        await box.say("echo kept > file")
        seen = await _fork(subject, box.ref)
    async with subject.reached(seen) as copy:
        same(await copy.say("cat file"), "kept", "the disk of the fork")
