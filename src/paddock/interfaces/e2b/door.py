"""The way of sandbox traffic: past the API, straight to the guest or to a program's port."""

import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import TypeVar
from urllib.parse import urlsplit

from paddock.domain.errors import NotFound, PaddockError
from paddock.domain.guest import GuestAddress
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal
from paddock.interfaces.e2b import guards, interpreter
from paddock.interfaces.e2b.addresses import (
    GUEST_PORT,
    Address,
    FileUrl,
    address_of,
    file_url_of,
    unclear,
)
from paddock.interfaces.e2b.checked import START
from paddock.interfaces.e2b.errors import text
from paddock.interfaces.e2b.guards import said
from paddock.interfaces.e2b.ids import shown
from paddock.interfaces.e2b.marks import Mark, mark_of
from paddock.interfaces.e2b.network import https_ports
from paddock.interfaces.e2b.signatures import fits, is_expired, is_signature
from paddock.interfaces.preview import Answer, Edits, Reply, RequestHead, Resolve, Upstream
from paddock.interfaces.preview.contract import Visit
from paddock.services.passages import Passages
from paddock.services.visits import Visit as SandboxVisit

T = TypeVar("T")
_ROUTING = frozenset({b"e2b-sandbox-id", b"e2b-sandbox-port"})
_FILES_AS_ROOT = (b"X-Paddock-Files-As-Root", b"true")
_NOT_FOUND = "The sandbox was not found"
_Meanwhile = tuple[
    Callable[[], AbstractContextManager[None]], Callable[[Visit], AbstractContextManager[None]]
]
"""An upstream's `activity` and `staying`."""


