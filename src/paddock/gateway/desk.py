"""Where one sandbox's credentials are kept, and who is to hear when they change."""

import ssl
from collections.abc import Callable, Sequence
from typing import Protocol

from paddock.domain.broker.models import DOMAIN, host_of
from paddock.gateway.credentials import Credentials, Matchers
from paddock.gateway.ledger import Ledger
from paddock.gateway.minting import Mint
from paddock.gateway.protocol import Credential
from paddock.gateway.room import Patience, Room
from paddock.gateway.target import Target


class Hearer(Protocol):
    """A connection that credentials went into."""

    def recheck_credentials(self) -> None:
        """They are others now."""

    def leave(self) -> None:
        """Nothing new begins here; what is under way goes on."""


class Desk:
    """In memory only: what was here is gone with the sandbox, or with the gateway."""

    def __init__(self, name: Callable[[str], object] = str) -> None:
        """`name` is told names that the sandbox has to find from now on."""
        self._name = name
        self.ledger = Ledger()
        self.mint: Mint | None = None
        """Without one no TLS is looked into."""
        self.held = Credentials()
        self.matchers = Matchers()
        self._accounts: set[str] = set()
        self.mark = ""
        """Tells which credentials these are."""
        self.connections: set[Hearer] = set()
        self.whole = Room()
        """Of all sandboxes that the gateway serves."""
        self.room: Room | None = None
        """Its own, once there is a route: that tells of which team it is."""
        self.patience = Patience()

    def take(self, told: Sequence[Credential], mark: str) -> None:
        """From the next request on. What goes on with one that is no more is ended."""
        self.held, self.mark = Credentials.of(told), mark
        self.matchers.clear()
        self._hold({each.account for each in told if each.route})
        for each in told:
            if each.route:
                self._name(host_of(each.route))
                self.ledger.know(each.account, each.spent)
                if self.room is None:
                    self.room = self.whole.of_team(each.account.partition("/")[0]).of_sandbox()
        for connection in list(self.connections):
            connection.recheck_credentials()

    def _hold(self, accounts: set[str]) -> None:
        before, self._accounts = self._accounts, accounts
        self.ledger.hold(accounts)
        self.ledger.let_go(before)

    def close(self) -> None:
        """Nobody pays here any more."""
        self._hold(set())

    def route(self, name: str) -> Credential | None:
        """What is behind a name that only the sandbox knows."""
        if not name.endswith(DOMAIN):
            return None
        found = (each.credential for each in self.held.bound if each.credential.route)
        return next((each for each in found if host_of(each.route) == name), None)

    def concerns(self, target: Target) -> bool:
        """Whether a secret of the sandbox is bound to it: only then is TLS looked into."""
        return self.mint is not None and bool(self.of(target))

    def of(self, target: Target) -> list[Credential]:
        return self.held.of_host(target.name, target.port)

    def context(self, target: Target) -> ssl.SSLContext:
        """To be that host to a client."""
        assert self.mint is not None
        return self.mint.context(target.name)
