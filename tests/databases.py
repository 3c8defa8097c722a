"""Databases for tests: an SQLite file, or a new database on the PostgreSQL that all tests share.

A module whose control plane shall be tried on both says `EVERY_DATABASE = True`; its `database`
then is first the one and then the other.
"""

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg
import pytest

from paddock.adapters.store.store import open_store
from paddock.domain.ids import new_ulid
from tests.daemons import CannotStart, stop_watched
from tests.postgres import start_postgres

TEMPLATE = f"paddock_template_{os.getpid()}"
KINDS = ("sqlite", "postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if getattr(metafunc.module, "EVERY_DATABASE", False) and "database" in metafunc.fixturenames:
        metafunc.parametrize("database", KINDS, indirect=True, scope="module")


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
