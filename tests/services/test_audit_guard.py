"""What somebody does to the audit log in the database: the server notices, and goes on."""

import asyncio

import pytest

from paddock.adapters.audit_head import AuditHeadFile
from paddock.adapters.store.store import open_store
from paddock.domain.audit import AuditEntry, first_break
from paddock.domain.errors import Forbidden
from paddock.domain.event import EventKind
from paddock.domain.team import Principal, Role, Scope, Team
from paddock.ports.clock import SystemClock
from paddock.services.audit_guard import AuditGuard
from tests.databases import by_hand

EVERY_DATABASE = True
TEAMS = ("tem_1", "tem_2")
OPERATORS = Team("tem_1", "operators", 1.0, operator=True)
ANEW = (
    "INSERT INTO audit (seq, team_id, actor, action, subject, at, detail, previous, hash, seal, "
    "salt, team_seq, team_previous, team_hash) SELECT {}, team_id, actor, action, subject, at, "
    "detail, previous, hash, seal, salt, {}, team_previous, team_hash FROM audit WHERE seq = {}"
)
TAMPERED = {
    "changed actor": (["UPDATE audit SET actor = 'nobody' WHERE seq = 3"], 3),
    "changed detail": (["UPDATE audit SET detail = '{\"n\":99}' WHERE seq = 3"], 3),
    "detail that is no JSON": (["UPDATE audit SET detail = '{' WHERE seq = 3"], 3),
    "moved to another team": (["UPDATE audit SET team_id = 'tem_3' WHERE seq = 3"], 3),
    "removed from the middle": (["DELETE FROM audit WHERE seq = 3"], 4),
    "removed from the end": (["DELETE FROM audit WHERE seq = 8"], 8),
    "all of it removed": (["DELETE FROM audit"], 8),
    "exchanged": (
        [
            "UPDATE audit SET seq = 99 WHERE seq = 3",
            "UPDATE audit SET seq = 3 WHERE seq = 5",
            "UPDATE audit SET seq = 5 WHERE seq = 99",
        ],
        3,
    ),
    "put in at the end": ([ANEW.format(9, 5, 7)], 9),
}


@pytest.fixture
def place(empty_database, tmp_path):
    return empty_database or str(tmp_path / "paddock.db")


@pytest.fixture
async def store(place):
    async with open_store(place) as opened:
        await opened.write(lambda tx: tx.teams.add(OPERATORS))
        yield opened


def entry(n, action="sandbox.create", detail=None):
    return AuditEntry(TEAMS[n % 2], "tok_1", action, f"sbx_{n}", float(n), detail or {"n": n})


async def append(store, *numbers):
    return await store.write(lambda tx: tx.audit.append([entry(n) for n in numbers]))


def guard(store, tmp_path, name="head", **more):
    return AuditGuard(store, SystemClock(), AuditHeadFile(tmp_path / name), **more)


async def told(store):
    kinds = frozenset({EventKind.AUDIT_BROKEN})
    return await store.read(lambda tx: tx.events.after(0, 100, kinds=kinds))


async def after_a_restart(store, tmp_path):
    async with guard(store, tmp_path).watching() as again:
        return again.state


@pytest.mark.proves("U5")
@pytest.mark.parametrize("how", TAMPERED)
async def test_tampering_is_noticed_at_the_next_start_and_told_once(store, place, tmp_path, how):
    statements, seq = TAMPERED[how]
    await append(store, *range(8))
    assert (await after_a_restart(store, tmp_path)).first is None
    await by_hand(place, *statements)
    state = await after_a_restart(store, tmp_path)
    assert state.first is not None
    assert state.first.seq == seq
    assert (await after_a_restart(store, tmp_path)).first == state.first
    (event,) = await told(store)
    assert event.team_id == OPERATORS.id
    assert (event.data["entry"], event.data["problem"]) == (seq, state.first.problem)


async def test_an_end_that_was_cut_off_and_grew_again_shows(store, place, tmp_path):
    await append(store, *range(4))
    async with guard(store, tmp_path).watching() as watching:
        await by_hand(place, "DELETE FROM audit WHERE seq > 2")
        await append(store, 5, 6, 7)
        assert first_break(await store.read(lambda tx: tx.audit.after(0, 100))) is None
        await watching.look()
        assert watching.state.first is not None
        assert watching.state.first.seq == 4
        await append(store, 8)
    again = await after_a_restart(store, tmp_path)
    assert again.head.seq == 6, "what came later is watched all the same"
    assert again.first is not None
    assert again.first.seq == 4