class SandboxDoor:
    """A front's `resolve` for requests to sandboxes; all others are somebody else's."""

    def __init__(
        self,
        passages: Passages,
        domain: str,
        otherwise: Resolve,
        api: Callable[[], Awaitable[socket.socket]],
    ) -> None:
        self._passages = passages
        self._domain = domain
        self._otherwise = otherwise
        self._api = Upstream("api", api)
        self._api_host = f"api.{domain.lower()}"

    def __call__(self, head: RequestHead) -> Answer | Awaitable[Answer]:
        """The control API has a name of its own in the domain of the sandboxes."""
        if head.host == self._api_host:
            return self._api
        address = address_of(head, self._domain)
        if address is not None and not address.is_port:
            return said(400, "a sandbox's port is a number from 1 to 65535")
        if address is not None:
            return self._enter(head, address)
        if (url := file_url_of(head)) is not None and head.get(guards.TOKEN) is None:
            return self._find_file(head, url)
        return self._otherwise(head)

    async def _enter(self, head: RequestHead, address: Address) -> Answer:
        since = self._passages.visits.moment()
        sandbox = await self._find(address.sandbox_id)
        if sandbox is None:
            return _gone(address.sandbox_id)
        is_guest = address.port == GUEST_PORT
        if is_guest:
            admitted = await guards.to_guest(head, sandbox, self._passages, time.time())
        else:
            admitted = await guards.to_port(head, sandbox, address.port, self._passages)
        if not isinstance(admitted, Reply):
            admitted = guards.if_closed(sandbox) or admitted
        if isinstance(admitted, Reply):
            return admitted
        if sandbox.state is not SandboxState.RUNNING:
            if not _wakes(sandbox) or sandbox.state is not SandboxState.PAUSED:
                return _gone(sandbox.id)  # what has to boot is for an explicit connect
            try:
                sandbox = await self._passages.wake(sandbox)
            except PaddockError as error:
                return _unreachable(sandbox.id, text(error))
            since = self._passages.visits.moment()
        meanwhile = self._meanwhile(sandbox, admitted, since)
        if is_guest:
            return await self._to_guest(head, sandbox, meanwhile)
        return self._to_port(sandbox, address.port, meanwhile)

    async def _find(self, sandbox_id: str) -> SandboxRecord | None:
        try:
            found = await self._passages.find(sandbox_id)
        except NotFound:
            return None
        over = found.state is SandboxState.RUNNING and self._passages.is_over(found)
        return None if over or found.is_gone else found

    async def _find_file(self, head: RequestHead, url: FileUrl) -> Answer:
        """Whose signature it is: at a shared address nothing else says which sandbox is meant. What
        can be nobody's is not looked for."""
        if why := unclear(head):
            return said(400, why)
        if not is_signature(url) or is_expired(url, time.time()):
            wrong = "signature is already expired" if is_signature(url) else "invalid signature"
            return said(401, wrong)
        async for sandbox in self._passages.present():
            tokens = self._passages.holders.tokens_of(sandbox)
            if any(fits(url, head.method, token) for token in tokens):
                return await self._enter(head, Address(sandbox.id, GUEST_PORT))
        return said(401, "invalid signature")

    async def _to_guest(
        self, head: RequestHead, sandbox: SandboxRecord, meanwhile: _Meanwhile
    ) -> Answer:
        activity, staying = meanwhile
        if head.path == START and self._passages.is_limited(sandbox):
            # Which reads the command before it passes it on.
            return replace(self._api, activity=activity, staying=staying)
        try:
            address = await self._reach(sandbox, self._passages.address)
        except PaddockError as error:
            return _unreachable(sandbox.id, text(error))

        async def refused(_error: OSError | PaddockError) -> Reply:
            return _unreachable(sandbox.id, "its agent does not answer")

        secure = address.url.startswith("https:")
        return Upstream(
            key=("guest", sandbox.id, sandbox.started_at),
            dial=lambda: self._passages.to_guest(address),
            request=_for_guest(address),
            activity=activity,
            staying=staying,
            on_refused=refused,
            tls=ssl.create_default_context() if secure else None,
            server_name=urlsplit(address.url).hostname if secure else None,
        )

    def _to_port(self, sandbox: SandboxRecord, port: int, meanwhile: _Meanwhile) -> Upstream:
        activity, staying = meanwhile

        async def refused(error: OSError | PaddockError) -> Reply:
            if isinstance(error, PaddockError):
                return _unreachable(sandbox.id, text(error))
            message = "The sandbox is running but port is not open"
            return said(502, message, sandboxId=shown(sandbox.id), port=port)

        return Upstream(
            key=("port", sandbox.id, sandbox.started_at, port),
            dial=lambda: self._reach(sandbox, lambda it: self._passages.to_port(it, port)),
            request=_for_port(sandbox, port),
            activity=activity,
            staying=staying,
            on_refused=refused,
            tls=_unverified() if port in https_ports(sandbox) else None,
            server_name="localhost",
        )

    async def _reach(
        self, sandbox: SandboxRecord, ask: Callable[[SandboxRecord], Awaitable[T]]
    ) -> T:
        """Once more after a resume, where it is being paused and traffic wakes it."""
        try:
            return await ask(sandbox)
        except PaddockError:
            if not _wakes(sandbox):
                raise
            paused = replace(sandbox, state=SandboxState.PAUSED)
            return await ask(await self._passages.wake(paused))

    def _meanwhile(
        self, sandbox: SandboxRecord, holder: Principal | None, since: int
    ) -> _Meanwhile:
        """What holds as long as a visit lasts: the sandbox is at work, and who is there goes when
        it does not run any more, or when what let them in ends."""

        @contextmanager
        def staying(request: Visit) -> Iterator[None]:
            def gone() -> None:
                request.cut(502, "sandbox_gone", _NOT_FOUND, "")

            def ended(error: PaddockError) -> None:
                request.cut(401, error.code, error.message, error.remediation)

            # A stream that has begun does not keep a sandbox awake for ever.
            visit = SandboxVisit(
                sandbox, since, gone, may_wake=lambda: _wakes(sandbox) and not request.is_answered
            )
            lasting = self._passages.holders.staying(holder, ended) if holder else nullcontext()
            with self._passages.visits.visiting(visit), lasting:
                yield

        return lambda: self._passages.working(sandbox.id), staying


def _wakes(sandbox: SandboxRecord) -> bool:
    """Whether traffic resumes it."""
    return mark_of(sandbox, Mark.AUTO_RESUME) == "true"


def _for_guest(address: GuestAddress) -> Edits:
    """What lets a client in is not told inside; what lets us in is added."""
    put = [(name.encode(), value.encode()) for name, value in address.headers]
    put.append(_FILES_AS_ROOT)
    if address.token:
        put.append((b"X-Access-Token", address.token.encode()))
    return Edits(put=tuple(put), remove=_ROUTING | {guards.TOKEN})


def _for_port(sandbox: SandboxRecord, port: int) -> Edits:
    masked = mark_of(sandbox, Mark.MASKED_HOST).replace("${PORT}", str(port))
    put = ((b"Host", masked.encode("latin-1", "replace")),) if masked else ()
    # A program may have a header of that name of its own.
    ours = {guards.TRAFFIC, guards.TOKEN} if port == interpreter.PORT else {guards.TRAFFIC}
    return Edits(put=put, remove=_ROUTING | ours)


@cache
def _unverified() -> ssl.SSLContext:
    """For programs inside, whose certificates are their own: nobody is between us and them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _gone(sandbox_id: str) -> Reply:
    return said(502, _NOT_FOUND, sandboxId=shown(sandbox_id))


def _unreachable(sandbox_id: str, why: str) -> Reply:
    return said(502, f"The sandbox cannot be reached: {why}", sandboxId=shown(sandbox_id))
