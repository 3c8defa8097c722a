"""Records to rows and back, for everything that a record can hold."""

import sqlite3

import pytest
from hypothesis import given
from sqlalchemy.dialects import sqlite

from paddock.adapters.store import access_schema, events, sandboxes, schema, snapshots, tokens
from paddock.adapters.store.columns import encode, storable
from paddock.domain.errors import Broken, InvalidRequest
from paddock.domain.team import Team
from tests.adapters.store import samples, strategies

DIALECT = sqlite.dialect()


def through(table, row):
    """What comes back of a row, by way of a real SQLite."""
    assert set(row) == set(table.columns.keys())
    read = {}
    connection = sqlite3.connect(":memory:")
    try:
        for column in table.columns:
            write = column.type.bind_processor(DIALECT) or (lambda value: value)
            back = column.type.result_processor(DIALECT, None) or (lambda value: value)
            (value,) = connection.execute("SELECT ?", (write(row[column.name]),)).fetchone()
            read[column.name] = back(value)
    finally:
        connection.close()
    return read


@given(strategies.sandboxes)
def test_a_sandbox_comes_back_as_it_was(record):
    assert sandboxes.from_row(through(schema.sandbox, sandboxes.to_row(record))) == record


@given(strategies.snapshots)
def test_a_snapshot_comes_back_as_it_was(record):
    assert snapshots.from_row(through(schema.snapshot, snapshots.to_row(record))) == record


@given(strategies.tokens)
def test_a_token_comes_back_as_it_was(record):
    assert tokens.from_row(through(access_schema.token, tokens.to_row(record))) == record


@given(strategies.events)
def test_an_event_comes_back_as_it_was(record):
    assert events.from_row(through(schema.event, events.to_row(record))) == record


@given(strategies.sandboxes)
def test_a_field_that_was_not_stored_yet_has_its_default(record):
    row = through(schema.sandbox, sandboxes.to_row(record))
    del row["body"]["lifetime"], row["body"]["public_ports"]
    assert sandboxes.from_row(row).public_ports == frozenset()


def test_a_row_that_cannot_be_understood_is_named():
    row = sandboxes.to_row(samples.sandbox(Team("tem_1", "ours", 1.0)))
    row["body"]["resources"]["cpus"] = "many"
    with pytest.raises(Broken, match=f"{row['id']} is stored in a form"):
        sandboxes.from_row(row)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "é\udfff"])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(InvalidRequest, match="no text"):
        storable(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {(1, 2): 3}, b"bytes"])
def test_what_is_not_json_is_refused(value):
    with pytest.raises(InvalidRequest, match="cannot be kept as JSON"):
        encode(value)
