"""The gateway itself: control planes tell it whom to serve and how."""

import asyncio
import logging
import secrets
import socket
from collections.abc import Sequence

import msgspec

from paddock.domain.broker.models import Price, Prices
from paddock.domain.errors import InvalidRequest
from paddock.gateway import protocol
from paddock.gateway.fence import Fence
from paddock.gateway.journal import Journal
from paddock.gateway.ledger import Ledger
from paddock.gateway.minting import Mint
from paddock.gateway.outside import Outside, trusting
from paddock.gateway.protocol import Answer, Anything, Channel
from paddock.gateway.room import Room

_log = logging.getLogger(__name__)
_RETIRED_S = 600
_ALONE_S = 60
"""How long one that is retired goes on although no control plane speaks to it: nobody could take
anything back there."""
_UNTOLD_S = 3600
"""And how long it keeps what it saw for one that comes back."""


class Gateway:
    """Ends by itself once nobody speaks to it and nobody is served."""

    def __init__(self) -> None:
        self._id = secrets.token_hex(8)
        self._outside = Outside()
        self._journal = Journal()
        self._mint: Mint | None = None
        self._ledger = Ledger()
        self._room = Room()
        self._fences: dict[str, Fence] = {}
        self._channels: dict[Channel, frozenset[int]] = {}
        """Control planes that speak to it, and the ports of this host that each has for its own."""
        self._left: frozenset[int] = frozenset()
        """Those of the last that went: it may be back in a moment."""
        self._is_retired = False
        self._knowing: set[Channel] = set()
        """Those that have it retire, or know that it is."""
        self._conversing: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()

    async def serve(self, listener: socket.socket) -> None:
        """Until nobody needs it any more."""
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:
            accepting = group.create_task(self._accept(listener, group))
            await self._idle.wait()
            if self._is_retired:
                await self._see_off()
            accepting.cancel()
            listener.close()
            for each in self._conversing:
                each.cancel()

    async def _see_off(self) -> None:
        """Those that are connected when it is retired have a while to end by themselves, and what
        was seen of them is told. Control planes speak to it meanwhile: what they take back is taken
        back here as well."""
        alone_s = 0
        for second in range(_UNTOLD_S):
            if not self._busy() and self._journal.is_told:
                return
            alone_s = 0 if self._knowing else alone_s + 1
            if second >= _RETIRED_S or alone_s >= _ALONE_S:
                for fence in self._fences.values():
                    fence.close()
            await asyncio.sleep(1)

    async def _accept(self, listener: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            channel = Channel(connection)
            self._channels[channel] = frozenset()
            conversing = group.create_task(self._converse(channel))
            self._conversing.add(conversing)
            conversing.add_done_callback(self._conversing.discard)

    async def _converse(self, channel: Channel) -> None:
        is_first = True
        try:
            while True:
                said, sockets = await channel.receive()
                if not self._is_meant(channel, said, is_first=is_first):
                    _drop(sockets)
                    return
                is_first = False
                if isinstance(said, protocol.Configure):
                    self._channels[channel] = frozenset(said.closed_ports)
                await _told(channel, await self._answer(said, sockets))
        except (EOFError, OSError, msgspec.MsgspecError) as error:
            _log.info("control plane gone: %s", error)
        finally:
            channel.close()
            self._knowing.discard(channel)
            self._left = self._channels.pop(channel) or self._left
            self._look_whether_idle()

    def _is_meant(self, channel: Channel, said: Anything, *, is_first: bool) -> bool:
        """Who takes one that is retired for the one in force would believe that what it says holds:
        it gets no answer, and finds the other one when it comes back through the door."""
        if isinstance(said, protocol.Retire):
            self._knowing.add(channel)
        is_greeting = is_first and isinstance(said, protocol.Hello)
        return not self._is_retired or channel in self._knowing or is_greeting

    async def _answer(self, said: Anything, sockets: Sequence[socket.socket]) -> Answer:
        try:
            return await self._act(said, sockets)
        except (InvalidRequest, OSError, ValueError) as error:
            _drop(sockets)
            return protocol.Failed(str(error))

    async def _act(self, said: Anything, sockets: Sequence[socket.socket]) -> Answer:
        match said:
            case protocol.Hello():
                marks = {name: each.desk.mark for name, each in self._fences.items()}
                return protocol.Here(protocol.VERSION, self._id, list(self._fences), marks)
            case protocol.SetPrices():
                table = {model: Price(*each) for model, each in said.prices.items()}
                self._ledger.prices = Prices(table)
            case protocol.Trust():
                self._trust(said)
            case protocol.Configure():
                self._outside.hosts = said.hosts
                self._outside.closed_ports = self._left.union(*self._channels.values())
            case protocol.Attach():
                await self._attach(said, sockets)
            case protocol.SetRules() | protocol.SetCredentials():
                return self._change(said)
            case protocol.Detach():
                if (fence := self._fences.pop(said.sandbox, None)) is not None:
                    fence.close()
            case protocol.Retire():
                self._retire()
            case protocol.Drain():
                for fence in self._fences.values():
                    fence.flush()
                return self._journal.drain(said.ack if said.gateway == self._id else 0)
            case _:
                return self._about_asking(said)
        return protocol.Done()

    def _about_asking(self, said: Anything) -> Answer:
        match said:
            case protocol.Ask():
                return protocol.Waiting(self._held())
            case protocol.Settle():
                if (fence := self._fences.get(said.sandbox)) is not None:
                    place, allowed = (said.host, said.port), said.allowed
                    fence.asking.settle(place, allowed=allowed, why=said.why, for_s=said.for_s)
                return protocol.Done()
            case _:
                return protocol.Failed("this is nothing to say to a gateway")

    def _held(self) -> list[protocol.Held]:
        return [
            protocol.Held(ref, *each.place, each.attempts, each.connections, fence.shown)
            for ref, fence in self._fences.items()
            for each in fence.asking.told()
        ]

    async def _attach(self, said: protocol.Attach, sockets: Sequence[socket.socket]) -> None:
        if self._is_retired:
            raise ValueError("this gateway was retired, and serves nobody new")
        fence = Fence(said.sandbox, self._outside, self._journal)
        fence.desk.mint, fence.desk.ledger = self._mint, self._ledger
        fence.desk.whole = self._room
        fence.set_rules(said.rules, said.shown, ask_s=said.ask_s)
        if len(sockets) != protocol.MOST_SOCKETS:
            raise ValueError(f"a sandbox has {protocol.MOST_SOCKETS} sockets, not {len(sockets)}")
        if (before := self._fences.pop(said.sandbox, None)) is not None:
            fence.desk.take([each.credential for each in before.desk.held.bound], before.desk.mark)
            before.close()
        await fence.listen(sockets)
        self._fences[said.sandbox] = fence

    def _change(self, said: protocol.SetRules | protocol.SetCredentials) -> Answer:
        if (fence := self._fences.get(said.sandbox)) is None:
            return protocol.Failed(f"sandbox {said.sandbox} is not attached")
        if isinstance(said, protocol.SetRules):
            fence.set_rules(said.rules, said.shown, ask_s=said.ask_s)
        else:
            fence.desk.take(said.credentials, said.mark)
        return protocol.Done()

    def _trust(self, said: protocol.Trust) -> None:
        if said.authorities:
            self._outside.trust = trusting(said.authorities)
        if said.certificate:
            self._mint = Mint(said.certificate.encode(), said.key.encode())
        for fence in self._fences.values():
            fence.desk.mint = self._mint

    def _retire(self) -> None:
        self._is_retired = True
        for fence in self._fences.values():
            fence.leave()
        self._idle.set()

    def _busy(self) -> int:
        return sum(fence.busy for fence in self._fences.values())

    def _look_whether_idle(self) -> None:
        if not self._channels and not self._fences and not self._busy():
            self._idle.set()


def _drop(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()


async def _told(channel: Channel, answer: Answer) -> None:
    try:
        await channel.send(answer)
    except protocol.TooLarge as error:
        await channel.send(protocol.Failed(str(error)))
