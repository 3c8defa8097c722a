"""The tables: migrations agree with them, and every query has its index."""

import sqlite3

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import sqlite

from paddock.adapters.store import events, sandboxes, schema
from paddock.adapters.store.migrate import alembic_config
from paddock.adapters.store.store import open_store
from paddock.domain.ids import new_id
from paddock.domain.sandbox import SandboxState
from paddock.ports.store import ANY_TEAM, Page, SandboxFilter
from tests.databases import new_database

PAGE = Page(50, new_id("sbx"))
SOME = frozenset({SandboxState.RUNNING, SandboxState.PAUSED})


async def test_migrations_and_tables_agree(bare_place):
    async with open_store(bare_place) as store:
        await store.write(lambda tx: command.check(alembic_config(tx._connection)))


def test_the_revision_that_is_expected_is_the_last_one():
    assert ScriptDirectory.from_config(alembic_config(None)).get_heads() == [schema.REVISION]


async def test_revisions_are_part_of_the_package():
    script = ScriptDirectory.from_config(alembic_config(None))
    for revision in script.walk_revisions():
        assert revision.module.__doc__
        assert "/paddock/adapters/store/migrations/versions/" in revision.path


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (sandboxes.listing("t", SandboxFilter(), PAGE), "ix_sandbox_live"),
        (
            sandboxes.listing("t", SandboxFilter(states=frozenset({SandboxState.FAILED})), PAGE),
            "ix_sandbox_team_id_state_id",
        ),
        (
            sandboxes.listing(ANY_TEAM, SandboxFilter(states=frozenset({"running"})), PAGE),
            "ix_sandbox_state_id",
        ),
        (sandboxes.listing("t", SandboxFilter(states=SOME), PAGE), "ix_sandbox_live"),
        (sandboxes.listing(ANY_TEAM, SandboxFilter(states=SOME), PAGE), "ix_sandbox_all_live"),
        (sandboxes.listing(ANY_TEAM, SandboxFilter(), PAGE), "ix_sandbox_all_live"),
        (
            sandboxes.listing("t", SandboxFilter(labels={"a": "b", "c": "d"}), PAGE),
            "ix_sandbox_label_name_value_team_id_sandbox_id",
        ),
        (
            sandboxes.listing("t", SandboxFilter(owner="o", states=frozenset(SandboxState)), PAGE),
            "ix_sandbox_owner",
        ),
        (sandboxes.listing("t", SandboxFilter(identity="issue 1"), PAGE), "ix_sandbox_identity"),
        (sandboxes.purgeable(5.0, 10), "ix_sandbox_purge"),
        (events.following(5, 100, "t", ""), "ix_event_team_id_seq"),
        (events.following(5, 100, "t", "sbx_1"), "ix_event_subject_seq"),
        (events.following(5, 100, ANY_TEAM, "sbx_1"), "ix_event_subject_seq"),
    ],
    ids=[
        *("live", "state", "any team's state", "states", "any team's states", "any team"),
        *("labels", "owner", "identity", "purge", "events", "subject", "any team's subject"),
    ],
)
async def test_a_list_walks_along_an_index_in_order(sqlite_place, query, index):
    async with open_store(sqlite_place):
        pass
    sql = str(query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
    connection = sqlite3.connect(sqlite_place)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    connection.close()
    assert f"INDEX {index} " in plan[0], plan
    assert not [step for step in plan if "SCAN" in step or "TEMP B-TREE" in step], plan


async def test_ids_sort_by_time_whatever_the_servers_language(postgres):
    """In Czech, `ch` is one letter that comes after `h`."""
    options = "LOCALE_PROVIDER icu ICU_LOCALE 'cs' LOCALE 'C.UTF-8' ENCODING 'UTF8'"
    async with (
        new_database(postgres, options=options) as place,
        open_store(place) as store,
    ):
        names = ["ca", "ch", "ci", "d", "h", "i"]
        await store.write(lambda tx: [tx.values.put(name, 1) for name in names] and None)
        assert list(await store.read(lambda tx: tx.values.all(""))) == names
        assert list(await store.read(lambda tx: tx.values.all("c"))) == ["ca", "ch", "ci"]
