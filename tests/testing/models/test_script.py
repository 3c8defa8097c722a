"""Scripts are plain data, and a bad one is told where it is bad."""

import subprocess
import sys

import pytest

from paddock.testing.models import (
    BadScript,
    Cut,
    Fail,
    RunShell,
    Script,
    ScriptedModel,
    Turn,
    Usage,
    WriteFile,
    load_scripts,
    parse_scripts,
)

GOOD = """
name = "create"
[[turns]]
think = "Plan."
say = "I will."
calls = [{do = "write_file", path = "a", content = "b"}, {do = "run_shell", command = "ls"}]
usage = {input = 7, output = 8}
wait_s = 0.5
[[turns]]
say = "Done."
fail = {status = 529, times = 2}
cut = {after = 3}
"""


def test_a_file_holds_a_script():
    assert parse_scripts(GOOD) == (
        Script(
            name="create",
            turns=(
                Turn(
                    think="Plan.",
                    say="I will.",
                    calls=(WriteFile("a", "b"), RunShell("ls")),
                    usage=Usage(7, 8),
                    wait_s=0.5,
                ),
                Turn(say="Done.", fail=Fail(529, times=2), cut=Cut(3)),
            ),
        ),
    )


def test_a_file_holds_several_scripts():
    text = """
    [[scripts]]
    name = "one"
    marker = "[one]"
    turns = [{say = "1"}]
    [[scripts]]
    name = "two"
    key = "k2"
    turns = [{say = "2"}]
    """
    assert [script.name for script in parse_scripts(text)] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("turns = [{say}]", "not a script: .*line 1"),
        ("", "missing required field `turns`"),
        ("turns = []", "has no turns"),
        ("turns = [{}]", r"a turn does something.*\$\.turns\[0\]"),
        ("turns = [{say = 5}]", r"Expected `str`, got `int` - at `\$\.turns\[0\]\.say`"),
        ("turns = [{sya = 'x'}]", r"unknown field `sya` - at `\$\.turns\[0\]`"),
        ("turns = [{calls = [{do = 'fly'}]}]", r"Invalid value 'fly' - at .*calls\[0\]\.do"),
        ("turns = [{calls = [{do = 'write_file', path = 'a'}]}]", "missing required .*`content`"),
        ("turns = [{fail = {status = 200}}]", r"from 400 to 599, not 200.*\.fail"),
        ("turns = [{say = 'x', wait_s = -1}]", "0 or more seconds"),
        ("key = 'a'\nmarker = 'b'\nturns = [{say = 'x'}]", "not by both"),
        ("scripts = []", "no script at all"),
    ],
)
def test_a_bad_script_is_told_where_and_why(text, reason):
    with pytest.raises(BadScript, match=reason):
        parse_scripts(text)


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        ({"name": "a"}, {"name": "b"}, "a, b have neither key nor marker"),
        ({"name": "a", "key": "k"}, {"name": "a"}, "two scripts have the name 'a'"),
        ({"name": "a", "key": "k"}, {"name": "b", "key": "k"}, "two scripts have the key 'k'"),
        ({"name": "a", "marker": "k"}, {"name": "b", "marker": "k"}, "the marker 'k'"),
    ],
)
def test_it_must_be_clear_which_script_is_meant(one, two, reason):
    turns = (Turn(say="x"),)
    with pytest.raises(BadScript, match=reason):
        ScriptedModel(Script(turns, **one), Script(turns, **two))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadScript, match=r"none\.toml"):
        load_scripts(tmp_path / "none.toml")


def test_a_bad_file_on_the_command_line_is_one_line(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("turns = [{}]")
    command = [sys.executable, "-m", "paddock.testing.models", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "bad.toml: not a script: a turn does something" in done.stderr
