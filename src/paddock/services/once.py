"""Requests that come again with their key: done once, and answered as they were the first time."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.ids import new_id
from paddock.domain.records import SandboxRecord
from paddock.domain.repetition import ANSWER_PREFIX, KeptAnswer
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.ports.vault import Vault

_log = logging.getLogger(__name__)
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
        """Of who asks as well, and by what: an answer that shows a secret is for no other token
        that has the key, not even for a narrower one of the same person."""
        who = self.principal
        return fingerprint_of(self.verb, who.actor, who.scopes, self.wish)


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
        *,
        stands: Callable[[Transaction, T], bool],
    ) -> T:
        """What `work` answers, or has answered to the same request before. It gives the id of what
        it made with it. `stands` looks at an answer of before: it refuses who may not have it any
        more, and says whether it still holds.

        Conflict when the key was used for another request, or for what holds no longer.
        """
        if not request.key:
            return (await self._store.write(work))[1]
        team_id, fingerprint = request.principal.team_id, request.fingerprint

        def once(tx: Transaction) -> T:
            mine, now = new_id(ANSWER_PREFIX), self._clock.wall()
            claimed = tx.keys.claim(
                team_id, request.key, fingerprint=fingerprint, object_id=mine, now=now
            )
            if claimed != mine:
                earlier = self._opened(tx, request, answer)
                if stands(tx, earlier):
                    return earlier
                raise _over(request.key, claimed)
            object_id, made = work(tx)
            kept = KeptAnswer(team_id, request.key, fingerprint, object_id)
            tx.keys.keep(_sealed(self._vault, kept, msgspec.json.encode(made)))
            return made

        return await self._store.write(once)

    def _opened(self, tx: Transaction, request: Repeatable, answer: type[T]) -> T:
        kept = tx.keys.answer(request.principal.team_id, request.key)
        assert kept is not None, "a key is claimed together with its answer"
        return msgspec.json.decode(self._vault.open(kept.sealed, kept.associated), type=answer)


def fingerprint_of(*asked: object) -> str:
    """The same for what means the same, in whatever order its names and sets were written."""
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


def reseal_answers(tx: Transaction, vault: Vault, key_id: str) -> int:
    """Some of those that another key seals; how many there were.

    One that does not open helps nobody and would be in the way for ever: it goes with its key.
    """
    found = tx.keys.sealed_otherwise(key_id, _AT_ONCE)
    for kept in found:
        try:
            value = vault.open(kept.sealed, kept.associated)
        except PaddockError as error:
            details = {"team": kept.team_id, "of": kept.object_id, "error": error.message}
            _log.warning("kept answer did not open and was dropped", extra=details)
            tx.keys.drop(kept.team_id, kept.key)
        else:
            tx.keys.keep(_sealed(vault, kept, value))
    return len(found)


def _sealed(vault: Vault, kept: KeptAnswer, value: bytes) -> KeptAnswer:
    sealed = vault.seal(value, kept.associated)
    return replace(kept, sealed=sealed.text, key_id=sealed.key_id)


def _over(key: str, object_id: str) -> Conflict:
    return Conflict(
        f"what the idempotency key {key[:80]!r} made ({object_id}) was removed, revoked or used, "
        "or has expired",
        remediation="use another key to make another",
    )


def on_record(earlier: SandboxRecord | None, sandbox_id: str) -> SandboxRecord:
    """What the same request has made before."""
    if earlier is None:
        raise Conflict(
            f"this request has made sandbox {sandbox_id}, which is not on record any more",
            remediation="use a new idempotency key to make another",
        )
    return earlier
