"""Which network a container has: none, the fence of an allowlist, or the open one.

In an order that can be cut off anywhere: one that has a policy is off the open network, or will be
when it is mended.
"""

from paddock.adapters.providers.docker.life import Life
from paddock.adapters.providers.docker.records import JOINED, Container
from paddock.domain.egress import EgressPolicy, NetworkMode


async def fit_network(life: Life, container: Container, policy: EgressPolicy) -> None:
    """The one that a policy says, whatever it had before."""
    fencing = life.machines.fencing
    fencing.check(policy, joined=container.record.guest == JOINED)
    match policy.mode:
        case NetworkMode.OPEN:
            await fencing.open(container)
            life.on_step("egress.unfenced")
            await life.network.attach(container)
        case NetworkMode.ALLOWLIST:
            await fencing.keep(container.id, policy)
            life.on_step("egress.kept")
            await life.network.detach(container)
            life.on_step("egress.detached")
            await fencing.change(container, policy)
        case NetworkMode.NONE:
            await life.network.detach(container)
            life.on_step("egress.detached")
            await fencing.cut(container.id)


async def mend_network(life: Life, ref: str) -> bool:
    """As its policy says, after whatever has happened; whether its fence had been missing."""
    container = await life.inspect(ref)
    if not life.is_ours(container):
        return False  # another process is making it, or has it in its care
    async with life.held(ref) as container:
        fencing = life.machines.fencing
        if life.names.network in container.networks and await fencing.policies.read(ref):
            await life.network.detach(container)
        return await fencing.mend(container)
