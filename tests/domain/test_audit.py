"""The chain of who did what."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.audit import (
    START,
    AuditEntry,
    Break,
    Head,
    Walk,
    chained,
    first_break,
    old_link,
)


def chain(count: int, teams: int = 1) -> list[AuditEntry]:
    """Of so many teams in turn."""
    entries: list[AuditEntry] = []
    last, of_teams = START, [START] * teams
    for n in range(count):
        team = n % teams
        entry = AuditEntry(f"tem_{team}", "tok_1", "sandbox.delete", f"sbx_{n}", n * 0.1, {"n": n})
        entries.append(chained(entry, last, of_teams[team]))
        last, of_teams[team] = entries[-1].head, entries[-1].team_head
    return entries


def test_an_untouched_chain_holds_from_the_start_and_from_the_middle():
    entries = chain(20, teams=3)
    assert first_break(entries) is None
    assert first_break(entries[7:], entries[6].head) is None
    assert first_break([]) is None


def test_a_teams_chain_holds_without_the_others():
    entries = chain(20, teams=3)
    ours = [entry for entry in entries if entry.team_id == "tem_1"]
    assert first_break(ours, team=True) is None
    assert first_break(ours[2:], ours[1].team_head, team=True) is None
    assert first_break(ours[2:], team=True) == Break(3, "entry 1 is missing before it")


def test_an_entry_tells_its_team_nothing_of_how_much_others_do():
    busy, quiet = chain(20, teams=3), chain(20, teams=1)
    numbers = [entry.team_seq for entry in busy if entry.team_id == "tem_0"]
    assert numbers == [entry.team_seq for entry in quiet[: len(numbers)]]


CHANGES = {
    "team_id": "tem_9",
    "actor": "tok_2",
    "action": "x",
    "subject": "y",
    "at": 9.0,
    "detail": {"n": 0},
    "seal": "0" * 64,
    "salt": "",
    "hash": "0" * 64,
    "previous": "0" * 64,
    "seq": 99,
    "team_hash": "0" * 64,
    "team_previous": "1" * 64,
    "team_seq": 99,
}


@pytest.mark.parametrize("name", CHANGES)
@given(at=st.integers(1, 18))
def test_any_change_of_any_entry_shows(name, at):
    entries = chain(20)
    entries[at] = replace(entries[at], **{name: CHANGES[name]})
    found = first_break(entries)
    assert found is not None
    assert found.seq in (at + 1, at + 2, 99)


@pytest.mark.parametrize("name", sorted(CHANGES.keys() - {"hash", "previous", "seq"}))
@given(at=st.integers(1, 18))
def test_any_change_shows_in_the_teams_chain_too(name, at):
    entries = chain(20)
    entries[at] = replace(entries[at], **{name: CHANGES[name]})
    found = first_break(entries, team=True)
    assert found is not None
    assert found.seq in (at + 1, at + 2, 99)


@pytest.mark.parametrize("team", [False, True])
@given(at=st.integers(0, 18))
def test_a_removed_an_exchanged_and_a_repeated_entry_show(team, at):
    entries = chain(20)
    removed = first_break(entries[:at] + entries[at + 1 :], team=team)
    assert removed == Break(at + 2, f"entry {at + 1} is missing before it")
    twice = first_break(entries[: at + 1] + entries[at:], team=team)
    assert twice == Break(at + 1, f"it stands after entry {at + 1}")
    entries[at], entries[at + 1] = entries[at + 1], entries[at]
    assert first_break(entries, team=team) is not None


@pytest.mark.parametrize("team", [False, True])
def test_an_entry_that_was_put_in_shows(team):
    entries = chain(5)
    own = AuditEntry("tem_0", "tok_9", "sandbox.delete", "sbx_9", 9.0)
    put_in = chained(own, entries[1].head, entries[1].team_head)
    found = first_break([*entries[:2], put_in, *entries[2:]], team=team)
    assert found == Break(3, "it stands after entry 3")


def test_a_cut_end_shows_to_whoever_knows_what_was_there():
    entries = chain(5)
    assert first_break(entries[:4]) is None
    for expect, cut in ((entries[4].head, entries[:4]), (Head(3, "f" * 64), entries)):
        walk = Walk(expect=expect)
        walk.go(cut)
        walk.end()
        assert walk.first is not None
        assert walk.first.seq == expect.seq
    walk = Walk(expect=entries[2].head)
    walk.go(entries)
    walk.end()
    assert (walk.first, walk.head) == (None, entries[4].head)


def test_a_second_break_is_counted_too():
    entries = chain(9)
    for at in (2, 6):
        entries[at] = replace(entries[at], actor="somebody")
    walk = Walk()
    walk.go(entries)
    assert (walk.breaks, walk.entries) == (2, 9)
    assert walk.first == Break(3, "its content was changed")


def test_what_was_linked_before_teams_had_chains_of_their_own_holds():
    (entry,) = chain(1)
    before = replace(entry, hash=old_link(entry))
    following = chained(entry, before.head, before.team_head)
    assert first_break([before, following]) is None
    assert first_break([replace(before, actor="x"), following]) is not None
