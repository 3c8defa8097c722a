"""Databases for tests: an SQLite file, or a new database on the PostgreSQL that all tests share.

A module whose control plane shall be tried on both says `EVERY_DATABASE = True`; its `database`
then is first the one and then the other. The second half is slow. A module that is about the
database itself says `EVERY_DATABASE = "test"`, and both halves run in `make test`.
"""

import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Self

import asyncpg
import pytest

from paddock.adapters.store.store import open_store
from paddock.domain.ids import new_ulid
from tests.daemons import CannotStart, stop_watched
from tests.postgres import start_postgres

TEMPLATE = f"paddock_template_{os.getpid()}"
_FIRST_OWN = 16_384
"""Objects with smaller numbers are PostgreSQL's."""
# Whatever a test may leave in a database besides rows.
_CATALOG = f"""
SELECT md5(string_agg(entry, ',' ORDER BY entry)) FROM (
  SELECT oid, concat(oid, relname, relkind, relnatts, reloptions) FROM pg_class
  UNION ALL SELECT attrelid, concat(attrelid, attname, atttypid, attnotnull) FROM pg_attribute
  UNION ALL SELECT oid, concat(oid, tgname, tgenabled) FROM pg_trigger
  UNION ALL SELECT oid, concat(oid, proname) FROM pg_proc
  UNION ALL SELECT oid, concat(oid, conname) FROM pg_constraint
  UNION ALL SELECT setdatabase, concat(setdatabase, setconfig) FROM pg_db_role_setting
) AS entries (id, entry) WHERE id >= {_FIRST_OWN}
"""
_END_OTHERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


_empty: list[bytes] = []
"""An SQLite database with our tables, once a test needed one."""


async def furnish_database(data_dir: Path) -> None:
    """Put an SQLite database with our tables into a new data directory.

    Applying the migrations costs more than the rest of a control plane's start together.
    `tests/adapters/store/test_opening.py` covers databases that do not exist yet.
    """
    file = data_dir / "paddock.db"
    if file.exists():
        return
    if not _empty:
        with tempfile.TemporaryDirectory(prefix="pd-") as directory:
            model = Path(directory) / "paddock.db"
            async with open_store(model):
                pass
            _empty.append(model.read_bytes())
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(_empty[0])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = getattr(metafunc.module, "EVERY_DATABASE", False)
    if wanted and "database" in metafunc.fixturenames:
        marks = () if wanted == "test" else (pytest.mark.slow,)
        kinds = ("sqlite", pytest.param("postgres", marks=marks))
        metafunc.parametrize("database", kinds, indirect=True, scope="module")


@pytest.fixture(scope="session")
def postgres(share: Any, need: Any) -> Iterator[str]:
    """Where databases can be made: a URL with `{}` for the name of one."""
    try:
        with share("postgres", start_postgres, stop_watched) as server:
            yield server["address"]
    except CannotStart as error:
        need("PostgreSQL", str(error))


@asynccontextmanager
async def administrating(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url.format("postgres"))
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(scope="session")
async def postgres_template(postgres: str) -> AsyncIterator[str]:
    """A database with our tables; a copy of it is made quicker than the tables are."""
    async with administrating(postgres) as connection:
        await connection.execute(f"CREATE DATABASE {TEMPLATE}")
        async with open_store(postgres.format(TEMPLATE)):
            pass
        yield TEMPLATE
        await connection.execute(f"DROP DATABASE {TEMPLATE} WITH (FORCE)")


@asynccontextmanager
async def new_database(
    url: str, template: str = "template0", options: str = ""
) -> AsyncIterator[str]:
    name = f"paddock_{new_ulid()}"
    async with administrating(url) as connection:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} {options}")
        try:
            yield url.format(name)
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class PostgresDatabase:
    """One database for many tests. A test that changes more than rows makes it be replaced."""

    def __init__(self, server: str, template: str) -> None:
        self._server = server
        self._template = template
        self._made = AsyncExitStack()
        self._catalog = ""
        self._rows: dict[str, list[asyncpg.Record]] = {}
        """Of every table, as migrations have left them."""
        self.place = ""

    async def __aenter__(self) -> Self:
        await self._make()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._made.aclose()

    async def _make(self) -> None:
        self.place = await self._made.enter_async_context(
            new_database(self._server, self._template)
        )
        connection = await asyncpg.connect(self.place)
        self._catalog = await connection.fetchval(_CATALOG)
        tables = await connection.fetch("SELECT relname FROM pg_stat_user_tables")
        self._rows = {name: await connection.fetch(f'TABLE "{name}"') for (name,) in tables}
        await connection.close()

    async def empty(self) -> None:
        connection = await asyncpg.connect(self.place)
        try:
            await connection.execute(_END_OTHERS)
            is_same = await connection.fetchval(_CATALOG) == self._catalog
            if is_same:
                await self._delete_rows(connection)
        finally:
            await connection.close()
        if not is_same:
            await self._made.aclose()
            await self._make()

    async def _delete_rows(self, connection: asyncpg.Connection) -> None:
        """Quicker than TRUNCATE, which gives every table new files."""
        await connection.execute(
            "SET session_replication_role = replica;"  # no order because of foreign keys
            + "".join(f'DELETE FROM "{name}";' for name in self._rows)
            + "SELECT setval(sequencename::regclass, 1, false) FROM pg_sequences"
        )
        for name, rows in self._rows.items():
            if rows:
                await connection.copy_records_to_table(name, records=rows)


@pytest.fixture(scope="session")
async def postgres_database(
    postgres: str, postgres_template: str
) -> AsyncIterator[PostgresDatabase]:
    """Of this worker. Whoever uses it empties it afterwards."""
    async with PostgresDatabase(postgres, postgres_template) as database:
        yield database


@pytest.fixture(scope="session")
async def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with our tables. A copy is made quicker than the tables are."""
    file = tmp_path_factory.mktemp("template") / "paddock.db"
    async with open_store(file):
        pass
    return file


@pytest.fixture(scope="module")
async def database(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """For `server.database`: empty for the file in the data directory, or a URL."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield ""
        return
    async with new_database(request.getfixturevalue("postgres")) as place:
        yield place


@pytest.fixture
async def empty_database(database: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The same for a control plane of its own."""
    if not database:
        yield ""
        return
    async with new_database(request.getfixturevalue("postgres")) as place:
        yield place


async def by_hand(place: str, *statements: str) -> None:
    """As somebody who can write to the database and does not ask Paddock."""
    if place.startswith("postgresql"):
        connection = await asyncpg.connect(place)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()
        return
    with closing(sqlite3.connect(place)) as file, file:
        for statement in statements:
            file.execute(statement)
