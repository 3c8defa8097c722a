"""Every call has a deadline, and what has not ended by then is ended."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, cast

from paddock.adapters.providers.layers.layered import Call, Operation
from paddock.domain.errors import PaddockError, TimedOut
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Finding, Health, Provider, Status

T = TypeVar("T")

# Generous: they are there so that nothing hangs for ever, not to judge what is slow. A creation may
# pull an image; a snapshot may copy a disk; questions are answered from memory or by one request.
DEADLINES: Mapping[Operation, float] = {
    Operation.CHECK: 30,
    Operation.CREATE: 120,
    Operation.OBSERVE: 15,
    Operation.FIND: 60,
    Operation.PAUSE: 60,
    Operation.RESUME: 60,
    Operation.STOP: 60,
    Operation.START: 120,
    Operation.ARCHIVE: 120,
    Operation.OPEN_DISK: 60,
    Operation.DESTROY: 60,
    Operation.RENEW: 15,
    Operation.SNAPSHOT: 300,
    Operation.SNAPSHOTS: 60,
    Operation.DELETE_SNAPSHOT: 60,
    Operation.FORK: 300,
    Operation.CREATE_VOLUME: 60,
    Operation.DELETE_VOLUME: 300,
    Operation.OPEN_VOLUME: 15,
    Operation.GUEST: 15,
    Operation.ENDPOINT: 15,
    Operation.SET_EGRESS: 30,
    Operation.USAGE: 15,
    Operation.ACLOSE: 30,
}

PACKED_MIB_PER_S = 10.0
"""A disk is packed and unpacked ten times as fast even by one slow processor."""


class Bound:
    """Ends a call at its deadline: the inner call is cancelled, the caller gets TimedOut.

    With the provider at hand, a call that packs or unpacks a disk has more time for a larger one.
    """

    def __init__(
        self,
        deadlines: Mapping[Operation, float] | None = None,
        *,
        provider: Provider | None = None,
    ) -> None:
        self._deadlines = {**DEADLINES, **(deadlines or {})}
        self._provider = provider

    async def _deadline(self, call: Call) -> float:
        deadline = self._deadlines[call.operation]
        packs = call.operation in (Operation.ARCHIVE, Operation.START)
        if not packs or self._provider is None or not self._provider.capabilities.archive:
            return deadline
        try:
            async with asyncio.timeout(self._deadlines[Operation.OBSERVE]):
                seen = await self._provider.observe(call.arguments["ref"])
        except (PaddockError, TimeoutError):
            return deadline  # the call itself will say what is wrong
        if call.operation is Operation.START and seen.state is not SandboxState.ARCHIVED:
            return deadline
        return deadline + seen.resources.disk_mib / PACKED_MIB_PER_S

    async def around(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        deadline = await self._deadline(call)
        try:
            async with asyncio.timeout(deadline) as scope:
                return await proceed()
        except TimeoutError as late:
            # A TimeoutError of the provider's own is not ours to explain.
            if not scope.expired():
                raise
            if call.operation is Operation.CHECK:
                return cast(T, _unanswered(call.provider, deadline))
            raise TimedOut(
                f"provider {call.provider} did not finish {call.operation} within {deadline:g} s",
                remediation="try again; if it persists, look at the provider's health with "
                "`paddock doctor`",
            ) from late


def _unanswered(provider: str, deadline: float) -> Health:
    """check() raises nothing: that no answer came is what was found."""
    finding = Finding(
        name=provider,
        status=Status.MISSING,
        found=f"no answer within {deadline:g} s",
        fix="see whether the provider can be reached from this machine",
    )
    return Health(usable=False, findings=(finding,))
