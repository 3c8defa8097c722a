"""Restricts the Host header where requests need no token."""

from collections.abc import Awaitable

from paddock.interfaces.preview.contract import Answer, RequestHead, Resolve
from paddock.interfaces.preview.forwarding import split_host
from paddock.interfaces.preview.hosts import is_below, is_loopback
from paddock.interfaces.preview.pages import Pages, Trouble


class KnownHosts:
    """A front's `resolve` that refuses every host name it does not know.

    Without tokens the browser's same-origin policy is the only protection. DNS rebinding bypasses
    it: a page's own host name resolves to this machine. The Host header then has that name, so only
    names that an attacker's DNS server cannot answer for are accepted.
    """

    def __init__(
        self, resolve: Resolve, domain: str, own_host: str, pages: Pages | None = None
    ) -> None:
        self._resolve = resolve
        self._domain = domain.lower()
        self._own_host = own_host.lower()
        self._pages = pages or Pages()

    def __call__(self, head: RequestHead) -> Answer | Awaitable[Answer]:
        if self._knows(head.host) and self._knows(_sent_host(head)):
            return self._resolve(head)
        trouble = Trouble(
            403,
            "forbidden",
            f"the host {head.host[:200]} is not allowed, because this server runs without tokens",
            "use http://127.0.0.1 or http://localhost; set server.public_url if this is its name",
            title="Unknown host",
        )
        return self._pages.error(head, trouble)

    def _knows(self, host: str) -> bool:
        return (
            is_loopback(host)
            or host in (self._own_host, self._domain)
            or is_below(host, self._domain)
        )


def _sent_host(head: RequestHead) -> str:
    """The Host header itself: a page can add forwarding headers, but not choose this one."""
    found = split_host((head.get(b"host") or b"").decode("latin-1").strip())
    return found[0] if found else ""
