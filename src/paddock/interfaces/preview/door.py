"""Where each request that reaches the front goes: to the API, to a sandbox, or nowhere, and why."""

import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from math import ceil
from urllib.parse import unquote_plus

from paddock.domain.errors import LimitExceeded, NotFound, PaddockError, Unauthenticated
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal
from paddock.interfaces.preview.contract import Answer, Edits, Reply, RequestHead, Upstream, Visit
from paddock.interfaces.preview.hosts import PreviewHost, is_below, parse_preview_host, preview_host
from paddock.interfaces.preview.pages import Link, Pages, Trouble
from paddock.services.previews import Admitted, Previews, Visitor

COOKIE = "paddock_preview"
PARAMETER = "paddock_link"
TOKEN_HEADER = b"x-paddock-token"
_OURS = frozenset({TOKEN_HEADER})
_ASK = "ask whoever gave you the address"


class Door:
    """The front's `resolve`."""

    def __init__(
        self,
        previews: Previews,
        domain: str,
        api: Callable[[], Awaitable[socket.socket]],
        *,
        own_host: str = "",
        pages: Pages | None = None,
    ) -> None:
        self._previews = previews
        self._domain = domain
        self._own_host = own_host
        self._api = Upstream("api", api)
        self._pages = pages or Pages()

    def __call__(self, head: RequestHead) -> Answer | Awaitable[Answer]:
        """The API for every host that is not below the previews' domain, and for its own."""
        if not is_below(head.host, self._domain) or head.host == self._own_host:
            return self._api
        host = parse_preview_host(head.host, self._domain)
        return self._visit(head, host) if host else self._refused(head, _no_host(self._domain))

    async def _visit(self, head: RequestHead, host: PreviewHost) -> Answer:
        try:
            sandbox = await self._previews.find(host.sandbox)
            visitor = _visitor(head)
            admitted = await self._previews.admit(sandbox, host.port, visitor)
        except PaddockError as error:
            return self._refused(head, error)
        if visitor.link and head.method in ("GET", "HEAD"):
            return _entrance(head, visitor.link)
        if sandbox.state is not SandboxState.RUNNING:
            return self._not_running(head, sandbox, admitted)
        upstream = self._upstream(head, sandbox, admitted)
        return replace(upstream, staying=self._stay(admitted))

    def _stay(self, admitted: Admitted) -> Callable[[Visit], AbstractContextManager[None]]:
        def staying(visit: Visit) -> AbstractContextManager[None]:
            def end(error: PaddockError) -> None:
                visit.cut(_status(error), error.code, error.message, error.remediation)

            return self._previews.staying(admitted, end)

        return staying

    def _upstream(self, head: RequestHead, sandbox: SandboxRecord, admitted: Admitted) -> Upstream:
        port = admitted.port

        async def refused(error: OSError | PaddockError) -> Reply:
            if isinstance(error, PaddockError):
                return await self._unreachable(head, sandbox, admitted, error)
            return await self._nobody_listens(head, sandbox, admitted)

        return Upstream(
            key=(sandbox.id, sandbox.started_at, port),
            dial=lambda: self._previews.connect(sandbox, port),
            request=_edits(head),
            activity=lambda: self._previews.visiting(sandbox.id),
            on_refused=refused,
        )

    def _refused(self, head: RequestHead, error: PaddockError) -> Reply:
        status = _status(error)
        title = {401: "Private preview", 404: "No such preview"}.get(status, "Not for you")
        return self._pages.error(
            head, Trouble(status, error.code, error.message, error.remediation, title)
        )

    def _not_running(self, head: RequestHead, sandbox: SandboxRecord, admitted: Admitted) -> Reply:
        """Why it does not is told only to who has come with a token of the team."""
        is_known = isinstance(admitted.by, Principal)
        if sandbox.is_gone:
            trouble = Trouble(
                410,
                "gone",
                "this sandbox was deleted",
                "ask whoever gave you the address for another; `paddock ls` shows what there is",
                "Gone",
            )
            return self._pages.error(head, trouble)
        if sandbox.state is SandboxState.FAILED:
            why = f": {sandbox.detail or sandbox.reason}" if is_known else ""
            trouble = Trouble(502, "failed", f"the sandbox failed{why}", "" if is_known else _ASK)
            return self._pages.error(head, trouble)
        if (failed := self._previews.wake(sandbox)) is not None:
            if _is_passing(failed):
                return self._later(head, admitted, failed)
            told = f"it did not wake: {failed.message}", failed.remediation
            trouble = Trouble(502, failed.code, *(told if is_known else ("it did not wake", _ASK)))
            return self._pages.error(head, trouble)
        waiting = Trouble(
            503,
            "waking",
            f"{sandbox.name} is being woken",
            "ask again in a second, as Retry-After says",
            title="Waking up",
            retryable=True,
            retry_after_s=1,
        )
        return self._pages.waiting(head, waiting)

    async def _unreachable(
        self, head: RequestHead, sandbox: SandboxRecord, admitted: Admitted, error: PaddockError
    ) -> Reply:
        """Its machine may have ended without anybody having noticed: then this is told, and known
        from now on. A provider that takes no more requests is not asked about that either."""
        if _is_passing(error):
            return self._later(head, admitted, error)
        with suppress(PaddockError):
            now = await self._previews.look_again(sandbox)
            if now.state is not SandboxState.RUNNING:
                return self._not_running(head, now, admitted)
        told = "the sandbox cannot be reached", _ASK
        if isinstance(admitted.by, Principal):
            told = f"the sandbox cannot be reached: {error.message}", error.remediation
        wait_s = ceil(error.retry_after_s or 1) if error.retryable else None
        status = 503 if error.retryable else 502
        trouble = Trouble(
            status, error.code, *told, retryable=error.retryable, retry_after_s=wait_s
        )
        return self._pages.error(head, trouble)

    def _later(self, head: RequestHead, admitted: Admitted, error: PaddockError) -> Reply:
        """Nothing is wrong with the sandbox, nor with what the visitor did."""
        wait_s = max(1, ceil(error.retry_after_s or 0))
        told = error.message
        if not isinstance(admitted.by, Principal):
            told = "where this sandbox runs, no more requests are allowed now"
        trouble = Trouble(
            429,
            error.code,
            told,
            f"try again in {wait_s} s",
            title="Not now",
            retryable=True,
            retry_after_s=wait_s,
        )
        return self._pages.error(head, trouble)

    async def _nobody_listens(
        self, head: RequestHead, sandbox: SandboxRecord, admitted: Admitted
    ) -> Reply:
        port = admitted.port
        try:
            listening = sorted({each.port for each in await self._previews.ports(sandbox)})
        except PaddockError as error:
            return await self._unreachable(head, sandbox, admitted, error)
        outside = head.authority.rpartition(":")[2] if ":" in head.authority else ""
        suffix = f":{outside}" if outside else ""
        links = [
            Link(
                f"port {each}",
                f"{head.scheme}://{preview_host(each, sandbox.id, self._domain)}{suffix}/",
            )
            for each in listening
        ]
        trouble = Trouble(
            502,
            "nothing_listens",
            f"nothing listens on port {port} of {sandbox.name}",
            "start your server there, or open one of the ports that are served",
            title="Nothing listens here",
            links=links,
            links_label="Served by this sandbox:",
            retryable=True,
        )
        return self._pages.error(head, trouble)


