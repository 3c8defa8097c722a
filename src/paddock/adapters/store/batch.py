"""Works that are committed together, each of them whole or not at all."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from paddock.adapters.store.faults import Explain, concerns_all
from paddock.adapters.store.transaction import SqlTransaction
from paddock.domain.event import Event
from paddock.ports.store import Transaction


@dataclass(slots=True, eq=False)
class Job:
    """One work, who waits for it, and what came of it."""

    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    events: Sequence[Event] = ()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.future.get_loop()

    def fail(self, error: BaseException, cause: BaseException) -> None:
        if error is not cause:
            error.__cause__ = cause
        self.result, self.error, self.events = None, error, ()

    def settle(self) -> None:
        """Tell who waits, in their event loop; they may have given up."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


def perform(connection: Connection, jobs: Sequence[Job], explain: Explain) -> bool:
    """Do the works one after the other; whether there is anything to commit.

    A work that fails is undone alone, and one that nobody waits for any more is left out. What is
    raised concerns them all: nothing of any is left.
    """
    apart, done = len(jobs) > 1, False
    for job in jobs:
        if job.future.cancelled():
            continue
        job.result, job.error, job.events = None, None, ()
        # SQLAlchemy's own savepoints cost more than most works: they are compiled every time.
        try:
            if apart:
                connection.exec_driver_sql("SAVEPOINT work")
            transaction = SqlTransaction(connection)
            job.result = job.work(transaction)
            job.events = tuple(transaction.events.appended)
            done = True
        except Exception as error:
            known = explain(error)
            if concerns_all(known):
                raise
            if apart:
                connection.exec_driver_sql("ROLLBACK TO SAVEPOINT work")
            job.fail(known or error, error)
        if apart:
            connection.exec_driver_sql("RELEASE SAVEPOINT work")
    return done
