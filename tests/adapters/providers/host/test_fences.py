"""Fences while the gateway is out of reach: what should reach nothing is not left as it was."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from paddock.adapters.providers.host.fences import Enclosed, Fences
from paddock.adapters.providers.host.processes import Process
from paddock.domain.egress import EgressPolicy, NetworkMode
from paddock.domain.errors import Unavailable

pytestmark = pytest.mark.timeout(20)


@dataclass
class Gateway:
    """Serves whom it was told of, and answers unless it is silent."""

    served: set[str] = field(default_factory=set)
    is_silent: bool = False

    def _hear(self) -> None:
        if self.is_silent:
            raise Unavailable("the gateway does not answer")

    async def attach(
        self, ref: str, sockets: Sequence[socket.socket], policy: EgressPolicy, shown: str = ""
    ) -> None:
        self._hear()
        self.served.add(ref)

    async def change(self, ref: str, policy: EgressPolicy, shown: str = "") -> bool:
        self._hear()
        return ref in self.served

    async def detach(self, ref: str) -> None:
        self._hear()
        self.served.discard(ref)

    async def attached(self) -> frozenset[str]:
        self._hear()
        return frozenset(self.served)


@pytest.fixture
def gateway() -> Gateway:
    return Gateway(served={"one", "two"})


@pytest.fixture
async def fences(gateway: Gateway) -> Fences:
    made = Fences(gateway)
    for ref in ("one", "two"):
        await made.change(enclosed(ref))
    return made


def enclosed(ref: str) -> Enclosed:
    return Enclosed(ref, Process.of(os.getpid()), EgressPolicy(NetworkMode.ALLOWLIST), {})


@pytest.mark.proves("P16")
async def test_who_runs_on_and_cannot_be_cut_off_is_an_error_and_cut_off_later(gateway, fences):
    gateway.is_silent = True
    with pytest.raises(Unavailable):
        await fences.cut("one")
    gateway.is_silent = False
    assert gateway.served == {"one", "two"}
    assert await fences.missing() == []
    assert gateway.served == {"two"}


async def test_who_ends_is_no_error_and_forgotten_later(gateway, fences):
    gateway.is_silent = True
    await fences.shut("one")
    with pytest.raises(Unavailable):
        await fences.missing()
    gateway.is_silent = False
    assert await fences.missing() == []
    assert gateway.served == {"two"}


async def test_who_has_come_back_meanwhile_is_served(gateway, fences):
    gateway.is_silent = True
    await fences.shut("one")
    gateway.is_silent = False
    await fences.change(enclosed("one"))
    assert await fences.missing() == []
    assert gateway.served == {"one", "two"}
