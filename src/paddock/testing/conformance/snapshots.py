"""Snapshots: the disk at one moment, taken by key, and sandboxes made of it."""

from paddock.domain.errors import Conflict, NotFound
from paddock.domain.ids import new_ulid
from paddock.domain.snapshot import SnapshotRef
from paddock.ports.provider import Capabilities
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, listed, refused, same
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.subject import Box, Subject


def _can_snapshot(capabilities: Capabilities) -> bool:
    return capabilities.snapshot


def _somewhere(subject: Subject) -> SnapshotRef:
    return SnapshotRef(subject.provider.name, f"snp_{new_ulid()}")


refuses_to_snapshot = refuses(
    snapshot=lambda subject, ref: subject.provider.snapshot(ref, subject.key()),
    snapshots=lambda subject, _: listed(subject.provider.snapshots()),
    delete_snapshot=lambda subject, _: subject.provider.delete_snapshot(_somewhere(subject)),
    create_from_snapshot=lambda subject, _: subject.provider.create(
        subject.key(), subject.spec(snapshot=_somewhere(subject))
    ),
)


async def lengths(box: Box) -> tuple[int, int]:
    """Of the two files that LOCKSTEP writes; the first is never behind the second."""
    first, second = (await box.say("wc -c < first; wc -c < second")).split()
    return int(first), int(second)


@check(proves=("P1", "N1"), when=_can_snapshot, otherwise=refuses_to_snapshot)
async def a_snapshot_is_one_moment_of_a_running_disk(subject: Subject) -> None:
    """Files that change together are consistent in it; what was written later is not in it."""
    async with subject.sandbox() as box:
        await box.say("echo before > before; mkdir -p a/b; echo deep > a/b/c; chmod 750 a/b/c")
        await box.tell(probes.DAEMON_OF, "lockstep", probes.LOCKSTEP, "first", "second")
        taken = await subject.snapshot(box.ref)
        await box.say("echo after > after")
        grown, _ = await lengths(box)
        async with subject.sandbox(snapshot=taken.ref) as copy:
            same(await copy.say("cat before a/b/c"), "before\ndeep", "files from before")
            same(await copy.say("stat -c %a a/b/c"), "750", "the mode of a file")
            same(await copy.say("test -e after || echo no"), "no", "a file from after")
            first, second = await lengths(copy)
            expect(first - second in (0, 1), f"two files in step differ: {first} and {second}")
            expect(0 < first <= grown, f"{first} bytes in the snapshot, {grown} later")
        expect((await lengths(box))[0] > grown, "the source stands still since the snapshot")


@check(proves=("P1",), when=_can_snapshot, otherwise=refuses_to_snapshot)
async def a_sandbox_of_a_snapshot_is_a_sandbox_of_its_own(subject: Subject) -> None:
    """Env and labels are those of its spec, and neither disk shows what is done on the other."""
    async with subject.sandbox(env={"WHO": "source"}, labels={"role": "source"}) as box:
        await box.say("echo shared > file")
        taken = await subject.snapshot(box.ref)
        changes = {"env": {"WHO": "copy"}, "labels": {"role": "copy"}}
        async with subject.sandbox(snapshot=taken.ref, **changes) as copy:
            same(copy.seen.labels["role"], "copy", "the label of the copy")
            same(await copy.say("echo $WHO; cat file"), "copy\nshared", "env and disk of the copy")
            await copy.say("echo changed > file")
            same(
                await box.say("echo $WHO; cat file"), "source\nshared", "env and disk of the source"
            )
            await box.say("rm file")
            same(await copy.say("cat file"), "changed", "the copy after the source changed")


@check(proves=("P1",), when=_can_snapshot, otherwise=refuses_to_snapshot)
async def the_same_key_gives_the_same_snapshot(subject: Subject) -> None:
    """A second snapshot() with a key returns the first one; of another sandbox it is Conflict."""
    seen = await subject.create(subject.key(), subject.spec())
    async with subject.reached(seen) as box:
        await box.say("echo first > file")
        key = subject.key()
        taken = await subject.snapshot(seen.ref, key)
        same((taken.key, taken.source), (key, seen.ref.id), "key and source of the snapshot")
        same(taken.ref.provider, subject.provider.name, "its provider")
        await box.say("echo second > file")
        same(await subject.snapshot(seen.ref, key), taken, "a second snapshot() with the key")
    await subject.restart()
    same(await subject.snapshot(seen.ref, key), taken, "the same after a restart")
    found = [one for one in await listed(subject.provider.snapshots()) if one.key == key]
    same(found, [taken], "snapshots() under one key")
    other = await subject.create(subject.key(), subject.spec())
    await refused(subject.snapshot(other.ref, key), Conflict, "the key for another sandbox")
    async with subject.sandbox(snapshot=taken.ref) as copy:
        same(await copy.say("cat file"), "first", "the disk in the snapshot")


@check(proves=("P1", "N1"), when=_can_snapshot, otherwise=refuses_to_snapshot)
async def a_snapshot_outlives_its_source(subject: Subject) -> None:
    """When the sandbox is destroyed, the snapshot stays and makes new ones."""
    async with subject.sandbox() as box:
        await box.say("echo kept > file")
        taken = await subject.snapshot(box.ref)
    async with subject.sandbox(snapshot=taken.ref) as copy:
        same(await copy.say("cat file"), "kept", "the disk of a destroyed source")


@check(proves=("P1",), when=_can_snapshot, otherwise=refuses_to_snapshot)
async def deleting_a_snapshot_harms_nobody(subject: Subject) -> None:
    """Absent is success, sandboxes made of it go on, and nothing new can be made of it."""
    async with subject.sandbox() as box:
        await box.say("echo kept > file")
        taken = await subject.snapshot(box.ref)
        async with subject.sandbox(snapshot=taken.ref) as copy:
            await subject.provider.delete_snapshot(taken.ref)
            await subject.provider.delete_snapshot(taken.ref)
            same(await copy.say("cat file; echo more >> file"), "kept", "the copy")
            same(await box.say("cat file"), "kept", "the source")
        there = {one.ref for one in await listed(subject.provider.snapshots())}
        expect(taken.ref not in there, "snapshots() lists a deleted one")
        again = subject.provider.create(subject.key(), subject.spec(snapshot=taken.ref))
        await refused(again, NotFound, "creation from a deleted snapshot")
