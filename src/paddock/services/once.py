"""Requests that come again with their key: done once, and answered as they were the first time."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from paddock.domain.ids import new_id
from paddock.domain.repetition import ANSWER_PREFIX, KeptAnswer
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.ports.vault import Vault

T = TypeVar("T")
_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request as far as it tells a repetition from another request."""

    principal: Principal
    key: str
    """Empty when it is not to be known again."""
    verb: str
    wish: object

    @property
    def fingerprint(self) -> str:
        """Of who asks as well: an answer that shows a secret is for nobody else who has the key."""
        asked = (self.verb, self.principal.holder, self.wish)
        return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


class Once:
    """The answer is kept in the transaction that makes what it tells of: there is never one
    without the other. It is sealed, because it may show what is shown this once, and goes with the
    key."""

    def __init__(self, store: Store, clock: Clock, vault: Vault) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault

    async def write(
        self,
        request: Repeatable,
        work: Callable[[Transaction], tuple[str, T]],
        answer: type[T],
    ) -> T:
        """What `work` answers, or has answered to the same request before. It gives the id of what
        it made with it. Conflict when the key was used for another request."""
        if not request.key:
            return (await self._store.write(work))[1]
        team_id, fingerprint = request.principal.team_id, request.fingerprint

        def once(tx: Transaction) -> T:
            mine, now = new_id(ANSWER_PREFIX), self._clock.wall()
            claimed = tx.keys.claim(
                team_id, request.key, fingerprint=fingerprint, object_id=mine, now=now
            )
            if claimed != mine:
                kept = tx.keys.answer(team_id, request.key)
                assert kept is not None, "a key is claimed together with its answer"
                opened = self._vault.open(kept.sealed, kept.associated)
                return msgspec.json.decode(opened, type=answer)
            object_id, made = work(tx)
            kept = KeptAnswer(team_id, request.key, fingerprint, object_id)
            tx.keys.keep(_sealed(self._vault, kept, msgspec.json.encode(made)))
            return made

        return await self._store.write(once)


def reseal_answers(tx: Transaction, vault: Vault, key_id: str) -> int:
    """Some of those that another key seals; how many there were."""
    found = tx.keys.sealed_otherwise(key_id, _AT_ONCE)
    for kept in found:
        tx.keys.keep(_sealed(vault, kept, vault.open(kept.sealed, kept.associated)))
    return len(found)


def _sealed(vault: Vault, kept: KeptAnswer, value: bytes) -> KeptAnswer:
    sealed = vault.seal(value, kept.associated)
    return replace(kept, sealed=sealed.text, key_id=sealed.key_id)
