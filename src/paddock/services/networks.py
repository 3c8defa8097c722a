"""What a sandbox may reach, as far as who makes it has to know."""

from dataclasses import replace
from typing import Protocol

from paddock.domain.egress import EgressPolicy, EgressWish, NetworkMode, doors
from paddock.domain.records import SandboxRecord
from paddock.domain.team import Principal


def is_fence(sandbox: SandboxRecord, port: int, address: str) -> bool:
    """Whether what listens there is the gateway's, not a program's."""
    fenced = sandbox.egress.mode is NetworkMode.ALLOWLIST
    return fenced and port in doors.ALL and address == doors.ADDRESS


class Networks(Protocol):
    """Asked when a sandbox is made."""

    def chosen(
        self, principal: Principal, record: SandboxRecord, asked: EgressWish | None
    ) -> EgressWish:
        """What a new one has as its own; `asked` is what of it who makes it has asked for."""

    def policy(self, record: SandboxRecord) -> EgressPolicy:
        """What its provider is to enforce."""

    async def apply(self, sandbox: SandboxRecord, *, is_waking: bool = False) -> None:
        """Its provider enforces what is wanted now; of one that only slept, or was being made,
        where that can have changed at all."""


class Modes:
    """No rules, and nothing where nothing is asked for."""

    def chosen(
        self, principal: Principal, record: SandboxRecord, asked: EgressWish | None
    ) -> EgressWish:
        return replace(record.egress, mode=record.egress.mode or NetworkMode.NONE)

    def policy(self, record: SandboxRecord) -> EgressPolicy:
        return EgressPolicy(record.egress.mode or NetworkMode.NONE)

    async def apply(self, sandbox: SandboxRecord, *, is_waking: bool = False) -> None:
        """A mode is for good."""


async def fit(networks: Networks, sandbox: SandboxRecord, known: EgressPolicy) -> SandboxRecord:
    """One that has just begun to run has what is wanted now, not when it began to begin."""
    if networks.policy(sandbox) != known:
        await networks.apply(sandbox, is_waking=True)
    return sandbox
