"""What becomes of a task: followed, steered, ended, and what it leaves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import aiohttp

from paddock.domain.errors import TimedOut, Unavailable
from paddock.domain.ids import new_id
from paddock.interfaces.client import failures
from paddock.interfaces.client.events import events_of
from paddock.interfaces.client.following import messages, streaming
from paddock.interfaces.client.results import Event, read
from paddock.interfaces.client.server import Call, Pauses
from paddock.interfaces.client.task_orders import AsyncTaskOrders
from paddock.interfaces.client.task_results import Diff, MessageInfo, TaskInfo

ENDS = ("task.completed", "task.failed", "task.cancelled")
_NOTHING = -1
_CUT = "x-paddock-cut"


class AsyncTaskCourse(AsyncTaskOrders):
    """The course of one task. Every verb may be repeated."""

    async def wait(self, timeout: float | None = None) -> TaskInfo:
        """Until it is over: completed, failed or cancelled. TimedOut when that takes longer; it
        goes on."""
        try:
            async with asyncio.timeout(timeout):
                async for _ in self.events(kinds=ENDS):
                    pass
                return await self.info()
        except TimeoutError:
            raise TimedOut(
                f"task {self.id} is not over after {timeout:g} s",
                remediation="it goes on; wait longer, or cancel it",
            ) from None

    async def events(
        self, *, after: int = 0, kinds: Sequence[str] = (), follow: bool = True
    ) -> AsyncIterator[Event]:
        """Its events from the first on, and then as they happen, until it is over; each once, also
        when the connection breaks or the server restarts. Of some kinds, and the last."""
        pauses, last, told, kind = Pauses(), after, _NOTHING, ""
        # One that is over, and of which nothing new was told, has no more to tell.
        while last != told or not (await self.info()).is_over:
            query = {"after": last, "kind": list(kinds), "follow": follow}
            call = streaming("GET", f"{self._path}/events", query=query)
            failure = Unavailable(f"{self._server.url} ended the events of task {self.id}")
            told = last
            try:
                async for event in events_of(messages(self._server, call)):
                    pauses.begin()
                    last, kind = event.seq, event.kind
                    yield event
            except Unavailable as error:
                failure, told = error, _NOTHING
            if not follow or kind in ENDS:
                return
            await pauses.wait(failure, self._server.patience_s(failure))

    async def send(self, text: str, *, mode: str = "now", ttl: float | None = None) -> MessageInfo:
        """Tell its agent something while it works: `now` at the next tool boundary, at the end of
        this `turn`, or at once as an `interrupt`. InvalidRequest for a mode that it lacks. With a
        `ttl` in seconds it is delivered by then or never."""
        answer = await self._server.call(
            "POST",
            f"{self._path}/messages",
            json={"text": text, "mode": mode, **({} if ttl is None else {"ttl_s": ttl})},
            key=new_id("key"),
        )
        return read(MessageInfo, answer)

    async def messages(self) -> AsyncIterator[MessageInfo]:
        """What its agent was told, with receipts, in the order in which it was sent."""
        async for item in self._server.pages(f"{self._path}/messages", {}):
            yield read(MessageInfo, item)

    async def diff(self) -> Diff:
        """What it changed. Conflict while that is not known."""
        cut: list[bool] = []
        text = b"".join([piece async for piece in self._pieces("diff", lambda: cut.append(True))])
        return Diff(text, is_cut=any(cut))

    async def output(self, on_cut: Callable[[], object] | None = None) -> AsyncIterator[bytes]:
        """What its agent has written so far, as it wrote it, piece by piece. `on_cut` is called
        first if it wrote more than is kept."""
        async for piece in self._pieces("output", on_cut):
            yield piece

    async def _pieces(self, what: str, on_cut: Callable[[], object] | None) -> AsyncIterator[bytes]:
        call = Call("GET", f"{self._path}/{what}")
        async with self._server.open(call) as response:
            if on_cut is not None and response.headers.get(_CUT) == "true":
                on_cut()
            try:
                async for piece in response.content.iter_any():
                    yield piece
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise failures.interrupted(self._server.url, f"GET {call.path}", error) from error
