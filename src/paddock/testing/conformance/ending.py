"""Destroying: complete, repeatable, and leaving no process behind."""

import asyncio

from paddock.domain.errors import NotFound
from paddock.domain.ids import new_ulid
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import refused, same
from paddock.testing.conformance.outside import processes_here
from paddock.testing.conformance.probes import DAEMON_OF, SLEEP
from paddock.testing.conformance.subject import Subject


@check(proves=("L5",))
async def destroying_twice_is_success_and_nothing_is_found_after(subject: Subject) -> None:
    """After destroy() it is neither observed nor found nor reached; once more is success."""
    seen = await subject.create(subject.key(), subject.spec())
    await subject.provider.destroy(seen.ref)
    await refused(subject.provider.observe(seen.ref), NotFound, "observe() after destroy()")
    await refused(subject.provider.guest(seen.ref), NotFound, "guest() after destroy()")
    same(await subject.mine(), [], "find() after destroy()")
    await subject.provider.destroy(seen.ref)


@check(proves=("L5",))
async def destroying_leaves_no_process_behind(subject: Subject) -> None:
    """What ran in a sandbox, daemons included, is gone from this host when destroy() returns."""
    marker = f"marker-{new_ulid()}"
    async with subject.sandbox() as box:
        await box.tell(DAEMON_OF, marker, SLEEP)
    for _ in range(20):
        if not processes_here(marker):
            break
        await asyncio.sleep(0.05)
    same(processes_here(marker), [], "processes of a destroyed sandbox")
