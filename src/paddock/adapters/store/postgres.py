"""PostgreSQL: one connection that writes, under a lock that all processes share, some that read."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import asyncpg
from sqlalchemy import Connection, func, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from paddock.adapters.store import postgres_faults, schema
from paddock.adapters.store.batch import Job, perform
from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.migrate import migrate, revision
from paddock.adapters.store.place import Server
from paddock.adapters.store.postgres_faults import DRIVER, is_lost, is_repeatable
from paddock.adapters.store.presence import Presence
from paddock.adapters.store.transaction import SqlTransaction
from paddock.adapters.store.writer import Transact
from paddock.domain.errors import PaddockError
from paddock.ports.store import Transaction

T = TypeVar("T")

_ATTEMPTS = 5
# Whoever holds it is the only one who writes to this database, in any process, until the commit:
# what a transaction has read is still so when it writes, and numbers become visible in order.
_TAKE_WRITE_LOCK = select(func.pg_advisory_xact_lock(0x7061646B))


class _Again(Exception):
    """The server asks for another attempt, or its connection was lost before anything was done."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class PostgresDatabase:
    """A database on a server."""

    is_shared = True

    def __init__(self, server: Server, config: StoreConfig) -> None:
        self._server = server
        self._config = config
        self._presence = Presence(partial(_connect, server, config))
        self.was_unused = False
        self._reading = _engine(server, config, pool_size=config.readers).execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    @classmethod
    async def open(cls, server: Server, config: StoreConfig) -> "PostgresDatabase":
        database = cls(server, config)
        try:
            if await database._call(revision) != schema.REVISION:
                # In a thread with a loop of its own: Alembic can do one migration at a time in a
                # process, and waiting for that must not stop anybody's event loop.
                await asyncio.to_thread(asyncio.run, database._upgrade())
            database.was_unused = await database._appear()
        except BaseException:
            await database.aclose()
            raise
        return database

    async def _appear(self) -> bool:
        try:
            return await self._presence.begin()
        except DRIVER as error:
            raise (self.explain(error) or error) from error

    def explain(self, error: BaseException) -> PaddockError | None:
        return postgres_faults.explain(error, str(self._server))

    @contextmanager
    def writing(self) -> Iterator[Transact]:
        with asyncio.Runner() as runner:
            engine = _engine(self._server, self._config, pool_size=1)

            def transact(jobs: Sequence[Job]) -> None:
                runner.run(self._transact(engine, jobs))

            try:
                yield transact
            finally:
                runner.run(engine.dispose())

    async def _transact(self, engine: AsyncEngine, jobs: Sequence[Job]) -> None:
        for left in reversed(range(_ATTEMPTS)):
            try:
                await self._attempt(engine, jobs)
            except _Again as again:
                if not left:
                    raise again.error from again
                await asyncio.sleep(random.uniform(0, 0.02))  # noqa: S311 - no secret
            else:
                return

    async def _attempt(self, engine: AsyncEngine, jobs: Sequence[Job]) -> None:
        connected = committing = False
        try:
            async with engine.connect() as connection:
                connected = True
                await connection.execute(_TAKE_WRITE_LOCK)
                committing = await connection.run_sync(perform, jobs, self.explain)
                if committing:
                    await connection.commit()
        except DRIVER as error:
            undone = connected and not committing and is_lost(error)
            if undone or is_repeatable(error):
                raise _Again(error) from error
            raise

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._call(lambda connection: work(SqlTransaction(connection)))

    async def _call(self, function: Callable[[Connection], T]) -> T:
        """In a transaction for reading; once more when its connection had been lost unnoticed."""
        for attempt in (1, 2):
            connected = False
            try:
                async with self._reading.connect() as connection:
                    connected = True
                    return await connection.run_sync(function)
            except DRIVER as error:
                if attempt == 1 and connected and is_lost(error):
                    continue
                raise (self.explain(error) or error) from error
        raise AssertionError("the second attempt returns or raises")

    async def _upgrade(self) -> None:
        engine = _engine(self._server, self._config, pool_size=1)
        try:
            async with engine.begin() as connection:
                await connection.execute(_TAKE_WRITE_LOCK)
                await connection.run_sync(migrate, str(self._server), own_database=False)
        except DRIVER as error:
            raise (self.explain(error) or error) from error
        finally:
            await engine.dispose()

    async def ping(self) -> None:
        await self.read(lambda transaction: transaction.events.last_seq())

    async def aclose(self) -> None:
        await self._reading.dispose()
        await self._presence.aclose()


def _engine(server: Server, config: StoreConfig, *, pool_size: int) -> AsyncEngine:
    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=partial(_connect, server, config),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=config.wait_s,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
    )


async def _connect(server: Server, config: StoreConfig) -> asyncpg.Connection:
    # asyncpg reads the URL itself, with everything that libpq knows: sslmode, several hosts,
    # sockets, a password file.
    return await asyncpg.connect(
        server.dsn,
        timeout=config.wait_s,
        command_timeout=config.command_s,
        server_settings={
            "application_name": "paddock",
            "lock_timeout": _milliseconds(config.wait_s),
            # So that a process that hangs does not keep the lock for writing for ever, nor a host
            # that is gone its presence.
            "idle_in_transaction_session_timeout": _milliseconds(2 * config.command_s),
            "tcp_keepalives_idle": "30",
            "tcp_keepalives_interval": "10",
            "tcp_keepalives_count": "3",
        },
    )


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
