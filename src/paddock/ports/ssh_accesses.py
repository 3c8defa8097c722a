"""What the store keeps of ways into sandboxes by SSH."""

from collections.abc import Sequence
from typing import Protocol

from paddock.domain.ssh import SshAccess
from paddock.ports.paging import Page


class SshAccesses(Protocol):
    """Ways into sandboxes by SSH, newest first."""

    def add(self, access: SshAccess) -> None: ...

    def get(self, access_id: str, sandbox_id: str = "") -> SshAccess | None:
        """Return an access; if a sandbox is given, only one of that sandbox."""
        ...

    def with_key(self, fingerprint: str) -> Sequence[SshAccess]:
        """Of all teams: who holds a key is known by nothing else yet."""
        ...

    def list(self, team_id: str, sandbox_id: str, page: Page) -> Sequence[SshAccess]: ...

    def replace(self, access: SshAccess) -> None:
        """A revocation stays, and `used_at` never goes backwards. NotFound when it is not there."""
        ...

    def prune(self, expired_before: float, limit: int) -> int:
        """Forget those that ended long ago; how many there were."""
        ...
