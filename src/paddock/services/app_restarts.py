"""The processes of an app are started anew: for which files, and which of them were."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from paddock.domain.errors import PaddockError
from paddock.domain.task import TaskRecord
from paddock.guest_client.processes import Processes
from paddock.services.task_tree import Tree
from paddock.services.transfers import TransferGuest

_LEAST_S = 5.0
"""So long there is in any case: what died is started again also where the time is up."""


async def changed_files(
    task: TaskRecord, guest: TransferGuest, left: float | None = None
) -> list[str]:
    """All files of the task, in whichever round they were changed. Where nobody can tell, or the
    time that is left is up, none: what died is started again anyway."""
    if left is not None and left <= 0:
        return []
    try:
        async with asyncio.timeout(left):
            tree = Tree(guest, task.directory, task.id, task.checkpoint)
            tree = replace(tree, after=await tree.keep("after"))
            return [each.path for each in await tree.changes()]
    except TimeoutError:
        return []
    except PaddockError as error:
        if error.retryable:
            raise
        return []


async def start_anew(
    processes: Processes, names: Sequence[str], left: float | None = None
) -> tuple[list[str], list[str]]:
    """Which were, and in words which were not. What may go well the next time is raised.

    None is begun when the time that is left is up; one that was is not broken off, because then it
    might be stopped and not started.
    """
    restarted: list[str] = []
    refused: list[str] = []
    until = None if left is None else time.monotonic() + max(left, _LEAST_S)
    for name in names:
        if until is not None and time.monotonic() >= until:
            refused.append(_said(name, "the task's time was up"))
            continue
        try:
            await processes.restart(name)
        except PaddockError as error:
            if error.retryable:
                raise
            refused.append(_said(name, error.message))
        else:
            restarted.append(name)
    return restarted, refused


def _said(name: str, why: str) -> str:
    return f"process {name} was not started anew: {why}"
