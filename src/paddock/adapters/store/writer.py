"""The one thread of a process that writes: what waits is committed together."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from paddock.adapters.store.batch import Job
from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.faults import REPORT_IT, Explain, first_line
from paddock.domain.errors import Broken, PaddockError, Unavailable
from paddock.domain.event import Event
from paddock.ports.store import Transaction

_log = logging.getLogger(__name__)

Transact = Callable[[Sequence[Job]], None]
"""Do these in one transaction, and commit it. What it raises concerns them all."""
Hear = Callable[[Sequence[Event]], None]


class Writer:
    """Takes works from any event loop, and tells each when it is committed.

    Listeners hear of events in the event loop that the writer was made in.
    """

    def __init__(
        self,
        writing: Callable[[], AbstractContextManager[Transact]],
        explain: Explain,
        config: StoreConfig,
    ) -> None:
        self._writing = writing
        self._explain = explain
        self._config = config
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._home = asyncio.get_running_loop()
        self._listeners: list[Hear] = []
        self._thread = threading.Thread(target=self._run, name="paddock-store", daemon=True)
        self._thread.start()

    def on_events(self, hear: Hear) -> None:
        self._listeners.append(hear)

    def submit(self, work: Callable[[Transaction], Any]) -> asyncio.Future[Any]:
        """The future of what the work returns. Cancelled before its turn, it is left out."""
        job = Job(work, asyncio.get_running_loop().create_future())
        # Held so that nothing comes after the end, where it would wait for ever.
        with self._lock:
            if self._closed:
                raise Unavailable("the store is closed", remediation="open it again")
            if self._queue.qsize() >= self._config.queue:
                raise Unavailable(
                    f"{self._config.queue} writes wait for the database already",
                    remediation="try again later; if it stays so, look at the database's disk",
                )
            self._queue.put(job)
        return job.future

    async def aclose(self) -> None:
        """Return when everything that was submitted is done."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        with self._writing() as transact:
            for jobs in self._batches():
                self._commit(transact, jobs)
                self._publish(jobs)

    def _batches(self) -> Iterator[list[Job]]:
        """Whatever has come since the last one, until the end."""
        while (first := self._queue.get()) is not None:
            jobs, ended = [first], False
            while len(jobs) < self._config.batch and not ended:
                try:
                    following = self._queue.get_nowait()
                except Empty:
                    break
                if following is None:
                    ended = True
                else:
                    jobs.append(following)
            yield jobs
            if ended:
                return

    def _commit(self, transact: Transact, jobs: Sequence[Job]) -> None:
        try:
            transact(jobs)
        # The thread outlives whatever happens to a batch; everybody in it is told.
        except BaseException as error:  # noqa: BLE001
            _log.warning("writes not committed count=%d error=%s", len(jobs), first_line(error))
            for job in jobs:
                job.fail(self._failure(error), error)

    def _failure(self, error: BaseException) -> PaddockError:
        return self._explain(error) or Broken(
            f"writing failed: {type(error).__name__}: {first_line(error)}", remediation=REPORT_IT
        )

    def _publish(self, jobs: Sequence[Job]) -> None:
        """Listeners first: who waits for a write finds that its events have been heard."""
        loops = {job.loop: None for job in jobs}
        if loops.keys() == {self._home}:  # to wake a loop costs more than most works
            _call(self._home, self._tell_and_settle, jobs)
            return
        if any(job.events for job in jobs):
            _call(self._home, self._tell, jobs)
        for loop in loops:
            _call(loop, _settle, [job for job in jobs if job.loop is loop])

    def _tell_and_settle(self, jobs: Sequence[Job]) -> None:
        self._tell(jobs)
        _settle(jobs)

    def _tell(self, jobs: Sequence[Job]) -> None:
        for events in (job.events for job in jobs if job.events):
            for hear in self._listeners:
                try:
                    hear(events)
                except Exception:  # noqa: BLE001 - one listener's fault is no other's
                    _log.exception("events not heard first=%d", events[0].seq)


def _settle(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.settle()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[Any], None], what: Any) -> None:
    # A loop that was closed has nobody left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, what)
