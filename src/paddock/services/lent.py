"""Values that got into sandboxes: known for as long as something in there may have them, also when
their secrets were changed or deleted since."""

import json
import logging
from collections.abc import Mapping, Sequence

from paddock.domain.broker.lending import kept_values
from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.ports.vault import Vault
from paddock.services.sealed_rows import SealedRows
from paddock.services.secrets import Secrets

_log = logging.getLogger(__name__)
_ENDS = frozenset({EventKind.SANDBOX_DELETED, EventKind.SNAPSHOT_DELETED})


class Lent:
    """By sandbox: each value, and what is kept in its place."""

    def __init__(self, store: Store, vault: Vault, secrets: Secrets) -> None:
        self._store = store
        self._rows = SealedRows("lent", vault)
        self._outlived = True
        """Something may be kept of a sandbox that has gone."""
        secrets.sealed_elsewhere.append(self._rows.reseal)
        store.on_events(self._hear)

    async def of(self, sandbox: SandboxRecord) -> dict[str, str]:
        """Raises what is worth trying again where that cannot be known now."""
        row = await self._store.read(lambda tx: self._rows.get(tx, sandbox.id))
        return self._opened(sandbox.id, row)

    async def keep(self, sandbox: SandboxRecord, values: Mapping[str, str]) -> None:
        """Before they get inside: whatever becomes of their secrets then, they are known."""
        wanted = await self._before(sandbox) | dict(values)
        if not wanted or wanted.items() <= (await self.of(sandbox)).items():
            return

        def write(tx: Transaction) -> None:
            known = self._opened(sandbox.id, self._rows.get(tx, sandbox.id))
            kept, dropped = kept_values(known, wanted)
            self._rows.put(tx, sandbox.id, json.dumps(kept).encode())
            if dropped:
                told = {"id": sandbox.id, "count": dropped}
                _log.warning("values that were lent long ago are not known any more", extra=told)

        await self._store.write(write)

    async def sweep(self) -> None:
        """What was of a sandbox that has gone is not kept."""
        if self._outlived:
            self._outlived = False
            await self._store.write(self._rows.sweep)

    async def _before(self, sandbox: SandboxRecord) -> dict[str, str]:
        """Of the sandbox that it is a copy of, as far as that is still there: on its disk, or in
        its memory, they may be."""
        if not sandbox.parent_id and not sandbox.snapshot_id:
            return {}

        def look(tx: Transaction) -> tuple[str, object | None]:
            kept = tx.snapshots.get(ANY_TEAM, sandbox.snapshot_id) if sandbox.snapshot_id else None
            source = sandbox.parent_id or (kept.sandbox_id if kept else "")
            return source, self._rows.get(tx, source) if source else None

        return self._opened(*await self._store.read(look))

    def _opened(self, sandbox_id: str, row: object | None) -> dict[str, str]:
        if row is None:
            return {}
        try:
            return dict(json.loads(self._rows.open(sandbox_id, row)))
        except (PaddockError, ValueError) as error:
            if isinstance(error, PaddockError) and error.retryable:
                raise
            _log.error("lent values do not open", extra={"id": sandbox_id, "why": str(error)})
            return {}

    def _hear(self, events: Sequence[Event]) -> None:
        ended = (each.kind in _ENDS for each in events)
        self._outlived = self._outlived or any(ended)
