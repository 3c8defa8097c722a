"""Snapshots with memory: programs go on in another sandbox as if nothing had happened."""

import asyncio

from paddock.domain.errors import Conflict, Unsupported
from paddock.ports.provider import Capabilities
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import Nonconformity, expect, listed, refused, same
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.subject import Box, Subject

_GROWTH_S = 10.0


def _keeps_memory(capabilities: Capabilities) -> bool:
    return capabilities.checkpoint


refuses_to_keep_memory = refuses(
    snapshot_with_memory=lambda subject, ref: subject.snapshot(ref, memory=True),
)


@check(deadline_s=120, when=_keeps_memory, otherwise=refuses_to_keep_memory)
async def a_snapshot_with_memory_goes_on_where_it_was(subject: Subject) -> None:
    """In each sandbox made of it a program goes on: nothing skipped, repeated or begun anew."""
    seen = await subject.create(subject.key(), subject.spec())
    async with subject.reached(seen) as box:
        await box.tell(probes.DAEMON_OF, "diary", probes.DIARY, "diary")
        taken = await subject.snapshot(seen.ref, memory=True)
        expect(taken.memory, "the snapshot does not say that it has memory")
        word = await _goes_on(box, subject.terms.patience)
    # What is in it must be on disk: not in the sandbox, and not in the control plane.
    await subject.provider.destroy(seen.ref)
    await subject.restart()
    for _ in range(2):
        changes = {"env": {"WHO": "copy"}, "labels": {"role": "copy"}}
        async with subject.sandbox(snapshot=taken.ref, **changes) as copy:
            found = await _goes_on(copy, subject.terms.patience)
            same(found, word, "what the program had in memory")
            same(await copy.say("echo $WHO"), "copy", "the environment of a new command")
            same([one.ref for one in await subject.mine(role="copy")], [copy.ref], "find()")


async def _goes_on(box: Box, patience: float) -> str:
    """The word of the diary, after its numbers have been seen to grow without a gap."""
    before = len(await _diary(box))
    for _ in range(int(_GROWTH_S * 10 * patience)):
        pages = await _diary(box)
        if len(pages) > before + 1:
            word = pages[0][0]
            wanted = [[word, str(number)] for number in range(1, len(pages) + 1)]
            wrong = [one for one in zip(pages, wanted, strict=True) if one[0] != one[1]]
            expect(not wrong, f"the program wrote {wrong[:1]} (found, wanted)")
            return word
        await asyncio.sleep(0.1)
    raise Nonconformity(f"the program stands still after {before} numbers")


async def _diary(box: Box) -> list[list[str]]:
    return [line.split() for line in (await box.say("cat diary")).splitlines()]


async def refuses_memory_under_a_known_key(subject: Subject) -> None:
    able = subject.capabilities.snapshot
    async with subject.sandbox() as box:
        key = subject.key()
        before = [await subject.snapshot(box.ref, key)] if able else []
        call = subject.snapshot(box.ref, key, memory=True)
        await refused(call, Unsupported, "snapshot() with memory")
        same(await box.say("echo on"), "on", "a command after the refusal")
        if able:
            there = await listed(subject.provider.snapshots())
            same([one for one in there if one.key == key], before, "snapshots() under the key")
            same([await subject.snapshot(box.ref, key)], before, "snapshot() without memory")


@check(when=_keeps_memory, otherwise=refuses_memory_under_a_known_key)
async def a_key_stands_for_a_snapshot_with_or_without_memory(subject: Subject) -> None:
    """With the same `memory` it gives the same snapshot, with the other one it is Conflict."""
    async with subject.sandbox() as box:
        for memory in (True, False):
            key, kind = subject.key(), f"snapshot() with memory={memory}"
            taken = await subject.snapshot(box.ref, key, memory=memory)
            same(taken.memory, memory, f"what {kind} says of itself")
            same(await subject.snapshot(box.ref, key, memory=memory), taken, f"a second {kind}")
            other = subject.snapshot(box.ref, key, memory=not memory)
            await refused(other, Conflict, f"the key of a {kind} with the other")
            there = await listed(subject.provider.snapshots())
            same([one for one in there if one.key == key], [taken], "snapshots() under one key")
        if subject.capabilities.stop:
            await subject.provider.stop(box.ref)
            late = subject.snapshot(box.ref, memory=True)
            await refused(late, Conflict, "snapshot() with the memory of a stopped sandbox")
