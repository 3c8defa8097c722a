"""Allowlists of containers whose network this process can enter.

The container has no network but loopback, into which the gateway's sockets are put. Which policy it
has is kept on the engine: one without is closed, so whatever is cut off in between closes it.
"""

from dataclasses import dataclass

from paddock.adapters.providers.docker.joined import first_process
from paddock.adapters.providers.docker.records import Container
from paddock.adapters.providers.docker.slips import Slips
from paddock.adapters.providers.host.fences import Enclosed, Fences
from paddock.domain.egress import EgressPolicy, NetworkMode
from paddock.domain.errors import Unsupported
from paddock.domain.sandbox import SandboxState

_WITH_NETWORK = (SandboxState.RUNNING, SandboxState.PAUSED)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a container may reach, kept while it is an allowlist."""

    container: str
    egress: EgressPolicy


@dataclass(frozen=True, slots=True)
class Fencing:
    """The fences of one installation's containers."""

    policies: Slips[Policy]
    fences: Fences | None
    why_not: str = ""
    """Why there are none here."""

    def check(self, policy: EgressPolicy, *, joined: bool) -> None:
        """Unsupported, with the reason, for one that cannot be enforced."""
        why = "" if joined else "no process of the host can enter this sandbox's network"
        if policy.mode is NetworkMode.ALLOWLIST and (why := self.why_not or why):
            raise Unsupported(
                f"the docker provider has no allowlist here: {why}",
                remediation="use the network `none` or `open`, or the local provider",
            )

    async def keep(self, container: str, policy: EgressPolicy) -> None:
        """It is in force when the container is started."""
        if policy.mode is NetworkMode.ALLOWLIST:
            await self.policies.write(Policy(container, policy))

    async def put(self, container: Container) -> None:
        """The fence that it should have, if any, around one that has just been started."""
        if self.fences is None:
            return
        if (kept := await self.policies.read(container.id)) is not None:
            await self.fences.put(_enclosed(container, kept.egress))

    async def change(self, container: Container, policy: EgressPolicy) -> None:
        """A policy that is kept is in force; the container has no other network by now."""
        if self.fences is not None and container.state in _WITH_NETWORK:
            await self.fences.change(_enclosed(container, policy))

    async def open(self, container: Container) -> None:
        """There is no fence any more, and its network is as it was."""
        await self.policies.remove(container.id)
        if self.fences is not None:
            init = first_process(container) if container.state in _WITH_NETWORK else None
            await self.fences.remove(container.id, init)

    async def cut(self, container: str) -> None:
        """It goes on running and reaches nothing any more, or that is an error."""
        await self.policies.remove(container)
        if self.fences is not None:
            await self.fences.cut(container)

    async def close(self, container: str) -> None:
        """It is gone; absent is success."""
        await self.leave(container)
        await self.policies.remove(container)

    def serves(self, container: str) -> bool:
        return self.fences is not None and container in self.fences.mine

    async def leave(self, container: str) -> None:
        """It does not run any more, and may be started again."""
        if self.fences is not None:
            await self.fences.shut(container)

    async def mend(self, container: Container) -> bool:
        """It has the fence that it should have, or none; whether one was missing."""
        if self.fences is None:
            return False
        kept = await self.policies.read(container.id)
        if kept is None or container.state not in _WITH_NETWORK:
            await self.fences.shut(container.id)
            return False
        self.fences.mine.add(container.id)
        if container.id in await self.fences.gateway.attached():
            return False
        await self.fences.put(_enclosed(container, kept.egress))
        return True

    async def known(self) -> set[str]:
        """Every container that has a policy or is served."""
        attached = await self.fences.gateway.attached() if self.fences is not None else frozenset()
        return {*attached, *(each.container for each in await self.policies.all())}


def _enclosed(container: Container, policy: EgressPolicy) -> Enclosed:
    return Enclosed(container.id, first_process(container), policy, container.record.labels)
