"""Headers of sandboxes' own: sealed in the store, opened for who gives them to a gateway."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict

from paddock.domain.audit import AuditEntry
from paddock.domain.broker.binding import unusable
from paddock.domain.broker.headers import OwnHeader, checked, hosts_of
from paddock.domain.errors import InvalidRequest, PaddockError, Unsupported
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.ports.vault import Vault
from paddock.services.changes import Changes
from paddock.services.sealed_rows import SealedRows
from paddock.services.secrets import Secrets

_log = logging.getLogger(__name__)


class Headers:
    """What a sandbox has, by its id. Kept sealed, in memory too."""

    def __init__(
        self, store: Store, clock: Clock, *, changes: Changes, secrets: Secrets, vault: Vault
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._secrets = secrets
        self._rows = SealedRows("headers", vault)
        self._kept: Mapping[str, object] = {}
        self._turn = asyncio.Lock()
        self.heard: list[Callable[[SandboxRecord], Awaitable[None]]] = []
        """Told the sandbox that has others now."""
        self.objection: Callable[[SandboxRecord], str] = lambda _sandbox: "there is no gateway"
        """Why nothing could be put into the requests of a sandbox; empty when it can be."""
        self._outlived = True
        """Something may be kept of a sandbox that has gone."""
        secrets.sealed_elsewhere.append(self._rows.reseal)
        store.on_events(self._hear)

    @property
    def sandboxes(self) -> frozenset[str]:
        """Ids of those that have any."""
        return frozenset(self._kept)

    async def check(self, principal: Principal, headers: Sequence[OwnHeader]) -> None:
        """That these could be put. Whoever says where a secret goes can have it sent to a host of
        their own, so that this takes who may bind it."""
        checked(headers)
        for each in headers:
            if each.secret:
                principal.require(Scope.SECRETS_WRITE)
                _, value = await self._secrets.look(principal.team_id, each.secret)
                _check_value(each.secret, value)

    async def put(
        self, principal: Principal, name: str, headers: Sequence[OwnHeader]
    ) -> Sequence[OwnHeader]:
        """In place of all that the sandbox had; from its next request on."""
        principal.require(Scope.SANDBOXES_WRITE)
        await self.check(principal, headers)
        sandbox = await self._changes.living(principal.team_id, name)
        return await self._put(principal, sandbox, checked(headers))

    async def copy(self, principal: Principal, source_id: str, name: str) -> None:
        """A copy of a sandbox has what that has: whoever may copy it may already use it so."""
        principal.require(Scope.SANDBOXES_WRITE)
        if source_id not in self._kept:
            return
        source = await self._changes.find(principal.team_id, source_id)
        sandbox = await self._changes.living(principal.team_id, name)
        await self._put(principal, sandbox, self.of(source))

    async def _put(
        self, principal: Principal, sandbox: SandboxRecord, wanted: Sequence[OwnHeader]
    ) -> Sequence[OwnHeader]:
        if not wanted and sandbox.id not in self._kept:
            return wanted
        if wanted and (why := self.objection(sandbox)):
            raise Unsupported(
                f"no headers can be put into the requests of sandbox {sandbox.name}: {why}",
                remediation="make it on a provider with allowlists, or leave the headers out",
            )
        await self._store.write(lambda tx: self._write(tx, principal, sandbox, wanted))
        await self.load()
        for each in self.heard:
            await each(sandbox)
        return wanted

    def _write(
        self,
        tx: Transaction,
        principal: Principal,
        sandbox: SandboxRecord,
        wanted: Sequence[OwnHeader],
    ) -> None:
        if wanted:
            said = json.dumps([asdict(each) for each in wanted]).encode()
            self._rows.put(tx, sandbox.id, said)
        else:
            self._rows.remove(tx, sandbox.id)
        now, actor = self._clock.wall(), principal.actor
        names = sorted({each.header for each in wanted})
        detail = {"of": "headers", "hosts": hosts_of(wanted), "headers": names}
        kind = EventKind.EGRESS_CHANGED
        tx.events.append([Event(sandbox.team_id, kind, sandbox.id, now, detail, actor)])
        tx.audit.append([AuditEntry(sandbox.team_id, actor, kind, sandbox.id, now, detail)])

    def of(self, sandbox: SandboxRecord) -> Sequence[OwnHeader]:
        """With their values, for who sees to it that they go nowhere where they may not."""
        kept = self._kept.get(sandbox.id)
        if kept is None:
            return ()
        try:
            said = self._rows.open(sandbox.id, kept)
            return tuple(OwnHeader(**each) for each in json.loads(said))
        except (PaddockError, ValueError, TypeError) as error:
            details = {"id": sandbox.id, "why": str(error)}
            _log.error("headers of a sandbox do not open", extra=details)
            return ()

    async def load(self) -> bool:
        """Take up what is kept; what was a sandbox's that has gone is not kept. Whether that
        differs from before."""
        async with self._turn:  # what was read before is never taken for what was read later
            if self._outlived:
                self._outlived = False
                await self._store.write(self._rows.sweep)
            found = await self._store.read(self._rows.all)
            differs, self._kept = found != self._kept, found
        return differs

    def _hear(self, events: Sequence[Event]) -> None:
        ended = (each.subject for each in events if each.kind == EventKind.SANDBOX_DELETED)
        self._outlived = self._outlived or any(each in self._kept for each in ended)


def _check_value(secret: str, value: str) -> None:
    if why := unusable(value):
        raise InvalidRequest(
            f"{secret} cannot be put into a request: {why}",
            remediation="set it to what a server is sent",
        )
