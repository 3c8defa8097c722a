"""Teams and tokens on both databases."""

from dataclasses import replace

import pytest

from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.team import Role, Scope, Team
from paddock.ports.store import ANY_TEAM, Page
from tests.adapters.store.samples import next_id, token


async def test_a_team_is_found_by_id_and_by_name(store, team):
    operators = Team(next_id("tem"), "operators", 0.1 + 0.2, operator=True)
    await store.write(lambda tx: tx.teams.add(operators))
    assert await store.read(lambda tx: tx.teams.get(operators.id)) == operators
    assert await store.read(lambda tx: tx.teams.named("operators")) == operators
    assert await store.read(lambda tx: tx.teams.named("Operators")) is None
    assert await store.read(lambda tx: tx.teams.get("tem_nobody")) is None


async def test_two_teams_cannot_have_one_name(store, team):
    with pytest.raises(Conflict, match="there is a team ours already"):
        await store.write(lambda tx: tx.teams.add(Team(next_id("tem"), "ours", 1.0)))


async def test_teams_come_in_pages_newest_first(store, team, others):
    assert await store.read(lambda tx: tx.teams.list(Page(1))) == [others]
    assert await store.read(lambda tx: tx.teams.list(Page(5, others.id))) == [team]


async def test_everything_about_a_token_is_kept(store, team):
    for changes in (
        {},
        {"scopes": frozenset()},
        {"scopes": frozenset({Scope.EVENTS_READ, Scope.AUDIT_READ}), "role": Role.VIEWER},
        {"expires_at": 1.5, "revoked_at": 2.5, "used_at": 3.5},
    ):
        kept = token(team, **changes)
        await store.write(lambda tx, one=kept: tx.tokens.add(one))
        assert await store.read(lambda tx, one=kept: tx.tokens.get(one.id)) == kept


async def test_tokens_are_listed_newest_first_by_team(store, team, others):
    made = [token(team), token(others), token(team)]
    await store.write(lambda tx: [tx.tokens.add(one) for one in made] and None)
    ours = await store.read(lambda tx: tx.tokens.list(team.id, Page()))
    assert ours == [made[2], made[0]]
    assert await store.read(lambda tx: tx.tokens.list(team.id, Page(5, made[2].id))) == [made[0]]
    assert len(await store.read(lambda tx: tx.tokens.list(ANY_TEAM, Page()))) == 3


async def test_a_stale_copy_neither_revives_a_token_nor_forgets_its_use(store, team):
    read = token(team)
    await store.write(lambda tx: tx.tokens.add(read))
    await store.write(lambda tx: tx.tokens.replace(replace(read, revoked_at=5.0)))
    await store.write(lambda tx: tx.tokens.replace(replace(read, used_at=7.0)))
    await store.write(lambda tx: tx.tokens.replace(replace(read, used_at=6.0, name="desk")))
    await store.write(lambda tx: tx.tokens.replace(replace(read, name="desk")))
    now = await store.read(lambda tx: tx.tokens.get(read.id))
    assert now == replace(read, revoked_at=5.0, used_at=7.0, name="desk")


async def test_a_token_that_is_not_there_cannot_be_replaced(store, team):
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.tokens.replace(token(team)))


async def test_a_token_of_no_team_is_a_conflict(store, team):
    with pytest.raises(Conflict):
        await store.write(lambda tx: tx.tokens.add(replace(token(team), team_id="tem_nobody")))


@pytest.mark.parametrize("name", ["a\0b", "\ud83d"])
async def test_a_name_that_is_no_text_is_refused(store, team, name):
    with pytest.raises(InvalidRequest, match="no text"):
        await store.write(lambda tx: tx.tokens.add(token(team, name=name)))
