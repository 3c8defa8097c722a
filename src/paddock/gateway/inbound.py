"""The two ways in which a program connects: unaware of the gateway, or to it as a proxy."""

import asyncio
import ipaddress
import socket
import struct
from typing import TYPE_CHECKING

from paddock.domain.egress import names
from paddock.gateway.brokered import Brokered
from paddock.gateway.requests import connect_target, split_host
from paddock.gateway.target import Target

if TYPE_CHECKING:
    from paddock.gateway.fence import Fence

_SO_ORIGINAL_DST = 80
_LARGEST_HEAD = 65536
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Transparent(Brokered):
    """Redirected here on its way to an address."""

    def _begin(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        try:
            found = sock.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
        except OSError:  # it was not turned here: a program inside has found the port
            self.relay.abort()
            return
        port, packed = struct.unpack_from("!2xH4s", found)
        self.aim(self.fence.target(str(ipaddress.IPv4Address(packed)), port))


class Proxied(Brokered):
    """Told by the client where to."""

    def __init__(self, fence: "Fence") -> None:
        super().__init__(fence)
        self._opens_tunnel = False

    def _begin(self, transport: asyncio.BaseTransport) -> None:
        self.take = self._read_first

    def _waits_for_proxy(self) -> bool:
        return self._opens_tunnel

    def _read_first(self, data: bytes) -> None:
        self._held += data
        if b"\r\n\r\n" not in self._held and len(self._held) <= _LARGEST_HEAD:
            return
        held = self._unheld()
        try:
            tunnel = connect_target(held)
            authority = tunnel[0] if tunnel else _url_host(held)
            target = self.fence.target(*_place(authority, 443 if tunnel else 80))
        except ValueError as error:
            why = f"this is a proxy for HTTP, and the request is no proxy's: {error}"
            self._answer_and_close(self._refusal_of(why, status=400, code="malformed"))
            return
        if tunnel is None and self.fence.desk.route(target.name) is not None:
            self.aim(target)
            self.take(held)
            return
        self._opens_tunnel = tunnel is not None
        self._held += held if tunnel is None else tunnel[1]
        self.aim(target)

    def aim(self, target: Target) -> None:
        """What is spoken in a tunnel is recognised and judged as anywhere else."""
        if self._opens_tunnel:
            super().aim(target)
            self._begin_tunnel()
        elif self.fence.desk.route(target.name) is not None:
            super().aim(target)
        else:
            self.target = target
            opening = self._opening
            if opening.is_hopeless:
                self._ask_or_refuse(opening.whole)
            else:
                self._speak_http(self._unheld(), once=True)

    def _begin_tunnel(self) -> None:
        if self._is_refused or self._is_held:
            return
        whole = self._opening.whole
        if self.fence.desk.concerns(self.target) or not whole.allowed:
            self._connected()  # whether, and whom, to connect to is only known from inside
        else:
            self._dial_as(whole)
        if held := self._unheld():
            self.take(held)

    def _connected(self) -> None:
        if self._opens_tunnel:
            self._opens_tunnel = False
            self.relay.tell(_ESTABLISHED)


def _url_host(head: bytes) -> str:
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[1].lower().startswith(b"http://"):
        raise ValueError("its target is no http:// URL; https:// is asked for with CONNECT")
    return words[1][7:].partition(b"/")[0].partition(b"?")[0].decode("latin-1")


def _place(authority: str, default: int) -> tuple[str, int]:
    if "[" in authority:
        raise ValueError("IPv6 is not routed from a sandbox")
    host, port = split_host(authority)
    if host in ("", "?") or not 1 <= (port or default) <= 65535:
        raise ValueError(f"{authority[:80]!r} is no host")
    if not names.normal(host):
        host = str(ipaddress.IPv4Address(host))
    return host, port or default
