"""Sizes of snapshots before they are taken, for the team's disk quota."""

from paddock.domain.errors import PaddockError
from paddock.domain.quota import MIB, QuotaName
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import Resources
from paddock.ports.provider import Ref, Usage
from paddock.ports.store import Store
from paddock.services.providers import Providers


async def estimate(
    store: Store, providers: Providers, sandbox: SandboxRecord, *, memory: bool
) -> int | None:
    """Return the most bytes that a snapshot will have; None if the team's disk is not limited."""
    limits = await store.read(lambda tx: tx.quotas.in_force(sandbox.team_id))
    if limits.get(QuotaName.DISK_MIB) is None:
        return None  # measuring may take a while
    try:
        provider = providers.get(sandbox.provider)
        usage = await provider.usage(Ref(sandbox.provider, sandbox.ref))
    except PaddockError:  # the provider cannot measure, or not now
        usage = Usage()
    return size_of(usage, sandbox.resources, memory=memory)


def size_of(usage: Usage, resources: Resources, *, memory: bool) -> int:
    """Return the bytes that a sandbox uses. Where that is unknown, those that it may use."""
    size = resources.disk_mib * MIB if usage.disk_bytes is None else usage.disk_bytes
    if not memory:
        return size
    return size + (resources.memory_mib * MIB if usage.memory_bytes is None else usage.memory_bytes)
