"""A control plane that goes away and comes back: everything goes on, and is found again."""

import asyncio

from paddock.domain.sandbox import SandboxState
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, same
from paddock.testing.conformance.subject import Subject


@check(proves=("P2",))
async def a_new_instance_finds_what_the_old_one_left_running(subject: Subject) -> None:
    """After aclose() the sandbox goes on; a new instance finds it by labels and reaches it."""
    seen = await subject.create(subject.key(), subject.spec(labels={"role": "left"}))
    async with subject.reached(seen) as box:
        await box.tell(probes.DAEMON_OF, "counter", probes.COUNTER, "number")
        before = (await box.say("cat number")).split()
    await subject.restart()
    same(await subject.mine(role="left"), [seen], "find() of the new instance")
    same(await subject.provider.observe(seen.ref), seen, "observe() of the new instance")
    same(seen.state, SandboxState.RUNNING, "the state")
    await asyncio.sleep(0.2)
    async with subject.reached(seen) as box:
        after = (await box.say("cat number")).split()
        same(after[0], before[0], "the process that was left running")
        expect(int(after[1]) > int(before[1]), f"the counter stands at {after[1]} since aclose()")
