"""Who may see what a sandbox serves, and waking a sandbox that somebody comes to see."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from paddock.domain import preview
from paddock.domain.egress import doors
from paddock.domain.errors import LimitExceeded, NotFound, PaddockError, Unauthenticated
from paddock.domain.event import Event, EventKind
from paddock.domain.preview import PreviewLink
from paddock.domain.quarantine import check_open, closed
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.guest_client.host import Port
from paddock.ports.clock import Clock
from paddock.ports.dialer import Dialer
from paddock.ports.provider import Endpoint, Ref
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.access import Access
from paddock.services.activity import Activity
from paddock.services.changes import Changes
from paddock.services.guests import Guests
from paddock.services.networks import is_fence
from paddock.services.once import Once, Repeatable
from paddock.services.providers import Providers
from paddock.services.recall import Recall
from paddock.services.sandboxes import Sandboxes
from paddock.services.system import system

_log = logging.getLogger(__name__)
_ASLEEP = (SandboxState.STOPPED, SandboxState.PAUSED, SandboxState.ARCHIVED)
_FAILURE_SHOWN_S = 10.0
_LONGEST_SHOWN_S = 3600.0
_MOST_MACHINES = 1000


@dataclass(frozen=True, slots=True)
class Visitor:
    """What somebody who comes to see a port has to show."""

    link: str = ""
    """From the address they came by."""
    cookie: str = ""
    """That we gave them when they came by a link."""
    token: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in to which port, and by what: they may stay as long as that holds."""

    sandbox_id: str
    port: int
    by: Principal | PreviewLink | None = None
    """None: it is public."""


