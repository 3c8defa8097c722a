"""Who was given what opens a sandbox's guest and its ports, and whether they may still be there."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

from paddock.domain.errors import PaddockError, Unauthenticated
from paddock.domain.records import SandboxRecord
from paddock.domain.team import Principal, Scope
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.changes import Changes
from paddock.services.stays import Stays

GUEST, PORT = "guest", "port"
_MOST = 200
_NEEDED = frozenset({Scope.SANDBOXES_WRITE})


class AccessTokens:
    """Made of what they are for, who has them, and a key that never leaves the control plane:
    nothing has to be kept, and they are the same after a pause, a restart and a move to another
    machine."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, subject: str, purpose: str = GUEST, *, holder: str = "") -> str:
        """What lets its bearer through, for one purpose: the guest, or the ports of programs. It
        names its holder, so that it can end with them."""
        text = f"paddock {purpose} access {subject}" + (f" of {holder}" if holder else "")
        made = hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256).digest()
        word = base64.b32encode(made).decode().rstrip("=").lower()
        return f"{holder}.{word}" if holder else word

    def opens(self, offered: str, subject: str, purpose: str = GUEST, *, holder: str = "") -> bool:
        expected = self.of(subject, purpose, holder=holder)
        return hmac.compare_digest(
            offered.encode("utf-8", "replace"), expected.encode("utf-8", "replace")
        )

    def holder(self, offered: str, subject: str, purpose: str = GUEST) -> str:
        """To whom it was given; empty when it was not made here for this."""
        named = offered.rpartition(".")[0]
        return named if named and self.opens(offered, subject, purpose, holder=named) else ""


class Keys(NamedTuple):
    """What opens a sandbox to one holder."""

    guest: str
    ports: str


class Holders:
    """Each of them may be who asks. What they were given ends with the token or the session that
    they had it by."""

    def __init__(
        self,
        store: Store,
        changes: Changes,
        *,
        tokens: AccessTokens,
        stays: Stays,
        anyone: Principal | None = None,
    ) -> None:
        self._store = store
        self._changes = changes
        self._tokens = tokens
        self._stays = stays
        self._anyone = anyone

    async def give(self, principal: Principal, sandbox: SandboxRecord) -> Keys:
        """It is noted who has them."""
        means = principal.means
        if means not in sandbox.holders:
            await self._note(sandbox.id, means)
        made = (self._tokens.of(sandbox.id, each, holder=means) for each in (GUEST, PORT))
        return Keys(*made)

    async def _note(self, sandbox_id: str, means: str) -> None:
        def note(tx: Transaction) -> None:
            current = tx.sandboxes.get(ANY_TEAM, sandbox_id)
            if current is not None and means not in current.holders:
                holders = (*current.holders, means)[-_MOST:]
                tx.sandboxes.replace(replace(current, holders=holders))

        await self._store.write(note)
        self._changes.forget(sandbox_id)

    def tokens_of(self, sandbox: SandboxRecord) -> Iterator[str]:
        """Everybody's: for what was made of one of them and does not say of which."""
        return (self._tokens.of(sandbox.id, holder=each) for each in sandbox.holders)

    async def find(
        self, offered: str, subject: str, purpose: str = GUEST, *, team_id: str
    ) -> Principal | None:
        """Who has what is offered, while they may be in what is their team's; None otherwise."""
        means = self._tokens.holder(offered, subject, purpose)
        if not means:
            return None
        if self._anyone is not None and means == self._anyone.means:
            return self._anyone
        try:
            found = await self._stays.standing(means)
        except Unauthenticated:
            return None
        may = found.team_id == team_id and found.scopes >= _NEEDED
        return replace(found, scopes=_NEEDED) if may else None

    def staying(
        self, holder: Principal, end: Callable[[PaddockError], None]
    ) -> AbstractContextManager[None]:
        """While this is open, `end` is called once if they may not be there any more."""
        return self._stays.staying(holder, end)
