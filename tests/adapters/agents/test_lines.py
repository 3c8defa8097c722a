"""Lines of agents: whatever is in them, nothing is raised and nothing unkeepable comes out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.adapters.agents import lines
from paddock.domain.agent_event import LONGEST_DATA


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"[1]",
        b"null",
        b'{"a":',
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' * 150 + b"1" + b"}" * 150,
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_what_is_no_object_is_nothing(line):
    assert lines.parsed(line) is None


def test_texts_can_be_kept_by_every_database():
    said = lines.parsed(b'{"a": "x\\u0000y \\ud800 \\ud83d\\ude00 \xff", "\\u0000": [1]}')
    assert said == {"a": "x\ufffdy ? \N{GRINNING FACE} \ufffd", "\ufffd": [1]}


@given(st.binary())
def test_any_bytes_are_read(line):
    said = lines.parsed(line)
    assert said is None or isinstance(said, dict)


@given(st.text())
def test_any_text_arrives_in_one_line(text):
    line = lines.written({"text": text})
    assert line.count(b"\n") == 1
    assert line.isascii()
    arrived = json.loads(line)["text"]
    assert arrived == text.encode(errors="replace").decode().replace("\0", "\ufffd")


def test_what_is_not_there_is_empty():
    value = {"a": [{"b": "c"}], "n": True}
    assert lines.text(value, "a", 0, "b") == "c"
    assert lines.text(value, "a", 1, "b") == ""
    assert lines.text(value, "a", "b") == ""
    assert (lines.number(value, "n"), lines.whole(value, "x")) == (0, 0)
    assert (lines.table(value, "a"), lines.rows(value, "n")) == ({}, [])


def test_long_texts_are_cut_and_say_so():
    long = "x" * (LONGEST_DATA + 1)
    assert lines.cut("output", long) == {"output": long[:-1], "cut": True}
    assert lines.cut("output", "short") == {"output": "short"}
    assert lines.cut_input({"a": [long]}) == {"input": {"a": [long[:-1]]}, "cut": True}
    assert lines.cut_input("no object") == {"input": {}, "cut": True}


@pytest.mark.parametrize(
    "given",
    [
        {"command": ["word"] * 1_000_000},
        {f"name{n}": "x" * 100 for n in range(100_000)},
        {"x" * 1_000_000: {"y" * 1_000_000: 1}},
        {"a": [["x" * 10_000] * 10] * 10_000},
        {"a": [int("9" * 4000)] * 1000},
        {"a": json.loads("[" * 90 + "]" * 90)},
    ],
    ids=["items", "names", "long-names", "texts", "numbers", "deep"],
)
def test_all_of_an_input_is_bounded(given):
    kept = lines.cut_input(given)
    assert kept["cut"]
    assert len(json.dumps(kept)) < 128 << 10


def test_an_input_of_usual_size_is_kept_as_it_is():
    given = {"b": [1, 2.5, None, True, {"c": "d"}], "a": "x" * 1000}
    assert lines.cut_input(given) == {"input": given}
    assert list(lines.cut_input(given)["input"]) == ["b", "a"]
