"""Messages that no agent had in time: they end as expired, whatever their tasks are doing."""

import logging

from paddock.domain import conversation as talks
from paddock.domain.errors import PaddockError
from paddock.domain.message import Message
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services import task_mail

_log = logging.getLogger(__name__)
EVERY_S = 1.0


class MessageExpiry:
    """Looks again and again. Whoever follows an agent sees to what its adapter has been given."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, float | None] = {}
        """Of those that wait, until when; their texts are not read each time."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except PaddockError as error:
                _log.warning("messages not looked at", extra={"error": error.message})
            except Exception:  # noqa: BLE001 - whatever it was, messages are looked at again
                _log.exception("messages not looked at")
            await self._clock.sleep(EVERY_S)

    async def look(self) -> None:
        self._known = await self._store.read(self._read)
        now = self._clock.wall()
        late = [name for name, until in self._known.items() if until is not None and until <= now]
        if late:
            await self._store.write(lambda tx: _expire(tx, late, now))

    def _read(self, tx: Transaction) -> dict[str, float | None]:
        return {
            name: self._known[name] if name in self._known else _until(tx, name)
            for name in tx.messages.queued()
        }


def _until(tx: Transaction, message_id: str) -> float | None:
    found = tx.messages.get(ANY_TEAM, message_id)
    return found.expires_at if found is not None else None


def _expire(tx: Transaction, late: list[str], now: float) -> None:
    found = [each for each in (tx.messages.get(ANY_TEAM, name) for name in late) if each]
    task_mail.note_expired(tx, [each.id for each in found if not _is_in_hand(tx, each)], now)


def _is_in_hand(tx: Transaction, message: Message) -> bool:
    """An adapter has it, which may have passed it on: only whoever follows the agent knows."""
    task = tx.tasks.get(ANY_TEAM, message.task_id)
    return task is not None and talks.is_in_hand(task.conversation, message.id)
