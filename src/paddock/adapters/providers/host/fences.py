"""Allowlists of sandboxes on this host: who is fenced, and how it becomes so.

A sandbox that is fenced has its network turned to the gateway's sockets. Without a gateway behind
them, and with the mode `none`, nobody listens there: what it connects to is refused at once.
"""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock.adapters.providers.host import redirecting
from paddock.adapters.providers.host.processes import Process
from paddock.domain.egress import EgressPolicy
from paddock.domain.errors import Broken, PaddockError, Unavailable
from paddock.ports.egress import Gateway

_log = logging.getLogger(__name__)
_LABEL = "paddock.sandbox"
"""How a sandbox is called where people see it; the control plane labels it so."""


@dataclass(frozen=True, slots=True)
class Enclosed:
    """A running sandbox, as far as a fence is concerned."""

    ref: str
    init: Process
    """Whose network it is."""
    policy: EgressPolicy
    labels: Mapping[str, str]

    @property
    def shown(self) -> str:
        return self.labels.get(_LABEL, self.ref)


@dataclass(frozen=True, slots=True)
class Fences:
    """The fences of one installation."""

    gateway: Gateway
    mine: set[str] = field(default_factory=set)
    """Those that this process has put up."""
    leaving: set[str] = field(default_factory=set)
    """Those that the gateway serves although it should not: it was out of reach."""

    async def put(self, sandbox: Enclosed) -> None:
        """Turn its network to the gateway, which judges by its policy from now on."""
        try:
            sockets = await redirecting.place(sandbox.init)
        except ProcessLookupError as error:
            raise Unavailable(f"a sandbox ended before it had its fence: {error}") from error
        except OSError as error:
            raise Broken(f"a sandbox was not to be given its fence: {error}") from error
        try:
            await self.gateway.attach(sandbox.ref, sockets, sandbox.policy, sandbox.shown)
        finally:
            for each in sockets:
                each.close()
        self._serves(sandbox.ref)

    async def change(self, sandbox: Enclosed) -> None:
        """Its policy is another now."""
        if await self.gateway.change(sandbox.ref, sandbox.policy, sandbox.shown):
            self._serves(sandbox.ref)
        else:
            await self.put(sandbox)

    async def shut(self, ref: str) -> None:
        """Whatever it had of the gateway is gone; absent is success.

        A gateway that is out of reach keeps nobody from being stopped: it is told later.
        """
        try:
            await self.cut(ref)
        except PaddockError as error:
            _log.warning("sandbox not detached ref=%s error=%s", ref, error)

    async def cut(self, ref: str) -> None:
        """The same of one that goes on running: it reaches nothing any more, or that is an error.
        Absent is success."""
        self.mine.discard(ref)
        self.leaving.add(ref)
        await self.gateway.detach(ref)
        self.leaving.discard(ref)

    async def remove(self, ref: str, init: Process | None) -> None:
        """Its network is as it was before; absent is success."""
        await self.shut(ref)
        if init is not None:
            with contextlib.suppress(ProcessLookupError):
                await redirecting.remove(init)

    async def missing(self) -> list[str]:
        """Those that this process has put up and that are gone, as after the gateway's death. Those
        that should be gone are, afterwards."""
        for ref in sorted(self.leaving):
            if ref in self.leaving:  # it may have come back meanwhile
                await self.cut(ref)
        return sorted(self.mine - await self.gateway.attached()) if self.mine else []

    def _serves(self, ref: str) -> None:
        self.leaving.discard(ref)
        self.mine.add(ref)
