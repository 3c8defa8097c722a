"""What is kept of sandboxes and nobody is to read: sealed, one row each, gone with its sandbox."""

import logging
from collections.abc import Mapping

from paddock.domain.errors import Broken, PaddockError
from paddock.ports.store import ANY_TEAM, Page, Transaction
from paddock.ports.vault import Vault

_log = logging.getLogger(__name__)


class SealedRows:
    """Of one kind. A row opens for its own sandbox only."""

    def __init__(self, kind: str, vault: Vault) -> None:
        self._kind = kind
        self._vault = vault

    def all(self, tx: Transaction) -> Mapping[str, object]:
        """Sealed, by the sandbox's id."""
        prefix = self._name("")
        return {name.removeprefix(prefix): row for name, row in tx.values.all(prefix).items()}

    def get(self, tx: Transaction, sandbox_id: str) -> object | None:
        return tx.values.get(self._name(sandbox_id))

    def put(self, tx: Transaction, sandbox_id: str, said: bytes) -> None:
        sealed = self._vault.seal(said, self._place(sandbox_id))
        row = {"sealed": sealed.text, "key_id": sealed.key_id}
        tx.values.put(self._name(sandbox_id), row)

    def remove(self, tx: Transaction, sandbox_id: str) -> None:
        tx.values.remove(self._name(sandbox_id))

    def open(self, sandbox_id: str, row: object) -> bytes:
        """Raises what the vault does."""
        if not isinstance(row, dict) or not isinstance(row.get("sealed"), str):
            raise Broken(f"what is kept as {self._name(sandbox_id)} was not put there by Paddock")
        return self._vault.open(row["sealed"], self._place(sandbox_id))

    def reseal(self, tx: Transaction, key_id: str) -> None:
        """With the key that seals now, what another one has sealed. What does not open any more
        is let go: nobody will ever open it."""
        for sandbox_id, row in self.all(tx).items():
            if isinstance(row, dict) and row.get("key_id") == key_id:
                continue
            try:
                self.put(tx, sandbox_id, self.open(sandbox_id, row))
            except PaddockError as error:
                self.remove(tx, sandbox_id)
                told = {"of": self._name(sandbox_id), "why": error.message}
                _log.error("what is sealed does not open, and is not kept", extra=told)

    def sweep(self, tx: Transaction) -> None:
        """What was of sandboxes that have gone, and their snapshots with them."""
        for sandbox_id in self.all(tx):
            found = tx.sandboxes.get(ANY_TEAM, sandbox_id)
            is_gone = found is None or found.is_gone
            if is_gone and not tx.snapshots.list(ANY_TEAM, sandbox_id, Page(limit=1)):
                self.remove(tx, sandbox_id)

    def _name(self, sandbox_id: str) -> str:
        return f"{self._kind}.{sandbox_id}"

    def _place(self, sandbox_id: str) -> bytes:
        """What the sealed text is bound to."""
        return f"{self._kind}|{sandbox_id}".encode()
