"""Which network a running sandbox has: none, the fence of an allowlist, or the open one."""

from paddock.adapters.providers.local.fencing import enclosed
from paddock.adapters.providers.local.life import Life
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.egress import NetworkMode


async def fit_network(life: Life, record: SandboxRecord) -> SandboxRecord:
    """The one that its policy says, whatever it had before."""
    match record.egress.mode:
        case NetworkMode.OPEN:
            if record.network is None:
                machine = record.machine
                await life.fences.remove(record.ref, machine.init if machine else None)
                record = await life.connect(record)
        case NetworkMode.ALLOWLIST:
            record = await life.disconnect(record)
            await life.fences.change(enclosed(record))
        case NetworkMode.NONE:
            record = await life.disconnect(record)
            await life.fences.cut(record.ref)
    return record
