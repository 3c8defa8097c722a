"""The chain of who did what."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.audit import GENESIS, AuditEntry, chained, first_break


def chain(count: int) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    previous = GENESIS
    for seq in range(1, count + 1):
        entry = AuditEntry("tem_1", "tok_1", "sandbox.delete", f"sbx_{seq}", seq * 0.1, {"n": seq})
        entries.append(chained(entry, seq, previous))
        previous = entries[-1].hash
    return entries


def test_an_untouched_chain_holds_from_the_start_and_from_the_middle():
    entries = chain(20)
    assert first_break(entries) is None
    assert first_break(entries[7:], seq=7, previous=entries[6].hash) is None
    assert first_break([]) is None


CHANGES = {
    "team_id": "tem_2",
    "actor": "tok_2",
    "action": "x",
    "subject": "y",
    "at": 9.0,
    "detail": {"n": 0},
    "hash": "0" * 64,
    "previous": "0" * 64,
}


@pytest.mark.parametrize("name", CHANGES)
@given(at=st.integers(1, 18))
def test_any_change_of_any_entry_shows(name, at):
    entries = chain(20)
    entries[at] = replace(entries[at], **{name: CHANGES[name]})
    found = first_break(entries)
    assert found is not None
    assert found.seq in (at + 1, at + 2)


@given(at=st.integers(0, 18))
def test_a_removed_and_an_exchanged_entry_show(at):
    entries = chain(20)
    removed = first_break(entries[:at] + entries[at + 1 :])
    assert removed is not None
    assert "is missing" in removed.problem
    entries[at], entries[at + 1] = entries[at + 1], entries[at]
    assert first_break(entries) is not None
