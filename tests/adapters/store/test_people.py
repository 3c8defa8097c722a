"""Teams, people, tokens, sign-in links and sessions on both databases."""

from dataclasses import replace

import pytest

from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.team import Role, Scope, Team
from paddock.ports.store import ANY_TEAM, Page
from paddock.services.system import operating_team
from tests.adapters.store.samples import link, next_id, person, session, token


async def test_a_team_is_found_by_id_and_by_name(store, team):
    operators = Team(next_id("tem"), "operators", 0.1 + 0.2, operator=True)
    await store.write(lambda tx: tx.teams.add(operators))
    assert await store.read(lambda tx: tx.teams.get(operators.id)) == operators
    assert await store.read(lambda tx: tx.teams.named("operators")) == operators
    assert await store.read(lambda tx: tx.teams.named("Operators")) is None
    assert await store.read(lambda tx: tx.teams.get("tem_nobody")) is None


async def test_the_operating_team_is_found_however_many_others_there_are(store, team, others):
    assert await store.read(lambda tx: tx.teams.operating()) is None
    operators = Team(next_id("tem"), "operators", 1000.0, operator=True)
    many = [Team(next_id("tem"), f"team-{number}", 1001.0) for number in range(1001)]
    await store.write(lambda tx: [tx.teams.add(each) for each in (operators, *many)])
    assert await store.read(operating_team) == operators


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


async def test_everything_about_a_person_is_kept_and_changed(store, team, others):
    ada = person(team, email="ada@example.org", role=Role.ADMIN)
    await store.write(lambda tx: tx.people.add(ada))
    assert await store.read(lambda tx: tx.people.get(ada.id)) == ada
    assert await store.read(lambda tx: tx.people.with_email(team.id, "ada@example.org")) == ada
    assert await store.read(lambda tx: tx.people.with_email(others.id, "ada@example.org")) is None
    assert await store.read(lambda tx: tx.people.list(others.id, Page())) == []
    left = replace(ada, name="", email="", removed_at=5.0)
    await store.write(lambda tx: tx.people.replace(left))
    assert await store.read(lambda tx: tx.people.list(team.id, Page())) == [left]
    assert await store.read(lambda tx: tx.people.named([ada.id, "usr_nobody"])) == {ada.id: ""}
    assert await store.read(lambda tx: tx.people.named([])) == {}
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.people.replace(person(team)))


async def test_an_address_is_one_persons_until_they_leave(store, team, others):
    first = person(team, email="a@example.org")
    await store.write(lambda tx: tx.people.add(first))
    again = person(team, email="a@example.org")
    with pytest.raises(Conflict, match=r"a@example\.org is Ada"):
        await store.write(lambda tx: tx.people.add(again))
    await store.write(lambda tx: tx.people.add(person(others, email="a@example.org")))
    await store.write(lambda tx: [tx.people.add(person(team)) for _ in range(2)] and None)
    await store.write(lambda tx: tx.people.replace(replace(first, removed_at=2.0)))
    await store.write(lambda tx: tx.people.add(again))
    found = await store.read(lambda tx: tx.people.with_email(team.id, "a@example.org"))
    assert found == again


async def test_all_of_a_persons_ways_in_end_and_nobody_elses(store, team):
    ada, bob = person(team), person(team)
    tokens = [token(team, person_id=each.id) for each in (ada, ada, bob)] + [token(team)]
    sessions = [session(ada), session(ada, ended_at=3.0), session(bob)]
    links = [link(ada), link(bob)]

    def begin(tx):
        for each in (ada, bob):
            tx.people.add(each)
        for each in tokens:
            tx.tokens.add(each)
        for each in sessions:
            tx.sessions.add(each)
        for each in links:
            tx.links.add(each)

    await store.write(begin)
    of_ada = await store.read(lambda tx: tx.tokens.list(team.id, Page(), person_id=ada.id))
    assert of_ada == [tokens[1], tokens[0]]
    revoked = await store.write(lambda tx: tx.tokens.revoke_of(ada.id, 7.0))
    assert sorted(revoked) == sorted(each.id for each in tokens[:2])
    assert await store.write(lambda tx: tx.tokens.revoke_of(ada.id, 8.0)) == []
    assert await store.write(lambda tx: tx.sessions.end_of(ada.id, 7.0)) == [sessions[0].id]
    await store.write(lambda tx: tx.links.remove_of(ada.id))
    now = await store.read(lambda tx: [tx.tokens.get(each.id).revoked_at for each in tokens])
    assert now == [7.0, 7.0, None, None]
    now = await store.read(lambda tx: [tx.sessions.get(each.id).ended_at for each in sessions])
    assert now == [7.0, 3.0, None]
    assert await store.read(lambda tx: [tx.links.get(each.id) for each in links]) == [
        None,
        links[1],
    ]


async def test_a_session_is_listed_touched_and_ended(store, team, others):
    ada = person(team)
    made = [session(ada, token_id="tok_1", agent="Browser"), session(ada, holder="tok_1")]
    await store.write(lambda tx: [tx.sessions.add(each) for each in made] and None)
    assert await store.read(lambda tx: tx.sessions.list(team.id, Page())) == made[::-1]
    assert await store.read(lambda tx: tx.sessions.list(team.id, Page(), holder="tok_1")) == [
        made[1]
    ]
    assert await store.read(lambda tx: tx.sessions.list(others.id, Page())) == []
    for moment in (1500.0, 1200.0):
        await store.write(lambda tx, at=moment: tx.sessions.touch(made[0].id, at))
    for moment in (1600.0, 1700.0):
        await store.write(lambda tx, at=moment: tx.sessions.end(made[0].id, at))
    now = await store.read(lambda tx: tx.sessions.get(made[0].id))
    assert now == replace(made[0], used_at=1500.0, ended_at=1600.0)


async def test_links_are_used_and_what_expired_is_forgotten_a_little_at_a_time(store, team):
    ada = person(team)
    links = [link(ada, expires_at=float(n)) for n in range(5)]
    await store.write(lambda tx: tx.people.add(ada))
    await store.write(lambda tx: [tx.links.add(each) for each in links] and None)
    await store.write(lambda tx: tx.links.use(links[4].id, 3.5))
    assert await store.write(lambda tx: tx.links.prune(3.0, 2)) == 2
    assert await store.write(lambda tx: tx.links.prune(3.0, 2)) == 1
    kept = await store.read(lambda tx: [tx.links.get(each.id) for each in links])
    assert kept == [None, None, None, links[3], replace(links[4], used_at=3.5)]
    await store.write(lambda tx: tx.sessions.add(session(ada)))
    assert await store.write(lambda tx: tx.sessions.prune(9001.0, 10)) == 1
