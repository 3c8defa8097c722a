"""Which of the local provider's sandboxes have a fence, and what of them it is about."""

from paddock.adapters.providers.host.fences import Enclosed
from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.egress import NetworkMode


def is_fenced(record: SandboxRecord) -> bool:
    """Whether its network is turned to the gateway, and the gateway serves it."""
    waits = record.pooled and record.egress.mode is NetworkMode.NONE
    may_be = record.machine is not None and runtime.choose(record.runtime).joinable
    return may_be and (waits or record.egress.mode is NetworkMode.ALLOWLIST)


def enclosed(record: SandboxRecord) -> Enclosed:
    """One that has a machine."""
    assert record.machine is not None
    return Enclosed(record.ref, record.machine.init, record.egress, record.labels)
