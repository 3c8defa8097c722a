"""The store on SQLAlchemy: one writer, many readers, on SQLite or PostgreSQL."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.place import File, Server, parse
from paddock.adapters.store.writer import Transact, Writer
from paddock.domain.errors import PaddockError, Unavailable
from paddock.domain.event import Event
from paddock.ports.store import Store, Transaction

T = TypeVar("T")

_MOST_SAVEPOINTS = 60
"""In one transaction of PostgreSQL: above 64, everybody's reading becomes slower."""


class Database(Protocol):
    """What is different between the databases."""

    @property
    def is_shared(self) -> bool: ...

    @property
    def was_unused(self) -> bool: ...

    def explain(self, error: BaseException) -> PaddockError | None: ...

    def writing(self) -> AbstractContextManager[Transact]:
        """For the writer's thread."""
        ...

    async def read(self, work: Callable[[Transaction], T]) -> T: ...

    async def ping(self) -> None: ...

    async def aclose(self) -> None: ...


class SqlStore:
    """The port's `Store`."""

    def __init__(self, database: Database, config: StoreConfig) -> None:
        self._database = database
        self._closed = False
        self._writer = Writer(database.writing, database.explain, config)

    @property
    def is_shared(self) -> bool:
        return self._database.is_shared

    @property
    def was_unused(self) -> bool:
        return self._database.was_unused

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._check_open()
        done: T = await self._writer.submit(work)
        return done

    async def read(self, work: Callable[[Transaction], T]) -> T:
        self._check_open()
        return await self._database.read(work)

    def on_events(self, hear: Callable[[Sequence[Event]], None]) -> None:
        self._writer.on_events(hear)

    async def ping(self) -> None:
        self._check_open()
        await self._database.ping()

    async def aclose(self) -> None:
        """Return when everything that was submitted is done."""
        self._closed = True
        await self._writer.aclose()
        await self._database.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed", remediation="open it again")


@asynccontextmanager
async def open_store(place: str | Path, config: StoreConfig | None = None) -> AsyncIterator[Store]:
    """The store at a path (SQLite) or URL (`postgresql://…`), made or brought up to date first.

    InvalidRequest when what is there is not Paddock's, or of a newer version; Unavailable when it
    cannot be reached; Broken when it is damaged.
    """
    config, where = config or StoreConfig(), parse(place)
    if isinstance(where, Server):
        config = replace(config, batch=min(config.batch, _MOST_SAVEPOINTS))
    store = SqlStore(await _open(where, config), config)
    try:
        yield store
    finally:
        await store.aclose()


async def _open(where: File | Server, config: StoreConfig) -> Database:
    # Each brings its driver; the other's is not even imported.
    if isinstance(where, File):
        from paddock.adapters.store.sqlite import SqliteDatabase

        return await SqliteDatabase.open(where.path, config)
    from paddock.adapters.store.postgres import PostgresDatabase

    return await PostgresDatabase.open(where, config)
