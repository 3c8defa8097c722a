"""Ways into sandboxes by SSH: made, listed, ended, and who is let in by one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from paddock.domain import session as sessions
from paddock.domain import ssh as rules
from paddock.domain import team as people
from paddock.domain.audit import AuditEntry
from paddock.domain.errors import (
    InvalidRequest,
    NotFound,
    PaddockError,
    Unauthenticated,
    Unsupported,
)
from paddock.domain.ids import is_id
from paddock.domain.quarantine import check_open
from paddock.domain.records import SandboxRecord
from paddock.domain.ssh import AccessTerms, SshAccess
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Page, Store, Transaction
from paddock.services.changes import Changes
from paddock.services.once import Once, Repeatable
from paddock.services.stays import find_session, find_token

_PAGE = 500
_USE_NOTED_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class AccessWish:
    """What a new way in shall be."""

    public_key: str = ""
    """Whoever holds its private key is let in; without one a token is made."""
    reveal: bool = False
    """The token may be shown: without that it would be made for nobody."""
    lasts_s: float | None = None
    user: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Somebody who was let in."""

    access: SshAccess
    principal: Principal
    sandbox: SandboxRecord


@dataclass(slots=True)
class Gate:
    """Where the gateway is, as long as it is open."""

    address: tuple[str, int] | None = None
    host_key: str = ""
    """As a known_hosts file has it, without the host."""
    why_closed: str = "it is off"

    def check_open(self) -> int:
        """Its port; Unsupported when there is none."""
        if self.address is not None:
            return self.address[1]
        raise Unsupported(
            f"the SSH gateway is not open: {self.why_closed}",
            remediation="set server.ssh_port to a free port and start the server again",
        )


