"""Disks of sandboxes that sleep, shown to whoever wants to read a file and wake nobody."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.life import Life, check_on_disk
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.errors import Conflict, NotFound, Unavailable
from paddock.domain.guest import GuestAddress
from paddock.domain.sandbox import SandboxState
from paddock.guest_client import Guest
from paddock.ports.provider import OpenDisk

_LINGER_S = 5.0
"""Who has read one file often reads another."""


@dataclass
class _Shown:
    address: GuestAddress
    lookers: int = 0
    ending: asyncio.Task[None] | None = None


@dataclass
class Disks:
    """Those that this process shows. The sandbox's lock is held by whoever opens or ends one."""

    life: Life
    _shown: dict[str, _Shown] = field(default_factory=dict)

    async def open(self, record: SandboxRecord) -> OpenDisk:
        """Conflict unless it sleeps with its disk at hand."""
        _check_asleep(record)
        shown = self._shown.get(record.ref)
        if shown is None or not await _answers(shown.address):
            await self.end(record.ref)
            shown = self._shown[record.ref] = _Shown(await self.life.machines.show(record))
        if shown.ending is not None:
            shown.ending.cancel()
            shown.ending = None
        shown.lookers += 1
        return OpenDisk(shown.address, _Once(self, record.ref, shown).close)

    async def end(self, ref: str) -> None:
        """Before the disk changes or goes: those who look lose the connection."""
        shown = self._shown.pop(ref, None)
        if shown is not None and shown.ending is not None:
            shown.ending.cancel()
        await uncancelled(self.life.machines.hide(ref))

    async def aclose(self) -> None:
        for ref in list(self._shown):
            async with self.life.locks.hold(ref):
                await self.end(ref)

    def leave(self, ref: str, shown: _Shown) -> None:
        shown.lookers -= 1
        if not shown.lookers and self._shown.get(ref) is shown:
            shown.ending = asyncio.create_task(self._end_later(ref, shown), name=f"hide {ref}")

    async def _end_later(self, ref: str, shown: _Shown) -> None:
        await asyncio.sleep(_LINGER_S)
        with contextlib.suppress(NotFound):
            async with self.life.locks.hold(ref):
                if self._shown.get(ref) is shown and not shown.lookers:
                    shown.ending = None  # it is this one, which must not end itself
                    await self.end(ref)


@dataclass
class _Once:
    """Somebody who looks, and leaves once."""

    disks: Disks
    ref: str
    shown: _Shown | None

    async def close(self) -> None:
        shown, self.shown = self.shown, None
        if shown is not None:
            self.disks.leave(self.ref, shown)


def _check_asleep(record: SandboxRecord) -> None:
    check_on_disk(record)
    if record.state not in (SandboxState.STOPPED, SandboxState.PAUSED):
        raise Conflict(
            f"sandbox {record.ref} is {record.state}; only one that sleeps is looked at so",
            remediation="ask its guest",
        )
    if not runtime.choose(record.runtime).joinable:
        raise Conflict(
            f"sandbox {record.ref} runs on {record.runtime}, whose disks are read inside only",
            remediation="start it first",
        )


async def _answers(address: GuestAddress) -> bool:
    try:
        async with Guest(address) as guest:
            await guest.health()
    except Unavailable:
        return False
    return True