def _status(error: PaddockError) -> int:
    """Of who is not let in."""
    if isinstance(error, Unauthenticated):
        return 401
    return 404 if isinstance(error, NotFound) else 403


def _is_passing(error: PaddockError) -> bool:
    """A limit on requests, of which it is known when it ends; others do not end by waiting."""
    return isinstance(error, LimitExceeded) and error.retry_after_s is not None


def _no_host(domain: str) -> NotFound:
    return NotFound(
        "there is no such preview: its host name says no port and sandbox",
        remediation=f"write it as PORT-SANDBOX.{domain}, with a port from 1 to 65535",
    )


def _visitor(head: RequestHead) -> Visitor:
    link, _ = _taken_out(head.target)
    token = (head.get(TOKEN_HEADER) or b"").decode("latin-1")
    return Visitor(link, _cookie(head), token)


def _cookies(head: RequestHead) -> list[tuple[bytes, bytes]]:
    """Every cookie with its name, as RFC 6265 separates them.

    One function both finds and removes our cookie: with two parsers, one could miss a cookie that
    the other accepts.
    """
    lines = [value for name, value in head.headers if name.lower() == b"cookie"]
    pairs = [pair.strip() for line in lines for pair in line.split(b";")]
    return [(pair.partition(b"=")[0].strip(), pair) for pair in pairs if pair]


def _cookie(head: RequestHead) -> str:
    ours = [pair for name, pair in _cookies(head) if name == COOKIE.encode()]
    return ours[0].partition(b"=")[2].strip().decode("latin-1") if ours else ""


def _taken_out(target: bytes) -> tuple[str, bytes]:
    """The link in an address, and the address without it."""
    path, _, query = target.partition(b"?")
    if not query:
        return "", target
    kept, links = [], []
    for part in query.split(b"&"):
        name, _, value = part.decode("latin-1").partition("=")
        if unquote_plus(name) == PARAMETER:
            links.append(unquote_plus(value))
        else:
            kept.append(part)
    if not links:
        return "", target
    link = next((each for each in links if each), "")
    return link, path + b"?" + b"&".join(kept) if kept else path


def _entrance(head: RequestHead, link: str) -> Reply:
    """The link becomes a cookie, so that it does not stay in the address bar or in referrers."""
    _, target = _taken_out(head.target)
    secure = "; Secure" if head.scheme == "https" else ""
    cookie = f"{COOKIE}={link}; Path=/; HttpOnly; SameSite=Lax{secure}"
    return Reply(
        303,
        (
            (b"Location", _on_this_host(target)),
            (b"Set-Cookie", cookie.encode()),
            (b"Cache-Control", b"no-store"),
            (b"Referrer-Policy", b"no-referrer"),
        ),
    )


def _on_this_host(target: bytes) -> bytes:
    """Return a target that a browser resolves against the current host.

    Two slashes at the beginning name another host, and browsers read a backslash as a slash. They
    also remove tabs and line ends; a request line has none.
    """
    return b"/" + target.lstrip(b"/\\")


def _edits(head: RequestHead) -> Edits:
    """What opens the door is not told to what is behind it."""
    _, target = _taken_out(head.target)
    given = _cookies(head)
    kept = [pair for name, pair in given if name != COOKIE.encode()]
    if len(kept) == len(given):
        return Edits(remove=_OURS, target=target)
    if not kept:
        return Edits(remove=_OURS | {b"cookie"}, target=target)
    return Edits(put=((b"Cookie", b"; ".join(kept)),), remove=_OURS, target=target)
