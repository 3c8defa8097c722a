"""What can be seen of a sandbox from outside: its state, its use, its ports, its events.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Iterator, Sequence

from paddock.interfaces.client.credentials import CredentialInfo, Spending
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import (
    Event,
    Link,
    Port,
    SandboxInfo,
    SnapshotInfo,
    Usage,
)
from paddock.interfaces.client.sight import AsyncSight


class Sight:
    """What can be seen of one sandbox."""

    _inner: AsyncSight

    def __init__(self, inner: AsyncSight) -> None:
        self._inner = inner

    def info(self) -> SandboxInfo:
        """As it is now."""
        return portal().run(self._inner.info())

    def is_running(self) -> bool:
        return portal().run(self._inner.is_running())

    def metrics(self) -> Usage:
        """CPU, memory, disk and processes."""
        return portal().run(self._inner.metrics())

    def credentials(self) -> Sequence[CredentialInfo]:
        """What it may use without having it, and what keeps any of it from working."""
        return portal().run(self._inner.credentials())

    def models(self) -> Spending:
        """Its routes to model APIs, and what it or its task took of them."""
        return portal().run(self._inner.models())

    def ports(self) -> Sequence[Port]:
        """Where programs inside listen."""
        return portal().run(self._inner.ports())

    def get_url(self, port: int) -> str:
        """Where a port is seen from outside, whether anything listens there yet or not.

        It is private unless made public: `share` makes a link that lets somebody in.
        """
        return portal().run(self._inner.get_url(port))

    def share(self, port: int, seconds: float = 3600.0) -> Link:
        """A link to a private port that ends by itself."""
        return portal().run(self._inner.share(port, seconds))

    def revoke_links(self) -> None:
        """End every link to its ports that was ever made."""
        portal().run(self._inner.revoke_links())

    def set_public_ports(self, ports: Sequence[int]) -> None:
        """These can be seen by everyone who reaches the server; the others are private."""
        portal().run(self._inner.set_public_ports(ports))

    def snapshots(self) -> Iterator[SnapshotInfo]:
        """Those that were taken of it."""
        return portal().each(self._inner.snapshots())

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """What happened to it, oldest first; then, with `follow`, what happens."""
        return portal().each(self._inner.events(follow=follow))
