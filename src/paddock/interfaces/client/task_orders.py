"""What somebody wants of a task: that it stands still, goes on, ends, or is undone."""

from paddock.interfaces.client.results import read
from paddock.interfaces.client.server import Server, segment
from paddock.interfaces.client.task_results import TaskInfo


class AsyncTaskOrders:
    """One task, and how it is. Every verb may be repeated."""

    def __init__(self, server: Server, info: TaskInfo) -> None:
        self._server = server
        self._info = info
        self._path = f"/v1/tasks/{segment(info.id)}"

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def name(self) -> str:
        return self._info.name

    async def info(self) -> TaskInfo:
        """How it is now."""
        return self._told(await self._server.call("GET", self._path))

    async def cancel(self) -> TaskInfo:
        """Its agent is asked to end, then made to; `wait` says when. One that is over stays so."""
        return await self._asked("cancel")

    async def pause(self) -> TaskInfo:
        """Its agent stands still, and its clock with it; one that has not begun does not begin.
        Conflict for what is over, or waits for an answer."""
        return await self._asked("pause")

    async def resume(self) -> TaskInfo:
        """One goes on that somebody or its guardian has paused."""
        return await self._asked("resume")

    async def revert(self) -> TaskInfo:
        """The workspace is as it was before its agent began; what there is now is kept aside."""
        return await self._asked("revert")

    async def _asked(self, verb: str) -> TaskInfo:
        return self._told(await self._server.call("POST", f"{self._path}/{verb}", repeatable=True))

    def _told(self, answer: object) -> TaskInfo:
        self._info = read(TaskInfo, answer)
        return self._info
