"""One piece of work, one sandbox: who has an identity already."""

from paddock.domain.errors import Conflict
from paddock.domain.records import SandboxRecord
from paddock.ports.store import Page, SandboxFilter, Transaction

_MOST = 500
_NAMED = 5


def holder(tx: Transaction, team_id: str, identity: str) -> SandboxRecord | None:
    """The sandbox that is meant by the identity; Conflict when it could be several.

    Called in the transaction that would add another, so that no two find nobody.
    """
    wanted = SandboxFilter(identity=identity)
    listed = tx.sandboxes.list(team_id, wanted, Page(_MOST))
    found = [sandbox for sandbox in listed if sandbox.holds_identity]
    if len(found) <= 1:
        return next(iter(found), None)
    names = ", ".join(sandbox.name for sandbox in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    raise Conflict(
        f"{len(found)} sandboxes share the identity {identity[:80]!r}: {names}{more}",
        remediation="say by name which one is meant, or ask for another one of the group",
    )


def on_record(earlier: SandboxRecord | None, sandbox_id: str) -> SandboxRecord:
    """What the same request has made before."""
    if earlier is None or earlier.is_gone:
        raise Conflict(
            f"this request has made sandbox {sandbox_id}, which has been deleted since",
            remediation="use a new idempotency key to make another",
        )
    return earlier
