"""Opening a store: what is made, what is refused, and what is said about it."""

import asyncio
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from paddock.adapters.store import schema
from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.place import File, Server, parse
from paddock.adapters.store.store import open_store
from paddock.domain.errors import Broken, InvalidRequest, Unavailable
from tests.adapters.store.samples import event

QUICK = StoreConfig(wait_s=0.3)


async def opened(place, config=QUICK):
    async with open_store(place, config) as store:
        await store.ping()


def execute(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


async def test_everything_is_there_when_it_is_opened_again(bare_place):
    async with open_store(bare_place) as store:
        (kept,) = await store.write(lambda tx: tx.events.append([event()]))
    async with open_store(bare_place) as store:
        assert await store.read(lambda tx: tx.events.after(0, 5)) == [kept]


async def test_many_that_open_at_once_in_one_process_make_the_tables_once(bare_place):
    await asyncio.gather(*(opened(bare_place, StoreConfig()) for _ in range(5)))


async def test_the_file_is_its_owners_alone(tmp_path):
    before = os.umask(0)
    try:
        path = tmp_path / "a" / "b" / "paddock.db"
        async with open_store(path) as store:
            await store.write(lambda tx: tx.values.put("x", 1))
            beside = sorted(path.parent.iterdir())
            assert [file.name for file in beside] == [
                *("paddock.db", "paddock.db-owner", "paddock.db-shm", "paddock.db-wal"),
            ]
            assert {mode(file) for file in beside} == {0o600}
            assert mode(path.parent) == 0o700
    finally:
        os.umask(before)


async def test_a_directory_that_was_there_stays_as_it_was(tmp_path):
    tmp_path.chmod(0o755)
    await opened(tmp_path / "paddock.db")
    assert mode(tmp_path) == 0o755


@pytest.mark.parametrize(("asked", "level"), [("normal", 1), ("full", 2)])
async def test_the_pragmas_are_set(tmp_path, asked, level):
    names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")

    def look(tx):
        connection = tx._connection
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    config = StoreConfig(synchronous=asked, wait_s=10.0)
    async with open_store(tmp_path / "paddock.db", config) as store:
        assert await store.write(look) == ["wal", level, 1, 10_000]
        assert await store.read(look) == ["wal", level, 1, 10_000]


async def test_a_file_of_something_else_is_refused_and_left_alone(bare_sqlite_place):
    path = Path(bare_sqlite_place)
    path.parent.mkdir()
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(Broken, match="not an SQLite database") as refused:
        await opened(bare_sqlite_place)
    assert str(path) in refused.value.message
    assert path.read_text() == "Dear diary, " * 1000


async def test_a_database_of_something_else_is_refused_and_left_alone(bare_sqlite_place):
    Path(bare_sqlite_place).parent.mkdir()
    execute(bare_sqlite_place, "CREATE TABLE bookmarks (url)")
    with pytest.raises(InvalidRequest, match=r"a database of something else.*bookmarks") as refused:
        await opened(bare_sqlite_place)
    assert bare_sqlite_place in refused.value.message
    with closing(sqlite3.connect(bare_sqlite_place)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]


async def test_on_a_server_only_tables_with_our_names_are_in_the_way(bare_postgres_place):
    connection = await asyncpg.connect(bare_postgres_place)
    try:
        await connection.execute("CREATE TABLE event (id int)")
        with pytest.raises(InvalidRequest, match=r"a database of something else.*event"):
            await opened(bare_postgres_place)
        await connection.execute("DROP TABLE event; CREATE TABLE spatial_ref_sys (id int)")
        await opened(bare_postgres_place)
    finally:
        await connection.close()


async def test_a_database_of_a_newer_version_is_refused(place):
    await opened(place, StoreConfig())
    statement = f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'"
    if place.startswith("postgresql"):
        connection = await asyncpg.connect(place)
        await connection.execute(statement)
        await connection.close()
    else:
        execute(place, statement)
    with pytest.raises(InvalidRequest) as refused:
        await opened(place)
    said = str(refused.value)
    name = str(parse(place))
    assert all(word in said for word in (name, "9999", schema.REVISION, "newer Paddock"))


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("", "no place"),
        (":memory:", "no place"),
        ("sqlite://", "no place"),
        ("mysql://root:secret@host/db", "mysql://… is no place"),
        ("/etc/passwd/paddock.db", "Not a directory|File exists"),
        ("{here}", "not a file"),
    ],
)
async def test_what_is_no_place_is_refused(place, problem, tmp_path):
    with pytest.raises(InvalidRequest, match=problem) as refused:
        await opened(place.replace("{here}", str(tmp_path)))
    assert "secret" not in str(refused.value)
    assert refused.value.remediation


def test_a_place_can_be_written_in_several_ways(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert (
        parse("x.db") == parse("sqlite:///x.db") == parse(Path("x.db")) == File(tmp_path / "x.db")
    )
    assert parse("sqlite:////var/x.db") == File(Path("/var/x.db"))
    assert parse("~/x.db") == File(Path("/home/me/x.db"))
    for scheme in ("postgres", "postgresql", "postgresql+asyncpg"):
        assert parse(f"{scheme}://me:pw@host:1/db?a=b") == Server(
            "postgresql://me:pw@host:1/db?a=b"
        )


def test_a_password_is_never_shown():
    server = parse("postgresql://me:secret@host:1/db?password=secret")
    assert str(server) == "postgresql://me@host:1/db"
    assert "secret" not in repr(server)


@pytest.mark.parametrize("socket", ["/nowhere", "/tmp"])
async def test_a_server_that_does_not_answer_is_unavailable(socket):
    with pytest.raises(Unavailable, match="the connection failed") as failed:
        await opened(f"postgresql://me:secret@/db?host={socket}")
    assert "secret" not in str(failed.value)
    assert failed.value.retryable


async def test_a_database_or_user_that_is_not_there_is_named(postgres):
    with pytest.raises(InvalidRequest, match=r'no such database .*"nowhere"'):
        await opened(postgres.format("nowhere"))
    with pytest.raises(InvalidRequest, match=r'does not let this user in .*"nobody"'):
        await opened(postgres.format("postgres").replace("postgres@", "nobody@"))


@pytest.mark.parametrize("name", ["readers", "batch", "queue", "wait_s", "command_s"])
def test_settings_that_cannot_work_are_refused(name):
    with pytest.raises(InvalidRequest, match=f"{name} of the store is 0"):
        StoreConfig(**{name: 0})