async def test_what_is_put_right_again_is_told_no_more(store, place, tmp_path):
    await append(store, *range(4))
    async with guard(store, tmp_path, whole_every_s=0.0).watching() as watching:
        await by_hand(place, "UPDATE audit SET actor = 'nobody' WHERE seq = 2")
        await watching.look()
        assert watching.state.breaks == 1
        await by_hand(place, "UPDATE audit SET actor = 'tok_1' WHERE seq = 2")
        await watching.look()
        assert (watching.state.breaks, watching.state.first) == (0, None)
    assert len(await told(store)) == 1


async def test_details_that_a_purge_takes_out_are_no_tampering(store, tmp_path):
    await append(store, *range(6))
    async with guard(store, tmp_path, whole_every_s=0.0).watching() as watching:
        assert await store.write(lambda tx: tx.audit.redact("tem_1", ["sbx_2", "sbx_4"])) == (2, 0)
        done = entry(8, action="owner.forgotten", detail={"audit details": 2})
        await store.write(lambda tx: tx.audit.append([done]))
        await watching.look()
        assert watching.state.first is None
        admin = Principal("tem_1", "tok_1", Role.ADMIN, frozenset(Scope))
        walk = await watching.verify(admin)
    assert (walk.first, walk.entries, walk.redacted, walk.accounted) == (None, 4, 2, 2)


async def test_a_team_verifies_its_own_and_operators_all(store, place, tmp_path):
    await append(store, *range(6))
    ours = Principal("tem_1", "tok_1", Role.ADMIN, frozenset(Scope), operator=True)
    theirs = Principal("tem_2", "tok_2", Role.ADMIN, frozenset(Scope))
    async with guard(store, tmp_path).watching() as watching:
        head = (await watching.verify(theirs)).head
        await by_hand(place, "UPDATE audit SET actor = 'nobody' WHERE seq = 3")
        assert (await watching.verify(ours)).first.seq == 2
        assert (await watching.verify(theirs)).first is None
        whole = await watching.verify(ours, everything=True)
        assert (whole.first.seq, whole.entries) == (3, 6)
        with pytest.raises(Forbidden):
            await watching.verify(theirs, everything=True)
        await by_hand(place, "DELETE FROM audit WHERE seq = 6")
        assert (await watching.verify(theirs)).first is None, "a cut end looks whole"
        assert (await watching.verify(theirs, expect=head)).first.seq == 3


async def test_of_two_servers_each_notices_by_itself(store, place, tmp_path):
    async with (
        open_store(place) as elsewhere,
        guard(store, tmp_path, "one").watching() as one,
        guard(elsewhere, tmp_path, "two").watching() as two,
    ):
        for n in range(20):
            await append(store if n % 2 else elsewhere, n)
            await asyncio.gather(one.look(), two.look())
        assert (one.state.first, two.state.first) == (None, None)
        assert one.state.head == two.state.head
        await by_hand(place, "DELETE FROM audit WHERE seq = 20")
        await asyncio.gather(one.look(), two.look())
        assert one.state.first == two.state.first
        assert one.state.first.seq == 20


async def test_a_long_log_is_looked_at_a_little_at_a_time(store, place, tmp_path):
    for _ in range(6):
        await append(store, *range(1000))
    await by_hand(place, "UPDATE audit SET actor = 'nobody' WHERE seq = 5900")
    async with guard(store, tmp_path).watching() as watching:
        assert (watching.state.whole_at, watching.state.first) == (0.0, None)
        await watching.look()
        assert watching.state.whole_at > 0
        assert watching.state.first.seq == 5900


async def test_a_server_whose_note_is_unreadable_begins_anew(store, tmp_path):
    await append(store, 1)
    (tmp_path / "head").write_text("{")
    async with guard(store, tmp_path).watching() as watching:
        assert watching.state.head.seq == 1
    assert AuditHeadFile(tmp_path / "head").read().head.seq == 1


async def test_a_note_that_cannot_be_written_stops_nothing(store, tmp_path):
    await append(store, 1)
    async with guard(store, tmp_path, "nowhere/head").watching() as watching:
        assert watching.state.first is None