class Previews:
    """Decides over visits; does not carry them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        changes: Changes,
        recall: Recall,
        sandboxes: Sandboxes,
        providers: Providers,
        guests: Guests,
        activity: Activity,
        access: Access,
        once: Once,
        dial: Dialer,
        key: bytes,
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._recall = recall
        self._sandboxes = sandboxes
        self._providers = providers
        self._guests = guests
        self._activity = activity
        self._access = access
        self._once = once
        self._dial = dial
        self._key = key
        self._endpoints: dict[str, dict[int, Endpoint]] = {}
        """By machine: a sandbox that was started again is at another place."""
        self._waking: dict[str, asyncio.Task[None]] = {}
        self._looking: dict[str, asyncio.Task[SandboxRecord]] = {}
        self._failures: dict[str, tuple[float, PaddockError]] = {}

    async def find(self, sandbox_id: str) -> SandboxRecord:
        """The sandbox of a preview's address, in any state; NotFound when there never was one."""
        found = await self._recall.get(sandbox_id)
        if found is None or found.id != sandbox_id:
            raise _no_preview()
        return found

    async def admit(self, sandbox: SandboxRecord, port: int, visitor: Visitor) -> Admitted:
        """Unauthenticated when the port is private and nothing shown opens it; Forbidden when the
        sandbox was set aside, for all but an admin with a token."""
        opened = self._without_token(sandbox, port, visitor)
        if opened is not None and sandbox.quarantine is None:
            return opened
        if visitor.token:
            principal = await self._access.authenticate(visitor.token)
            principal.require(Scope.SANDBOXES_READ)
            if principal.team_id != sandbox.team_id:
                raise _no_preview()
            check_open(sandbox.quarantine, sandbox.name, principal)
            return Admitted(sandbox.id, port, principal)
        if opened is not None:
            raise closed()
        if visitor.link:
            preview.read(visitor.link, self._key, self._clock.wall())  # says what is wrong with it
        raise _private()

    def _without_token(
        self, sandbox: SandboxRecord, port: int, visitor: Visitor
    ) -> Admitted | None:
        if port in sandbox.public_ports:
            return Admitted(sandbox.id, port)
        for word in (visitor.link, visitor.cookie):
            if word and (link := self._opened_by(word, sandbox, port)):
                return Admitted(sandbox.id, port, link)
        return None

    def _opened_by(self, word: str, sandbox: SandboxRecord, port: int) -> PreviewLink | None:
        try:
            link = preview.read(word, self._key, self._clock.wall())
        except (Unauthenticated, ValueError):
            return None
        wanted = (sandbox.id, port, sandbox.link_generation)
        return link if (link.sandbox_id, link.port, link.generation) == wanted else None

    async def share(
        self, principal: Principal, name: str, port: int, *, lasts_s: float, key: str = ""
    ) -> tuple[PreviewLink, str]:
        """A link that opens a private port to whoever has it."""
        principal.require(Scope.SANDBOXES_WRITE)
        preview.check_lifetime(lasts_s)
        sandbox = await self._changes.living(principal.team_id, name)
        check_open(sandbox.quarantine, sandbox.name, principal)
        now = self._clock.wall()
        link = PreviewLink(sandbox.id, port, int(now + lasts_s), sandbox.link_generation)
        data = {"port": port, "expires_at": link.expires_at, "name": sandbox.name}
        kind = EventKind.PREVIEW_SHARED
        told = {**data, **app_in(sandbox)}
        event = Event(sandbox.team_id, kind, sandbox.id, now, told, principal.actor)
        entry = self._changes.entry(principal, sandbox, "preview.share", {"port": port})

        def write(tx: Transaction) -> tuple[str, PreviewLink]:
            tx.events.append([event])
            tx.audit.append([entry])
            return sandbox.id, link

        request = Repeatable(principal, key, "preview.share", (sandbox.id, port, lasts_s))
        # The link's word is its content, signed: the same link has the same one.
        link = await self._once.write(request, write, PreviewLink, stands=self._stands)
        return link, preview.sign(link, self._key)

    def _stands(self, tx: Transaction, link: PreviewLink) -> bool:
        sandbox = tx.sandboxes.get(ANY_TEAM, link.sandbox_id)
        if sandbox is None or sandbox.is_gone or link.generation != sandbox.link_generation:
            return False
        return self._clock.wall() < link.expires_at

    async def revoke_links(self, principal: Principal, name: str) -> SandboxRecord:
        """Every link that was ever shared ends, and who is here by one goes."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.living(principal.team_id, name)
        changed = await self._changes.apply(
            sandbox.id,
            lambda current: replace(current, link_generation=current.link_generation + 1),
            principal,
            action="preview.revoke",
        )
        await self._access.stays.look()
        return changed

    def wake(self, sandbox: SandboxRecord) -> PaddockError | None:
        """Begin to start it, once for all who wait; why the last attempt failed, if it did."""
        if (failed := self._failed(sandbox.id)) is not None:
            return failed
        if sandbox.state in _ASLEEP and sandbox.id not in self._waking:
            task = asyncio.create_task(self._wake(sandbox), name=f"wake {sandbox.id}")
            self._waking[sandbox.id] = task
            task.add_done_callback(lambda _: self._waking.pop(sandbox.id, None))
        return None

    def _failed(self, sandbox_id: str) -> PaddockError | None:
        """As long as it is shown; a limit until it ends, with the time that is left."""
        at, error = self._failures.get(sandbox_id, (0.0, None))
        if error is None:
            return None
        passed_s = self._clock.now() - at
        if not isinstance(error, LimitExceeded) or error.retry_after_s is None:
            return error if passed_s < _FAILURE_SHOWN_S else None
        left_s = min(error.retry_after_s, _LONGEST_SHOWN_S) - passed_s
        if not left_s > 0:  # nor if it is no number
            return None
        return LimitExceeded(error.message, remediation=error.remediation, retry_after_s=left_s)

    async def _wake(self, sandbox: SandboxRecord) -> None:
        principal = system(sandbox.team_id, "preview")
        try:
            if sandbox.state is SandboxState.PAUSED:
                await self._sandboxes.resume(principal, sandbox.id)
            else:
                await self._sandboxes.start(principal, sandbox.id)
            self._failures.pop(sandbox.id, None)
        except PaddockError as error:
            _log.warning("sandbox did not wake", extra={"id": sandbox.id, "error": error.message})
            if len(self._failures) >= _MOST_MACHINES:
                self._failures.clear()
            self._failures[sandbox.id] = (self._clock.now(), error)

    async def connect(self, sandbox: SandboxRecord, port: int) -> socket.socket:
        """A connection to the port inside; what is the gateway's is nobody's to see."""
        if is_fence(sandbox, port, doors.ADDRESS):
            raise ConnectionRefusedError(f"port {port} of {sandbox.id} is the gateway's")
        machine = f"{sandbox.ref} {sandbox.started_at}"
        if machine not in self._endpoints and len(self._endpoints) >= _MOST_MACHINES:
            self._endpoints.clear()
        ports = self._endpoints.setdefault(machine, {})
        endpoint = ports.get(port)
        if endpoint is None:
            provider = self._providers.get(sandbox.provider)
            endpoint = await provider.endpoint(Ref(sandbox.provider, sandbox.ref), port)
            ports[port] = endpoint
        return await self._dial(endpoint)

    async def look_again(self, sandbox: SandboxRecord) -> SandboxRecord:
        """What has become of one that does not answer: looked at once for all who ask."""
        self._endpoints.pop(f"{sandbox.ref} {sandbox.started_at}", None)
        looking = self._looking.get(sandbox.id)
        if looking is None:
            work = self._sandboxes.refresh(system(sandbox.team_id, "preview"), sandbox)
            looking = asyncio.create_task(work, name=f"look at {sandbox.id}")
            self._looking[sandbox.id] = looking
            looking.add_done_callback(lambda done: self._looked(sandbox.id, done))
        return await asyncio.shield(looking)

    def _looked(self, sandbox_id: str, looking: "asyncio.Task[SandboxRecord]") -> None:
        self._looking.pop(sandbox_id, None)
        if not looking.cancelled() and (error := looking.exception()) is not None:
            # Whoever asked may have left, and then nobody would hear of it.
            _log.warning("not looked at", extra={"id": sandbox_id, "error": str(error)})

    async def ports(self, sandbox: SandboxRecord) -> Sequence[Port]:
        """Where programs inside listen."""
        return [
            each
            for each in await (await self._guests.of(sandbox)).ports()
            if not is_fence(sandbox, each.port, each.address)
        ]

    def visiting(self, sandbox_id: str) -> AbstractContextManager[None]:
        return self._activity.working(sandbox_id, "preview")

    @contextmanager
    def staying(self, admitted: Admitted, end: Callable[[PaddockError], None]) -> Iterator[None]:
        """While this is open, `end` is called once if what let them in ends."""
        stays, by = self._access.stays, admitted.by
        token = stays.staying(by, end) if isinstance(by, Principal) else nullcontext()
        with token, stays.staying_while(admitted, partial(_check_open, admitted), end):
            yield

    async def aclose(self) -> None:
        tasks = [*self._waking.values(), *self._looking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _check_open(admitted: Admitted, tx: Transaction, now: float) -> None:
    sandbox, link = tx.sandboxes.get(ANY_TEAM, admitted.sandbox_id), admitted.by
    if sandbox is None:
        return  # its connections end with it
    if isinstance(link, Principal):
        check_open(sandbox.quarantine, sandbox.name, link)
        return
    if sandbox.quarantine is not None:
        raise closed()
    if link is None:
        if admitted.port not in sandbox.public_ports:
            raise _private()
        return
    preview.check_lasts(link, now)
    if link.generation != sandbox.link_generation:
        raise Unauthenticated(
            "this link was revoked", remediation="ask whoever shared it for a new one"
        )


def _private() -> Unauthenticated:
    return Unauthenticated(
        "this preview is private",
        remediation="open it by a link: `paddock open NAME PORT`, or send X-Paddock-Token",
    )


def _no_preview() -> NotFound:
    """The same whether there never was one or it is another team's: nobody can tell which."""
    return NotFound(
        "there is no such preview",
        remediation="check the address; `paddock ports NAME` shows a sandbox's previews",
    )
