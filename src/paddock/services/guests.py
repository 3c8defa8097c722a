"""The way to the guest of each running sandbox: found once, kept while it works."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from paddock.domain.errors import Conflict
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import OpenDisk, Ref
from paddock.services.providers import Providers
from paddock.services.transfers import TransferGuest

_HOW_TO_RUN = {
    SandboxState.CREATING: "wait until it runs; its events say when",
    SandboxState.PAUSED: "resume it first: `paddock resume NAME`",
    SandboxState.STOPPED: "start it first: `paddock start NAME`",
    SandboxState.ARCHIVED: "start it first: `paddock start NAME`",
}


class Guests:
    """Connections to guests, by sandbox."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._open: dict[str, tuple[TransferGuest, AsyncExitStack]] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sandbox_id in list(self._open):
            await self.forget(sandbox_id)

    async def of(self, sandbox: SandboxRecord) -> TransferGuest:
        """The guest of a running sandbox; Conflict when it does not run."""
        check_runs(sandbox)
        if (known := self._open.get(sandbox.id)) is not None:
            return known[0]
        async with self._opening.setdefault(sandbox.id, asyncio.Lock()):
            if (known := self._open.get(sandbox.id)) is not None:
                return known[0]
            provider = self._providers.get(sandbox.provider)
            address = await provider.guest(Ref(sandbox.provider, sandbox.ref))
            stack = AsyncExitStack()
            guest = await stack.enter_async_context(TransferGuest(address))
            self._open[sandbox.id] = (guest, stack)
            return guest

    async def open_disk(self, sandbox: SandboxRecord) -> AbstractAsyncContextManager[TransferGuest]:
        """A guest that shows the disk of a sandbox that sleeps; Unsupported where nobody can."""
        provider = self._providers.get(sandbox.provider)
        disk = await provider.open_disk(Ref(sandbox.provider, sandbox.ref))
        return _looking(disk)

    async def forget(self, sandbox_id: str) -> None:
        """Before it stops, or when nobody answers there any more: the next one looks anew."""
        self._opening.pop(sandbox_id, None)
        if (known := self._open.pop(sandbox_id, None)) is not None:
            await known[1].aclose()


@asynccontextmanager
async def _looking(disk: OpenDisk) -> AsyncIterator[TransferGuest]:
    try:
        async with TransferGuest(disk.address) as guest:
            yield guest
    finally:
        await disk.aclose()


def check_runs(sandbox: SandboxRecord) -> None:
    if sandbox.state is SandboxState.RUNNING:
        return
    if sandbox.quarantine is not None:
        raise set_aside(sandbox)
    why = f" ({sandbox.reason})" if sandbox.reason else ""
    raise Conflict(
        f"sandbox {sandbox.name} is {sandbox.state}{why}, so nothing can be done inside it",
        remediation=_HOW_TO_RUN.get(sandbox.state, "create another").replace("NAME", sandbox.name),
    )


def set_aside(sandbox: SandboxRecord) -> Conflict:
    """For who may go in, and finds that it stands still."""
    assert sandbox.quarantine is not None
    by, why, name = sandbox.quarantine.by, sandbox.quarantine.why, sandbox.name
    return Conflict(
        f"sandbox {name} was set aside by {by}: {why}; it is {sandbox.state}, so nothing can be "
        "done inside it",
        remediation=f"`paddock quarantine show {name}` says what was found, and `paddock "
        f"quarantine clear {name}` opens it; to look inside first, wake it yourself",
    )
