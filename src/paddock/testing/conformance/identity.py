"""One key, one sandbox: to callers in a row, at once, from elsewhere and after a restart."""

import asyncio

from paddock.domain.errors import Conflict, NotFound
from paddock.domain.sandbox import SandboxState
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.subject import Subject

_CALLERS = 5


@check(proves=("L2",))
async def the_same_key_gives_the_same_sandbox(subject: Subject) -> None:
    """A second create() with the same key and spec returns the first one's sandbox."""
    key, spec = subject.key(), subject.spec()
    first = await subject.create(key, spec)
    async with subject.reached(first) as box:
        await box.say("echo mine > mine")
    second = await subject.create(key, spec)
    same(second, first, "the second creation")
    async with subject.reached(second) as box:
        same(await box.say("cat mine"), "mine", "the disk after the second creation")
    same([seen.ref for seen in await subject.mine()], [first.ref], "sandboxes under one key")


@check(proves=("L2",))
async def concurrent_callers_share_one_creation(subject: Subject) -> None:
    """Five create() calls at once with one key give one sandbox to all of them."""
    key, spec = subject.key(), subject.spec()
    made = await asyncio.gather(*(subject.create(key, spec) for _ in range(_CALLERS)))
    same({seen.ref for seen in made}, {made[0].ref}, "what five callers got")
    same({seen.state for seen in made}, {SandboxState.RUNNING}, "the state they were told")
    same([seen.ref for seen in await subject.mine()], [made[0].ref], "sandboxes under one key")


@check(proves=("L2", "P2"))
async def the_same_key_gives_the_same_sandbox_after_a_restart(subject: Subject) -> None:
    """A new instance of the provider knows the key that the old one created a sandbox with."""
    key, spec = subject.key(), subject.spec()
    first = await subject.create(key, spec)
    await subject.restart()
    same(await subject.create(key, spec), first, "the creation after a restart")
    same([seen.ref for seen in await subject.mine()], [first.ref], "sandboxes under one key")


@check(proves=("L2",))
async def two_instances_at_once_agree_or_exclude_each_other(subject: Subject) -> None:
    """Two instances give one sandbox for one key, or the second is refused beside the first."""
    key, spec = subject.key(), subject.spec()
    try:
        other = await subject.open_provider()
    except Conflict:
        return
    try:
        mine, theirs = await asyncio.gather(subject.create(key, spec), other.create(key, spec))
        subject.remember(theirs)
        same(theirs.ref, mine.ref, "what the second instance got")
    except Conflict:
        pass
    finally:
        await other.aclose()
    expect(len(await subject.mine()) == 1, "two instances made two sandboxes under one key")


@check(proves=("L2",))
async def the_same_key_with_another_spec_is_a_conflict(subject: Subject) -> None:
    """A key that is taken by something else is Conflict, and what is there stays as it was."""
    key, spec = subject.key(), subject.spec(env={"A": "1"})
    first = await subject.create(key, spec)
    changed = {
        "env": subject.spec(env={"A": "2"}),
        "labels": subject.spec(env={"A": "1"}, labels={"more": "x"}),
        "ports": subject.spec(env={"A": "1"}, ports=(8000,)),
    }
    for what, other in changed.items():
        call = subject.provider.create(key, other)
        await refused(call, Conflict, f"the same key with other {what}")
    same(await subject.provider.observe(first.ref), first, "the first one after the conflict")
    same([seen.ref for seen in await subject.mine()], [first.ref], "sandboxes under one key")


@check(proves=("L2",))
async def a_key_is_free_again_after_its_sandbox_was_destroyed(subject: Subject) -> None:
    """After destroy() the key makes a new sandbox, with nothing of the old one on its disk."""
    key, spec = subject.key(), subject.spec()
    old = await subject.create(key, spec)
    async with subject.reached(old) as box:
        await box.say("echo old > old")
    await subject.provider.destroy(old.ref)
    new = await subject.create(key, spec)
    same(new.state, SandboxState.RUNNING, "the new one's state")
    async with subject.reached(new) as box:
        same(await box.say("cat old 2>/dev/null || echo nothing"), "nothing", "the old one's file")
    if new.ref != old.ref:
        await refused(subject.provider.observe(old.ref), NotFound, "observe() of the old one")