class SshAccesses:
    """Who may come in by SSH. Each way in is for one sandbox and ends by itself."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        changes: Changes,
        *,
        once: Once,
        anyone: Principal | None = None,
    ) -> None:
        self._store = store
        self._once = once
        self._clock = clock
        self._changes = changes
        self._anyone = anyone

    async def create(
        self, principal: Principal, name: str, wish: AccessWish, key: str = ""
    ) -> tuple[SshAccess, SandboxRecord, str]:
        """The way in, the sandbox, and the token where one was asked for."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)
        if not wish.public_key and not wish.reveal:
            raise InvalidRequest(
                "an access needs a public key, or a token that is shown",
                remediation='send your "public_key", or "reveal": true to see a token this once',
            )
        if sandbox.is_gone:
            raise NotFound(
                f"sandbox {sandbox.name} was deleted", remediation="`paddock ls` shows the others"
            )
        request = Repeatable(principal, key, "ssh.create", (sandbox.id, wish))
        add = partial(self._add, principal, sandbox, wish)
        access, token = await self._once.write(
            request, add, tuple[SshAccess, str], stands=self._stands
        )
        return access, sandbox, token

    def _add(
        self, principal: Principal, sandbox: SandboxRecord, wish: AccessWish, tx: Transaction
    ) -> tuple[str, tuple[SshAccess, str]]:
        now = self._clock.wall()
        token = tx.tokens.get(_by(principal.actor))
        ends = rules.lifetime(wish.lasts_s, now, token.expires_at if token else None)
        terms = AccessTerms(sandbox.team_id, sandbox.id, principal.actor, wish.user, ends)
        presented = ""
        if wish.public_key:
            access = rules.admit_key(terms, wish.public_key, now)
        else:
            access, presented = rules.issue_token(terms, now)
        tx.ssh.add(access)
        detail = {"access": access.id, "proof": access.proof, "expires_at": access.expires_at}
        tx.audit.append([self._changes.entry(principal, sandbox, "ssh.create", detail)])
        return access.id, (access, presented)

    def _stands(self, tx: Transaction, made: tuple[SshAccess, str]) -> bool:
        access = tx.ssh.get(made[0].id)
        return access is not None and access.opens_at(self._clock.wall())

    async def list(self, principal: Principal, name: str, page: Page) -> Sequence[SshAccess]:
        """What there is and was for a sandbox; nothing of it opens anything."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)
        return await self._store.read(lambda tx: tx.ssh.list(sandbox.team_id, sandbox.id, page))

    async def revoke(self, principal: Principal, name: str, access_id: str) -> SshAccess:
        """It lets nobody in any more, and who came in by it is sent away. Repeatable."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)

        def end(tx: Transaction) -> SshAccess:
            access = tx.ssh.get(access_id, sandbox.id)
            if access is None:
                raise NotFound(
                    f"there is no access {access_id[:80]} to sandbox {sandbox.name}",
                    remediation=f"`paddock ssh {sandbox.name} --list` shows those there are",
                )
            return self._end(tx, principal, sandbox, access)

        return await self._store.write(end)

    async def revoke_all(self, principal: Principal, name: str) -> int:
        """Every way into a sandbox; how many there were."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)

        def end(tx: Transaction) -> int:
            alive, after, now = [], "", self._clock.wall()
            while found := tx.ssh.list(sandbox.team_id, sandbox.id, Page(_PAGE, after)):
                alive += [one for one in found if one.opens_at(now)]
                after = found[-1].id
            for access in alive:
                self._end(tx, principal, sandbox, access)
            return len(alive)

        return await self._store.write(end)

    def _end(
        self, tx: Transaction, principal: Principal, sandbox: SandboxRecord, access: SshAccess
    ) -> SshAccess:
        if access.revoked_at is not None:
            return access
        ended = replace(access, revoked_at=self._clock.wall())
        tx.ssh.replace(ended)
        detail = {"access": access.id}
        tx.audit.append([self._changes.entry(principal, sandbox, "ssh.revoke", detail)])
        return ended

    async def by_token(self, presented: str, name: str = "") -> Admitted:
        """Who shows this token; `name` is the sandbox they mean, if they say so."""
        identifier, _, _ = presented.partition(".")
        return await self._store.read(partial(self._of_token, presented, identifier, name))

    def _of_token(self, presented: str, identifier: str, name: str, tx: Transaction) -> Admitted:
        known = tx.ssh.get(identifier) if rules.is_token(presented) else None
        admitted = self._admit(tx, rules.check_token(known, presented))
        if name and name not in (admitted.sandbox.id, admitted.sandbox.name):
            raise Unauthenticated(
                f"this token is not for a sandbox called {name[:80]}",
                remediation=f"it is for {admitted.sandbox.name}",
            )
        return admitted

    async def by_key(self, fingerprint: str, name: str) -> Admitted | None:
        """Who says that they hold this key, which is still to be shown; None for a stranger.

        Unauthenticated when the key did open this sandbox once and does not any more.
        """

        def look(tx: Transaction) -> Admitted | None:
            refusal: PaddockError | None = None
            for access in tx.ssh.with_key(fingerprint):
                sandbox = tx.sandboxes.get(ANY_TEAM, access.sandbox_id)
                if sandbox is None or name not in (sandbox.id, sandbox.name):
                    continue
                try:
                    return self._admit(tx, access)
                except PaddockError as error:
                    refusal = refusal or error
            if refusal is not None:
                raise refusal
            return None

        return await self._store.read(look)

    async def still(self, admitted: Sequence[Admitted]) -> Sequence[PaddockError | None]:
        """Of each, why they may not stay any longer. That the access expired is no reason."""

        def look(tx: Transaction) -> list[PaddockError | None]:
            return [self._why_not(tx, one) for one in admitted]

        return await self._store.read(look)

    def _why_not(self, tx: Transaction, admitted: Admitted) -> PaddockError | None:
        access = tx.ssh.get(admitted.access.id) or admitted.access
        try:
            self._admit(tx, replace(access, expires_at=float("inf")))
        except PaddockError as error:
            return error
        return None

    def _admit(self, tx: Transaction, access: SshAccess) -> Admitted:
        """With whose rights: those that the token has now, not those that it had then."""
        now = self._clock.wall()
        rules.check_valid(access, now)
        sandbox = tx.sandboxes.get(ANY_TEAM, access.sandbox_id)
        if sandbox is None or sandbox.is_gone:
            raise Unauthenticated(
                "the sandbox of this access was deleted", remediation="`paddock ls` shows others"
            )
        principal = self._principal(tx, access, now)
        principal.require(Scope.SANDBOXES_WRITE)
        check_open(sandbox.quarantine, sandbox.name, principal)
        return Admitted(access, principal, sandbox)

    def _principal(self, tx: Transaction, access: SshAccess, now: float) -> Principal:
        if self._anyone is not None and access.actor == self._anyone.actor:
            return self._anyone
        by = _by(access.actor)
        if is_id(by, sessions.SESSION_PREFIX):
            session, holder = find_session(tx, by) or (None, None)
            return sessions.lasting(session, holder, now)
        found = find_token(tx, by)
        if found is None:
            raise Unauthenticated(
                f"access {access.id} was made by {access.actor}, who is nobody here",
                remediation="`paddock ssh NAME` makes a new one",
            )
        return people.standing(*found, now)

    async def note_login(self, admitted: Admitted, peer: str) -> None:
        access, now = admitted.access, self._clock.wall()
        entry = AuditEntry(
            team_id=access.team_id,
            actor=admitted.principal.actor,
            action="ssh.login",
            subject=access.sandbox_id,
            at=now,
            detail={"access": access.id, "proof": access.proof, "from": peer},
        )
        noted = now - (access.used_at or 0) < _USE_NOTED_EVERY_S

        def note(tx: Transaction) -> None:
            tx.audit.append([entry])
            if not noted and (current := tx.ssh.get(access.id)) is not None:
                tx.ssh.replace(replace(current, used_at=now))

        await self._store.write(note)


def _by(actor: str) -> str:
    """The token or the session, of who acts by one."""
    return actor.rpartition("/")[2]
