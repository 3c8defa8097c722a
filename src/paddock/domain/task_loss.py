"""A sandbox that was lost under its task: whether another takes its place, and as it was when.

running, waiting, completing ──> creating ──> running, in another sandbox

What the agent did since then is gone and done again. What it did outside its sandbox may have been
done already: it is told so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from paddock.domain.command_policy import CommandPolicy
from paddock.domain.egress import EgressWish
from paddock.domain.lifetime import Lifetime
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.volume import VolumeMount


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one sandbox, what the next one is made of, and what people had set for the one before."""

    sandbox_id: str
    at: float
    run: int = 0
    """The last run of the agent in it."""
    snapshot_id: str = ""
    """One that was taken of it; empty is whatever the first was made of."""
    as_of: float = 0.0
    """When that was taken: what was done later is gone."""
    directory: str = ""
    """Where in it the task worked, and works again if it is made of a snapshot."""
    app: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    egress: EgressWish | None = None
    command_policy: CommandPolicy | None = None
    hardened: bool | None = None
    runtime: str = ""
    lifetime: Lifetime = field(default_factory=Lifetime)
    volumes: tuple[VolumeMount, ...] = ()


def loss_of(
    sandbox: SandboxRecord,
    at: float,
    *,
    run: int = 0,
    kept: SnapshotRecord | None = None,
    directory: str = "",
) -> Loss:
    """What people had set for it, also since it was made, holds for the next one: no limit is gone
    around by a loss."""
    return Loss(
        sandbox.id,
        at,
        run=run,
        snapshot_id=kept.id if kept is not None else "",
        as_of=kept.created_at if kept is not None else 0.0,
        directory=directory,
        app=sandbox.app,
        labels=sandbox.labels,
        egress=sandbox.egress,
        command_policy=sandbox.command_policy,
        hardened=sandbox.hardened,
        runtime=sandbox.runtime,
        lifetime=sandbox.lifetime,
        volumes=sandbox.volumes,
    )


def why_not(sandbox: SandboxRecord, *, is_own: bool, is_wanted: bool) -> str:
    """Why no other sandbox takes its place, in words; empty where one may."""
    if sandbox.state is not SandboxState.FAILED:
        return f"sandbox {sandbox.name} is {sandbox.state}, which somebody wanted"
    if sandbox.quarantine is not None:
        return f"sandbox {sandbox.name} had been set aside: {sandbox.quarantine.why}"
    if not is_own:
        return f"sandbox {sandbox.name} was not made for the task, so no other can take its place"
    if not is_wanted:
        return "`tasks.replace_lost` is off"
    return ""


def newest(snapshots: Iterable[SnapshotRecord], since: float) -> SnapshotRecord | None:
    """Of those that can be gone back to, taken after the task's agent could begin."""
    usable = [
        each
        for each in snapshots
        if each.ref and each.created_at >= since and each.quarantine is None
    ]
    return max(usable, key=lambda each: each.created_at, default=None)


def step_after(losses: Sequence[Loss], step: str) -> str:
    """The journal's name for a step that is done once in each sandbox."""
    return f"{step}.{len(losses)}" if losses else step


def going_on_prompt(as_of: float, told: Sequence[str]) -> str:
    """For an agent that remembers, in a workspace that is of a while ago."""
    return (
        "The machine that you worked on was lost, and you are on another one. Files are as they "
        f"were at {_time(as_of)}: what was done after that is gone, also of what you remember. "
        f"Look at what is there, and go on from it. {_OUTSIDE}{_said(told)}"
    )


def beginning_prompt(opening: str, as_of: float, told: Sequence[str]) -> str:
    """For one that remembers nothing, with what it was told at first."""
    begun = (
        f"This was begun before, and the machine was lost. Files are as they were at {_time(as_of)}"
        ": look at what is there, and go on from it."
        if as_of
        else "This was begun before, on a machine that was lost with everything on it."
    )
    return f"{opening}\n\n{begun} {_OUTSIDE}{_said(told)}"


_OUTSIDE = (
    "What was done outside of that machine, such as commits that were pushed or requests that were "
    "sent, may have been done already: look before you do it again."
)


def _said(told: Sequence[str]) -> str:
    if not told:
        return ""
    return "\n\nMeanwhile this was said, in this order:\n\n" + "\n\n".join(told)


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
