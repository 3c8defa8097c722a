"""What a verb of a sandbox has to know before and after its provider is asked."""

from contextlib import suppress

from paddock.domain.errors import Conflict, NotFound, Unsupported
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState, transition
from paddock.ports.provider import Provider, Ref

SETTLED = frozenset({SandboxState.CREATING, SandboxState.FAILED})
"""Whoever makes it, or deletes it, changes that; nothing that is seen of it does."""


def ref_of(sandbox: SandboxRecord) -> Ref:
    return Ref(sandbox.provider, sandbox.ref)


async def is_lost(provider: Provider, sandbox: SandboxRecord) -> bool:
    """What a verb did not find may have been something else than the sandbox."""
    try:
        await provider.observe(ref_of(sandbox))
    except NotFound:
        return True
    return False


async def put_out(provider: Provider, sandbox: SandboxRecord) -> None:
    """Nothing goes on in its machine any more, if that is still there: another has taken its place.
    Its disk is kept where the provider can."""
    if not sandbox.ref:
        return
    with suppress(NotFound, Conflict):  # it is gone, or stands still
        try:
            await provider.stop(ref_of(sandbox))
        except Unsupported:
            await provider.destroy(ref_of(sandbox))


def check_verb(sandbox: SandboxRecord, target: SandboxState, action: str) -> None:
    """The state machine, and that paused ones are resumed while stopped ones are started."""
    if action == "archive" and sandbox.state in (SandboxState.RUNNING, SandboxState.PAUSED):
        raise Conflict(
            f"sandbox {sandbox.name} is {sandbox.state}; only a stopped one can be archived",
            remediation=f"stop it first: `paddock stop {sandbox.name}`",
        )
    transition(sandbox.name, sandbox.state, target)
    asleep = (SandboxState.STOPPED, SandboxState.ARCHIVED)
    starts_from = {"start": asleep, "resume": (SandboxState.PAUSED,)}
    expected = starts_from.get(action, (sandbox.state,))
    if sandbox.state not in expected:
        other = "resume" if action == "start" else "start"
        raise Conflict(
            f"sandbox {sandbox.name} is {sandbox.state}; {action} is for "
            f"{' and '.join(expected)} ones",
            remediation=f"use `paddock {other} {sandbox.name}`",
        )
