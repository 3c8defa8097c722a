"""What must not be kept of the names of hosts that a sandbox's programs ask for."""

from paddock.domain.broker.masking import NameMask, secret_values
from paddock.domain.records import SandboxRecord
from paddock.ports.store import Store, Transaction
from paddock.services.intake import Inside


async def name_mask(store: Store, inside: Inside, sandbox: SandboxRecord) -> NameMask:
    """Raises what is worth trying again where that cannot be known now."""

    def guessed(tx: Transaction) -> dict[str, str]:
        task = tx.tasks.get(sandbox.team_id, sandbox.task) if sandbox.task else None
        return secret_values(sandbox.env) | (secret_values(task.wish.env) if task else {})

    return NameMask(await inside(sandbox), await store.read(guessed))
