"""Both databases for every test: an SQLite file, and a database on a real PostgreSQL."""

import shutil

import pytest

from paddock.adapters.store.store import open_store
from paddock.domain.team import Team
from tests.adapters.store.samples import next_id
from tests.databases import new_database


@pytest.fixture
async def postgres_place(postgres_database):
    yield postgres_database.place
    await postgres_database.empty()


@pytest.fixture
def bare_sqlite_place(tmp_path):
    return str(tmp_path / "data" / "paddock.db")


@pytest.fixture
def sqlite_place(tmp_path, sqlite_template):
    file = tmp_path / "data" / "paddock.db"
    file.parent.mkdir(mode=0o700)
    shutil.copy(sqlite_template, file)
    return str(file)


@pytest.fixture
async def bare_postgres_place(postgres):
    async with new_database(postgres) as place:
        yield place


@pytest.fixture(params=["sqlite", "postgres"])
def place(request):
    """Where a database can be opened: a path, or a URL."""
    return request.getfixturevalue(f"{request.param}_place")


@pytest.fixture(params=["sqlite", "postgres"])
def bare_place(request):
    """The same without any tables."""
    return request.getfixturevalue(f"bare_{request.param}_place")


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
