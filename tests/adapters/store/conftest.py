"""Both databases for every test: an SQLite file, and a database on a real PostgreSQL."""

import os
from contextlib import asynccontextmanager

import asyncpg
import pytest

from paddock.adapters.store.store import open_store
from paddock.domain.ids import new_ulid
from paddock.domain.team import Team
from tests.adapters.store.samples import next_id
from tests.postgres import CannotStart, start_postgres, stop_postgres

TEMPLATE = f"paddock_template_{os.getpid()}"


@pytest.fixture(scope="session")
def postgres(share, need):
    """Where databases can be made: a URL with `{}` for the name of one."""
    try:
        with share("postgres", start_postgres, stop_postgres) as server:
            yield server["url"]
    except CannotStart as error:
        need("PostgreSQL", str(error))


@asynccontextmanager
async def administrating(url):
    connection = await asyncpg.connect(url.format("postgres"))
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(scope="session")
async def postgres_template(postgres):
    """A database with our tables; a copy of it is made quicker than the tables are."""
    async with administrating(postgres) as connection:
        await connection.execute(f"CREATE DATABASE {TEMPLATE}")
        async with open_store(postgres.format(TEMPLATE)):
            pass
        yield TEMPLATE
        await connection.execute(f"DROP DATABASE {TEMPLATE} WITH (FORCE)")


@asynccontextmanager
async def new_database(url, template="template0", options=""):
    name = f"paddock_{new_ulid()}"
    async with administrating(url) as connection:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} {options}")
        try:
            yield url.format(name)
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def postgres_place(postgres, postgres_template):
    async with new_database(postgres, postgres_template) as place:
        yield place


@pytest.fixture
def sqlite_place(tmp_path):
    return str(tmp_path / "data" / "paddock.db")


@pytest.fixture
async def bare_postgres_place(postgres):
    async with new_database(postgres) as place:
        yield place


@pytest.fixture(params=["sqlite", "postgres"])
def place(request):
    """Where a database can be opened: a path, or a URL."""
    return request.getfixturevalue(f"{request.param}_place")


@pytest.fixture(params=["sqlite_place", "bare_postgres_place"], ids=["sqlite", "postgres"])
def bare_place(request):
    """The same without any tables."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def store(place):
    async with open_store(place) as opened:
        yield opened


async def new_team(store, name):
    team = Team(next_id("tem"), name, 1000.0)
    await store.write(lambda tx: tx.teams.add(team))
    return team


@pytest.fixture
async def team(store):
    return await new_team(store, "ours")


@pytest.fixture
async def others(store):
    return await new_team(store, "theirs")
