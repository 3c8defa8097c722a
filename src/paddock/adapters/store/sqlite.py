"""SQLite: one thread that writes, some that read, each with a connection of its own."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from paddock.adapters.store import schema, sqlite_faults
from paddock.adapters.store.batch import Job, perform
from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.migrate import migrate, revision
from paddock.adapters.store.sqlite_file import Owned, create, identity, opening, own
from paddock.adapters.store.transaction import SqlTransaction
from paddock.adapters.store.writer import Transact
from paddock.domain.errors import InvalidRequest, PaddockError, Unavailable
from paddock.ports.store import Transaction

T = TypeVar("T")

_DRIVER = (SQLAlchemyError, sqlite3.Error)
_WAL_LIMIT = 64 * 1024 * 1024


class SqliteDatabase:
    """A database in a file."""

    def __init__(self, path: Path, config: StoreConfig, owned: Owned) -> None:
        self._path = path
        self._config = config
        self._owned = owned
        self._file = identity(path)
        self._readers = ThreadPoolExecutor(config.readers, thread_name_prefix="paddock-read")
        self._reading = _engine(
            path, config, begin="BEGIN", connections=config.readers, query_only="ON"
        )

    @classmethod
    async def open(cls, path: Path, config: StoreConfig) -> "SqliteDatabase":
        return cls(path, config, await asyncio.to_thread(_prepare, path, config))

    @property
    def is_shared(self) -> bool:
        """Unless it is ours alone, nothing keeps another process from writing to the file."""
        return not self._config.exclusive

    @property
    def was_unused(self) -> bool:
        """Of those who share it, nobody knows whether another was first."""
        return self._config.exclusive

    def explain(self, error: BaseException) -> PaddockError | None:
        return sqlite_faults.explain(error, str(self._path))

    @contextmanager
    def writing(self) -> Iterator[Transact]:
        engine = _engine(self._path, self._config, begin="BEGIN IMMEDIATE")
        try:
            yield partial(self._transact, engine)
        finally:
            engine.dispose()

    def _transact(self, engine: Engine, jobs: Sequence[Job]) -> None:
        with engine.connect() as connection, connection.begin() as transaction:
            if not perform(connection, jobs, self.explain):
                transaction.rollback()

    async def read(self, work: Callable[[Transaction], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, self._read, work)
        except _DRIVER as error:
            known = self.explain(error)
            raise (known or error) from error

    def _read(self, work: Callable[[Transaction], T]) -> T:
        with self._reading.connect() as connection, connection.begin():
            return work(SqlTransaction(connection))

    async def ping(self) -> None:
        """Without its name the file could still be written, and would be lost with the process."""
        if identity(self._path) != self._file:
            raise Unavailable(
                f"database {self._path}: the file was removed or replaced while in use",
                remediation="put it back, or restore a backup, and start Paddock again",
            )
        await self.read(lambda transaction: transaction.events.last_seq())

    async def aclose(self) -> None:
        await asyncio.to_thread(self._readers.shutdown)
        self._reading.dispose()
        self._owned.close()


def _prepare(path: Path, config: StoreConfig) -> Owned:
    """The file with the tables of this version, in our hands."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        owned = own(path, config)
    except OSError as error:
        raise InvalidRequest(
            f"database {path}: {error.strerror or error}",
            remediation="name a file in a directory that this user may write to",
        ) from error
    try:
        with opening(path, config.wait_s):
            create(path)
            _upgrade(path, config)
    except _DRIVER as error:
        owned.close()
        raise (sqlite_faults.explain(error, str(path)) or error) from error
    except BaseException:
        owned.close()
        raise
    return owned


def _upgrade(path: Path, config: StoreConfig) -> None:
    reading = _engine(path, config, begin="BEGIN")
    try:
        with reading.begin() as connection:
            if revision(connection) == schema.REVISION:
                return
    finally:
        reading.dispose()
    # Tables that are made anew must not take the rows with them that point at the old ones.
    writing = _engine(path, config, begin="BEGIN IMMEDIATE", foreign_keys="OFF")
    try:
        with writing.begin() as connection:
            migrate(connection, str(path), own_database=True)
            _check_references(connection, path)
    finally:
        writing.dispose()


def _check_references(connection: Connection, path: Path) -> None:
    if lost := connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise InvalidRequest(
            f"database {path}: a row of {lost[0]} belongs to one of {lost[2]} that is missing",
            remediation="restore a backup; nothing was changed",
        )


def _engine(
    path: Path, config: StoreConfig, *, begin: str, connections: int = 1, **pragmas: str
) -> Engine:
    # Never made by connecting: a file that was taken away is an error, not an empty database.
    address = f"file:{quote(str(path))}?mode=rw"
    settings = {
        "synchronous": config.synchronous,
        "foreign_keys": "ON",
        "journal_size_limit": str(_WAL_LIMIT),
        **pragmas,
    }

    def connect() -> sqlite3.Connection:
        # SQLAlchemy's pool hands a connection to one thread at a time.
        return sqlite3.connect(
            address,
            uri=True,
            timeout=config.wait_s,
            isolation_level=None,
            check_same_thread=False,
        )

    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        hide_parameters=True,
    )
    event.listen(engine, "connect", partial(_set_up, path, settings))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _set_up(path: Path, settings: dict[str, str], connection: sqlite3.Connection, _: Any) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise InvalidRequest(
            f"database {path}: its file system does not allow a write-ahead log",
            remediation="use a local disk, not a network's",
        )
    for name, value in settings.items():
        connection.execute(f"PRAGMA {name} = {value}")
