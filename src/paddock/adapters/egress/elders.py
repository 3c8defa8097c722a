"""Gateways of other versions: they have a door of their own until they have told everything."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from paddock.adapters.egress.talk import connection, exchanged
from paddock.adapters.egress.told import batch_of
from paddock.domain.errors import Unavailable
from paddock.gateway import protocol
from paddock.gateway.protocol import Channel, Message
from paddock.ports.egress import FlowBatch

_log = logging.getLogger(__name__)
_PREFIX, _SUFFIX = "egress-", ".sock"
_Policy = protocol.SetRules | protocol.SetCredentials
_ANSWER_S = 2.0
"""Who waits for one of them waits for what is no more in force anywhere else."""
_FAULTS = (EOFError, OSError, msgspec.MsgspecError)


_T = TypeVar("_T")


class Gone(Exception):
    """It has ended."""


@dataclass(slots=True)
class Elder:
    """One of them. Whoever finds it has it retire: the one before may have died over that."""

    door: Path
    silent_s: float
    id: str = ""
    _version: int = 0
    _channel: Channel | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _charged: tuple[int, frozenset[str]] = (0, frozenset())
    """The last batch in which models were paid for, and whose sandboxes' they were."""
    _unheard: set[str] = field(default_factory=set)
    """Sandboxes of which it missed something: they are cut off there before anything else."""
    _silent_until: float = 0.0

    @property
    def is_silent(self) -> bool:
        """It did not answer a moment ago, and is not asked for a while."""
        return asyncio.get_running_loop().time() < self._silent_until

    async def ask(self, said: Message) -> protocol.Anything:
        """Gone when nobody is behind its door any more; Unavailable for all else."""
        async with self._turn:
            if self.is_silent:
                raise _silent("it did not answer a moment ago")
            is_new = self._channel is None
            try:
                return await self._asked(said)
            except _FAULTS as error:
                if is_new:
                    raise _silent(error) from error
            return await self._asked_again(said)

    async def _asked_again(self, said: Message) -> protocol.Anything:
        try:
            return await self._asked(said)
        except _FAULTS as error:
            raise _silent(error) from error

    async def _asked(self, said: Message) -> protocol.Anything:
        try:
            channel = self._channel or await self._open()
            for ref in tuple(self._unheard):
                await _exchanged(channel, protocol.Detach(ref))
                self._unheard.discard(ref)
            return await _exchanged(channel, said)
        except Unavailable:
            self._silent_until = asyncio.get_running_loop().time() + self.silent_s
            self.close()
            raise
        except BaseException:
            self.close()  # the answer to this would be taken for that to the next
            raise

    async def _open(self) -> Channel:
        try:
            made = await asyncio.to_thread(connection, self.door)
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise Gone from error
        channel = self._channel = Channel(made)
        here = await _exchanged(channel, protocol.Hello())
        if not isinstance(here, protocol.Here):
            raise Unavailable(f"what answers at {self.door} is no egress gateway")
        self.id, self._version = here.id, here.version
        if self._version >= protocol.LINGERS:
            await _exchanged(channel, protocol.Retire())
            return channel
        # Once it is retired it hears of nothing any more, so its connections are cut before.
        for ref in here.attached:
            await _exchanged(channel, protocol.Detach(ref))
        return channel

    async def tell(self, said: _Policy) -> None:
        """What it does not understand, it does not go on without."""
        try:
            answer = await self.ask(said)
        except Unavailable:
            answer = protocol.Failed("")
        except asyncio.CancelledError:
            self._unheard.add(said.sandbox)
            raise
        if isinstance(answer, protocol.Failed):
            await self.cut(said.sandbox)

    async def cut(self, ref: str) -> None:
        """Now, or as soon as it hears of anything."""
        try:
            await self.ask(protocol.Detach(ref))
        except (Unavailable, asyncio.CancelledError):
            self._unheard.add(ref)
            raise

    async def held(self) -> list[protocol.Held]:
        """What its connections wait for. One that was cut off has none."""
        await self.greet()
        answer = await self.ask(protocol.Ask()) if self._version >= protocol.LINGERS else None
        return answer.held if isinstance(answer, protocol.Waiting) else []

    async def greet(self) -> None:
        """It is retired afterwards, and heard of."""
        if self._channel is None:
            await self.ask(protocol.Hello())

    async def drain(self, stored: Mapping[str, int]) -> FlowBatch | None:
        """What it saw and is not on record. One that has told all has nothing left to do."""
        await self.greet()
        number = stored.get(self.id, 0)
        told = await self.ask(protocol.Drain(self.id, number))
        if not isinstance(told, protocol.Flows):
            raise Unavailable(f"the gateway before this one does not say what it saw: {told}")
        batch = batch_of(self.id, told)
        if batch is None and self._version < protocol.LINGERS:
            await self.ask(protocol.Retire())
            self.close()  # these wait for everyone to hang up
        if batch is not None and batch.models:
            self._charged = (batch.number, frozenset(each.ref for each in batch.models))
        return batch

    def charged(self, stored: Mapping[str, int]) -> frozenset[str]:
        """Once: sandboxes of which more is on record as spent than others know."""
        number, refs = self._charged
        if not refs or stored.get(self.id, 0) < number:
            return frozenset()
        self._charged = (0, frozenset())
        return refs

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


@dataclass(slots=True)
class Elders:
    """All of an installation on this host."""

    place: Path
    silent_s: float = 30.0
    """How long one that did not answer is left alone: it holds up nobody again and again."""
    _known: dict[Path, Elder] = field(default_factory=dict)

    def door(self, gateway: str) -> Path:
        return self.place / f"{_PREFIX}{gateway}{_SUFFIX}"

    async def each(self, do: Callable[[Elder], Awaitable[_T]]) -> list[_T]:
        """What comes of it for those that are there, and answer: what the others miss takes nobody
        along who is served elsewhere."""
        async with asyncio.TaskGroup() as group:
            doing = [group.create_task(self._one(each, do)) for each in self.all()]
        return [answer[0] for each in doing if (answer := each.result())]

    async def _one(self, elder: Elder, do: Callable[[Elder], Awaitable[_T]]) -> tuple[_T] | None:
        was_silent = elder.is_silent
        try:
            return (await do(elder),)
        except Gone:
            _log.info("gateway of another version ended", extra={"gateway": elder.id})
            elder.close()
            elder.door.unlink(missing_ok=True)
            self._known.pop(elder.door, None)
        except Unavailable as error:
            if not was_silent:
                told = {"gateway": elder.id, "why": error.message}
                _log.warning("gateway of another version did not answer", extra=told)
        return None

    def all(self) -> list[Elder]:
        """Where that cannot be found out now, those that were there before."""
        try:
            with os.scandir(self.place) as found:
                names = [each.name for each in found]
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("gateways of other versions not looked for", extra={"why": str(error)})
            return list(self._known.values())
        doors = (each for each in names if each.startswith(_PREFIX) and each.endswith(_SUFFIX))
        paths = [self.place / each for each in sorted(doors)]
        return [self._known.setdefault(door, Elder(door, self.silent_s)) for door in paths]

    async def drain(self, stored: Mapping[str, int], elder: Elder) -> FlowBatch | None:
        found = await self._one(elder, lambda each: each.drain(stored))
        return found[0] if found else None

    def close(self) -> None:
        for each in self._known.values():
            each.close()
        self._known.clear()


def _silent(error: Exception | str) -> Unavailable:
    return Unavailable(f"the egress gateway before this one is silent: {error}")


async def _exchanged(channel: Channel, said: Message) -> protocol.Anything:
    return await exchanged(channel, said, within_s=_ANSWER_S)
