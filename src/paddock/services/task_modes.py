"""Who is only to look, or to judge, leaves everything as it was: it is looked at, and put back."""

from dataclasses import replace
from typing import Any

from paddock.domain.agent import WorkMode
from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord
from paddock.domain.task_course import Next, Step
from paddock.domain.task_review import mode_at
from paddock.ports.clock import Clock
from paddock.services.task_events import note
from paddock.services.task_hold import Hold
from paddock.services.task_reviews import mark_of
from paddock.services.task_workspace import Workspaces

_NAMED = 10
_MOST = 1000


class Modes:
    """The same for every task."""

    def __init__(self, clock: Clock, workspaces: Workspaces) -> None:
        self._clock = clock
        self._workspaces = workspaces

    async def keep(self, hold: Hold) -> Next | None:
        """What its run has changed is put back, and that is told. How the task ends where that, or
        that nobody can say, is its end."""
        mode, mark = mode_at(hold.task.wish, hold.task.conversation.stage), mark_of(hold.task)
        if mode is WorkMode.IMPLEMENT or not hold.task.conversation.run:
            return None
        run = hold.task.conversation.run
        got: dict[str, Any] = await hold.step(
            f"mode.{run}", lambda: self._put_back(hold.task, mark), _with_reverted, self._told
        )
        if why := got["unseen"]:
            why = f"whether the agent kept to the mode {mode} cannot be seen: {why}"
            return Next(Step.FAIL, "", Reason.SURROUNDINGS, why)
        if not got["files"] or mode is WorkMode.VALIDATE:
            return None
        why = f"the agent was only to look, and changed {_names(got['files'])}; that was put back"
        return Next(Step.FAIL, "", Reason.CHANGED_FILES, why)

    async def _put_back(self, task: TaskRecord, mark: str) -> dict[str, Any]:
        try:
            async with self._workspaces.tree(task) as tree:
                files, unread = await tree.drift(mark)
                kept = await tree.revert(mark) if files or unread else ""
        except PaddockError as error:
            if error.passes or await self._workspaces.is_lost(task):
                raise
            return {"files": [], "kept": "", "unseen": error.message}
        return {"files": files[:_MOST], "kept": kept, "unseen": unread}

    def _told(self, task: TaskRecord, got: dict[str, Any]) -> list[Event]:
        if not got["files"]:
            return []
        data = {"kept": got["kept"], "files": got["files"][:_NAMED], "count": len(got["files"])}
        return [note(task, EventKind.TASK_REVERTED, self._clock.wall(), data)]


def _with_reverted(task: TaskRecord, got: dict[str, Any]) -> TaskRecord:
    return replace(task, reverted=tuple(dict.fromkeys((*task.reverted, *got["files"]))))


def _names(files: list[str]) -> str:
    more = len(files) - _NAMED
    return f"{', '.join(files[:_NAMED])}{f' and {more} more' if more > 0 else ''}"
