"""One sandbox as the gateway sees it: its sockets, its rules, its names, its connections."""

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from paddock.domain.egress import names
from paddock.domain.egress.asking import may_be_resolved
from paddock.domain.egress.deciding import may_resolve
from paddock.domain.egress.rule import Rule, parse
from paddock.gateway import dns
from paddock.gateway.asking import Asking
from paddock.gateway.connection import Connection
from paddock.gateway.desk import Desk
from paddock.gateway.inbound import Proxied, Transparent
from paddock.gateway.journal import Journal, Key
from paddock.gateway.lookups import Turns
from paddock.gateway.names import Names
from paddock.gateway.outside import Outside
from paddock.gateway.protocol import RuleText
from paddock.gateway.target import Target

_MOST_CONNECTIONS = 2000
_BACKLOG = 512
_DNS_IDLE_S = 10.0
"""How long somebody who asks for names by TCP may take for a question, or for our answers."""


class Fence:
    """Everything of one sandbox ends with `close`."""

    def __init__(self, sandbox: str, outside: Outside, journal: Journal) -> None:
        self.id = self.shown = sandbox
        self.outside = outside
        self.journal = journal
        self.turns = Turns()
        self.asking = Asking(self._grant)
        self.rules: tuple[Rule, ...] = ()
        """With what was allowed for a while, after all others."""
        self._rules: tuple[Rule, ...] = ()
        self._sources: dict[str, str] = {}
        self._names = Names()
        self.desk = Desk(self._names.address_of)
        self._connections: set[Connection] = set()
        self._askers: set[_DnsByTcp] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[Any] = []
        self.is_leaving = False
        """Another gateway serves the sandbox from now on."""

    async def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Transparent, proxy, DNS by TCP, DNS by UDP."""
        transparent, proxy, dns_tcp, dns_udp = sockets
        loop = asyncio.get_running_loop()
        for made, listener in (
            (partial(_client, Transparent, self), transparent),
            (partial(_client, Proxied, self), proxy),
            (partial(_DnsByTcp, self), dns_tcp),
        ):
            server = await loop.create_server(made, sock=listener, backlog=_BACKLOG)
            self._listeners.append(server)
        transport, _ = await loop.create_datagram_endpoint(lambda: _DnsByUdp(self), sock=dns_udp)
        self._listeners.append(transport)

    def set_rules(self, rules: Sequence[RuleText], shown: str = "", *, ask_s: float = 0.0) -> None:
        self.shown = shown or self.shown
        self.asking.hold_s = ask_s
        self._rules = tuple(
            replace(parse(rule.text), by_operator=rule.by_operator) for rule in rules
        )
        self._grant()
        self._sources = {parse(rule.text).text: rule.source for rule in reversed(rules)}
        for rule in self._rules:
            if rule.allows and rule.host and not rule.host.startswith("*"):
                self._names.address_of(rule.host)  # known again also after a restart
        for connection in list(self._connections):
            connection.recheck()
        self.asking.reconsider()

    def _grant(self) -> None:
        self.rules = self._rules + self.asking.grants

    def source_of(self, rule: Rule | None) -> str:
        if rule is None:
            return ""
        return self._sources.get(rule.text) or self.asking.source_of(rule)

    def target(self, host: str, port: int) -> Target:
        """Of a name, or of an address, which may be one that stands for a name."""
        if names.normal(host):
            return Target(host, "", port)
        name = self._names.name_of(host)
        return (
            Target(name, "" if name else host, port) if name is not None else Target("", host, port)
        )

    def find(self, name: str) -> str:
        """The address that a program is told; empty when no rule could allow the name."""
        is_known = may_resolve(self.rules, name) or self.desk.route(name) is not None
        if is_known or (self.asking.hold_s and may_be_resolved(self._rules, name)):
            return self._names.address_of(name)
        self._note(name, "no rule allows the name")
        return ""

    def _note(self, host: str, why: str) -> None:
        key = Key(self.id, host, 0, allowed=False, why=why, shown=self.shown)
        self.journal.add(key, connections=1)

    def admit(self, client: "Connection | _DnsByTcp") -> bool:
        """Who asks for names by TCP takes as much of us as any other."""
        if len(self._connections) + len(self._askers) >= _MOST_CONNECTIONS:
            self._note("(any)", "too many connections")
            return False
        if isinstance(client, Connection):
            self._connections.add(client)
        else:
            self._askers.add(client)
        return True

    def dismiss(self, client: "Connection | _DnsByTcp") -> None:
        if isinstance(client, Connection):
            self._connections.discard(client)
            self.asking.gone(client, (client.target.host, client.target.port))
        else:
            self._askers.discard(client)

    @property
    def busy(self) -> int:
        return len(self._connections)

    def flush(self) -> None:
        for connection in self._connections:
            connection.flush()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def leave(self) -> None:
        """What is connected goes on; what credentials go into, as long as an answer is owed."""
        self.is_leaving = True
        self._stop_listening()
        for connection in list(self.desk.connections):
            connection.leave()

    def close(self) -> None:
        self.flush()
        self._stop_listening()
        for connection in list(self._connections):
            connection.relay.abort()
        for asker in list(self._askers):
            asker.abort()
        self.asking.close()
        self.desk.close()


def _client(kind: type[Connection], fence: Fence) -> asyncio.Protocol:
    return kind(fence).relay.client_side()


class _DnsByUdp(asyncio.DatagramProtocol):
    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, peer: tuple[str, int]) -> None:
        if said := dns.answer(data, self._fence.find):
            self._transport.sendto(said, peer)


class _DnsByTcp(asyncio.Protocol):
    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._transport: Any = None
        self._held = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._fence.admit(self):
            self._wait()
        else:
            self.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._cancel()
        self._fence.dismiss(self)

    def pause_writing(self) -> None:
        """Our answers are not read: neither are the questions, and the time is running."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()

    def _wait(self) -> None:
        self._cancel()
        self._timer = asyncio.get_running_loop().call_later(_DNS_IDLE_S, self.abort)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._held += data
        while len(self._held) >= 2:
            size = int.from_bytes(self._held[:2], "big")
            if len(self._held) < 2 + size:
                return
            packet, self._held = self._held[2 : 2 + size], self._held[2 + size :]
            said = dns.answer(packet, self._fence.find)
            if not said:
                self._transport.close()
                return
            self._transport.write(len(said).to_bytes(2, "big") + said)
            self._wait()
