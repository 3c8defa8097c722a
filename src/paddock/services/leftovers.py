"""Agents whose task is over, in sandboxes that could not be reached then: they do not go on."""

import logging
from contextlib import suppress
from dataclasses import replace

from paddock.domain import conversation as talks
from paddock.domain.errors import Conflict, NotFound, PaddockError
from paddock.domain.ids import is_id
from paddock.domain.records import SandboxRecord
from paddock.domain.task import TASK_PREFIX, TaskRecord, TaskState
from paddock.ports.store import ANY_TEAM, Page, Store, Transaction
from paddock.ports.tasks import TaskFilter
from paddock.services.guests import Guests

_log = logging.getLogger(__name__)
_OVER = frozenset(state for state in TaskState if state.is_final)
_TASKS = Page(50)


class Leftovers:
    """What says that an agent was left is on record with its task: nothing else has to be kept."""

    def __init__(self, store: Store, guests: Guests) -> None:
        self._store = store
        self._guests = guests

    async def woken(self, sandbox: SandboxRecord) -> None:
        """It has just begun to run again. A guest that does not answer hinders nobody: what works
        in it then is seen when somebody goes in."""
        left = await self._store.read(lambda tx: _left_in(tx, sandbox))
        if not left:
            return
        try:
            await self.end(sandbox)
        except PaddockError as error:
            details = {"id": sandbox.id, "error": error.message}
            _log.warning("agents whose tasks are over were not ended", extra=details)

    async def end(self, sandbox: SandboxRecord) -> None:
        """Those that run in it are killed, with all of their processes. Asked of the guest, which
        knows also of those whose task was forgotten."""
        guest = await self._guests.of(sandbox)
        running = [run.key for run in await guest.runs.list() if run.exit is None]
        over = await self._store.read(lambda tx: [key for key in running if _is_over(tx, key)])
        for key in over:
            with suppress(Conflict, NotFound):  # it has ended meanwhile
                await guest.runs.signal(key, "SIGKILL")
                _log.info("agent ended whose task is over", extra={"run": key})
        await self._store.write(lambda tx: _note_ended(tx, sandbox))


def _is_over(tx: Transaction, key: str) -> bool:
    name = key.rpartition(".")[0]
    if not is_id(name, TASK_PREFIX):
        return False  # somebody's own
    task = tx.tasks.get(ANY_TEAM, name)
    return task is None or task.state.is_final


def _left_in(tx: Transaction, sandbox: SandboxRecord) -> list[TaskRecord]:
    wanted = TaskFilter(states=_OVER, sandbox_id=sandbox.id)
    found = tx.tasks.list(sandbox.team_id, wanted, _TASKS)
    return [each for each in found if each.conversation.is_running and each.conversation.is_started]


def _note_ended(tx: Transaction, sandbox: SandboxRecord) -> None:
    for task in _left_in(tx, sandbox):
        ended = talks.ended(task.conversation, None, is_lost=True)
        tx.tasks.replace(replace(task, conversation=ended))
