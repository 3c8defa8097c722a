"""What sandboxes keep of tasks that nobody knows any more goes, as far as they run.

Checkpoints are in the sandbox: see `task_tree`. Those of a task that was deleted go with it; of
others that are not on record, which a copy of a sandbox or a long sleep leaves, so many stay.
"""

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.guest import CommandResult
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TaskRecord, TaskState
from paddock.ports.store import Store, Transaction
from paddock.services.inside import Inside
from paddock.services.system import system
from paddock.services.task_tree_scripts import LIST, PRUNE
from paddock.services.transfers import TransferGuest

_log = logging.getLogger(__name__)
MOST_UNKNOWN = 20
"""Tasks that are not on record and whose checkpoints are kept nevertheless: the newest ones."""
_LOOK_S = 30.0
_PRUNE_S = 120.0
_MOST_OUTPUT = 8 << 20
_MOST_LOOKED_AT = 2000
_SAID = 300
_EXPIRE = "2.hours.ago"
"""What a task has made there, or is just making, may have no name yet."""
_A_TIME = re.compile(r"[0-9]{1,12}")


class Trees:
    """Of every sandbox. None is woken for it, and what cannot be done is no fault of who asked."""

    def __init__(self, store: Store, inside: Inside) -> None:
        self._store = store
        self._inside = inside

    async def forget(self, tasks: Iterable[TaskRecord]) -> None:
        """They are not on record any more."""
        by_sandbox: dict[tuple[str, str], set[str]] = {}
        for task in tasks:
            if task.checkpoint and task.sandbox_id:
                by_sandbox.setdefault((task.team_id, task.sandbox_id), set()).add(task.id)
        for (team_id, sandbox_id), gone in by_sandbox.items():
            if await self._store.read(partial(_can_enter, team_id, sandbox_id)):
                await self._tidy(team_id, sandbox_id, gone)

    async def _tidy(self, team_id: str, sandbox_id: str, gone: Collection[str]) -> None:
        try:
            who = system(team_id, "tasks")
            async with self._inside.enter(who, sandbox_id, "") as entered:
                await self.tidy(entered.guest, gone)
        except PaddockError as error:
            told = {"sandbox": sandbox_id, "why": error.message}
            _log.warning("checkpoints were not removed", extra=told)

    async def tidy(self, guest: TransferGuest, gone: Collection[str] = ()) -> None:
        """Without those that are gone, and with no more than so many that nobody knows."""
        listed = await _run(guest, LIST)
        if listed.exit_code or listed.truncated:
            raise Conflict(f"checkpoints could not be listed ({listed.exit_code})")
        found = _newest_first(listed.stdout)
        if not gone and len(found) <= MOST_UNKNOWN:
            return
        looked_at = found[:_MOST_LOOKED_AT]
        known = await self._store.read(lambda tx: tx.tasks.states(looked_at))
        if dropped := to_drop(looked_at, known, gone):
            ran = await _run(guest, PRUNE, _EXPIRE, stdin="\n".join(dropped), timeout=_PRUNE_S)
            if ran.exit_code:
                said = ran.stderr.decode("utf-8", "replace").strip()[-_SAID:]
                raise Conflict(f"checkpoints could not be removed ({ran.exit_code}): {said}")


def to_drop(
    found: Sequence[str], known: Mapping[str, TaskState], gone: Collection[str]
) -> list[str]:
    """Of the tasks that something is kept of, newest first."""
    unknown = [each for each in found if each not in known and each not in gone]
    return [*sorted(gone), *unknown[MOST_UNKNOWN:]]


def _newest_first(listed: bytes) -> list[str]:
    when: dict[str, int] = {}
    for line in listed.decode("utf-8", "replace").splitlines():
        made, _, name = line.partition(" ")
        task = name.removeprefix("refs/paddock/").partition("/")[0]
        if task:
            # It is said by a program of the sandbox, which may say anything.
            when[task] = max(when.get(task, 0), int(made) if _A_TIME.fullmatch(made) else 0)
    return sorted(when, key=lambda task: when[task], reverse=True)


def _can_enter(team_id: str, sandbox_id: str, tx: Transaction) -> bool:
    box = tx.sandboxes.get(team_id, sandbox_id)
    return box is not None and box.state is SandboxState.RUNNING and box.quarantine is None


async def _run(
    guest: TransferGuest, script: str, *args: str, stdin: str = "", timeout: float = _LOOK_S
) -> CommandResult:
    return await guest.exec(
        ("/bin/sh", "-c", script, "sh", *args),
        env={"LC_ALL": "C"},
        stdin=stdin.encode(),
        timeout=timeout,
        max_output=_MOST_OUTPUT,
    )
