"""Which task pays for the model use of a sandbox, and what it has paid so far."""

import asyncio
import logging

from paddock.domain.errors import PaddockError
from paddock.domain.records import SandboxRecord
from paddock.domain.task import TaskRecord
from paddock.services.broker import Broker
from paddock.services.egress_log import EgressLog

_log = logging.getLogger(__name__)
_SETTLE_S = 5.0


class TaskAccounts:
    """Charges model use to the task that runs in the sandbox."""

    def __init__(self, broker: Broker, egress_log: EgressLog) -> None:
        self._broker = broker
        self._egress_log = egress_log

    async def switch(self, sandbox: SandboxRecord) -> None:
        """Return once the gateway charges the sandbox's requests to the task on its record."""
        await self._broker.give(sandbox)

    async def settle(self, task: TaskRecord) -> None:
        """Store what the gateway has counted for the task. A gateway that does not answer does not
        delay the task's end: its counts are stored when it answers again."""
        try:
            async with asyncio.timeout(_SETTLE_S):
                await self._egress_log.settle(task.provider)
        except (PaddockError, TimeoutError) as error:
            _log.warning("cost not settled", extra={"task": task.id, "why": str(error)})
