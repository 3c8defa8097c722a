"""Sandboxes and snapshots that a server owns: commands without a server leave them alone."""

from collections.abc import Mapping

from paddock.domain.errors import Conflict
from paddock.domain.ids import is_id
from paddock.domain.records import SANDBOX_LABEL, SNAPSHOT_PREFIX
from paddock.domain.snapshot import Snapshot
from paddock.interfaces.cli import references
from paddock.ports.provider import Observation, Provider, Ref


def server_id(labels: Mapping[str, str]) -> str:
    """The server's id of a sandbox; empty if no server owns it."""
    return labels.get(SANDBOX_LABEL, "")


async def check_unowned(provider: Provider, ref: Ref) -> Observation:
    """Return what the provider sees of the sandbox. Conflict if a server owns it."""
    seen = await provider.observe(ref)
    if owned := server_id(seen.labels):
        raise Conflict(
            f"sandbox {references.shown(ref)} belongs to a server, which knows it as {owned}",
            remediation=f"ask that server: `paddock inspect {owned}`; or, if the server is gone "
            f"for good, `paddock sandbox rm --force {references.shown(ref)}`",
        )
    return seen


def check_snapshot_unowned(taken: Snapshot) -> None:
    """Conflict if a server owns the snapshot: it is kept under the server's id."""
    if is_id(taken.key, SNAPSHOT_PREFIX):
        raise Conflict(
            f"snapshot {taken.ref.provider}/{taken.ref.id} belongs to a server, which knows it as "
            f"{taken.key}",
            remediation=f"ask that server: `paddock snapshot rm {taken.key}`",
        )
