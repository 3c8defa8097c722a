"""The place in a script follows from the conversation, whatever else is asked meanwhile."""

from dataclasses import replace

import pytest

from paddock.testing.models import CallTool, Script, Turn
from paddock.testing.models.conversation import Asked, Entry, Tool
from paddock.testing.models.playing import TITLE, Unplayable, find, reply, step
from paddock.testing.models.schema import example
from tests.testing.models.recorded import AGENTS, requests

TURNS = (Turn(say="t", calls=(CallTool("bash"),)), Turn(say="Second."), Turn(say="Third."))
SCRIPT = Script(TURNS)
TOOLS = (Tool("bash", {"properties": {"command": {}}}),)
PROMPT = Entry("user", "do the task")
CALLED = Entry("assistant", "t", ("bash",))
RESULT = Entry("tool", "A")


def place(*entries, script=SCRIPT, headers=None):
    return step(script, Asked("m", entries, TOOLS), headers or {}).number


@pytest.mark.parametrize("agent", AGENTS)
def test_each_agent_is_at_the_first_turn_and_then_at_the_second(agent):
    known = [request for request in requests(agent) if request.asked.tools]
    places = [step(SCRIPT, request.asked, request.headers).number for request in known]
    assert places == [0, 1][: len(known)]


def test_a_repeated_request_gets_the_same_turn_with_the_same_ids():
    asked = Asked("m", (PROMPT, CALLED, RESULT), TOOLS)
    first, second = (reply(step(SCRIPT, asked, {}), asked, 0) for _ in range(2))
    assert first == second
    assert first.text == "Second."


def test_messages_in_between_move_nothing():
    assert place(PROMPT, CALLED, RESULT, Entry("user", "also say hello")) == 1
    assert place(PROMPT, CALLED, RESULT, Entry("system", "a note")) == 1


def test_a_resumed_session_goes_on_where_the_script_was():
    assert place(PROMPT, CALLED, RESULT, Entry("assistant", "Second."), PROMPT) == 2


def test_a_turn_that_was_interrupted_counts_as_said():
    assert place(PROMPT, CALLED, RESULT, Entry("assistant", "Sec"), Entry("user", "stop")) == 2


def test_what_an_agent_put_into_the_models_mouth_does_not_count():
    assert place(Entry("user", "context"), Entry("assistant", "Got it."), PROMPT) == 0


def test_a_marker_begins_its_script_anew():
    script = Script(TURNS, marker="[go]")
    again = (PROMPT, CALLED, RESULT, Entry("assistant", "Second."), Entry("user", "now [go]"))
    assert place(*again, script=script) == 0
    assert place(*again, CALLED, RESULT, script=script) == 1


def test_a_request_without_tools_is_on_the_side():
    asked = Asked("m", (PROMPT, CALLED, RESULT))
    side = step(SCRIPT, asked, {})
    assert (side.number, side.turn.say) == (None, TITLE)
    assert step(Script(TURNS, without_tools=True), asked, {}).number == 1


def test_a_request_on_the_side_gets_the_json_it_wants():
    side = step(SCRIPT, requests("gemini")[0].asked, {})
    assert side.turn.say == '{"complexity_reasoning": "scripted", "complexity_score": 1}'


def test_a_task_that_wants_json_in_the_end_is_still_played():
    asked = Asked("m", (PROMPT,), TOOLS, schema={"type": "object"})
    assert step(SCRIPT, asked, {}).number == 0


def test_after_the_last_turn_comes_an_error_unless_the_script_says_what():
    over = (PROMPT, CALLED, RESULT, *(Entry("assistant", turn.say) for turn in TURNS[1:2]), PROMPT)
    over = (*over, Entry("assistant", "Third."), PROMPT)
    with pytest.raises(Unplayable, match=r"is over: it has 3 turns, and this asks for turn 4"):
        place(*over)
    assert place(*over, script=Script(TURNS, afterwards=Turn(say="Still here."))) == 3


def test_scripts_are_found_by_key_then_by_the_newest_marker_then_the_rest():
    turns = (Turn(say="x"),)
    key, a, b = (
        Script(turns, "key", key="k"),
        Script(turns, "a", marker="[a]"),
        Script(turns, "b", marker="[b]"),
    )
    rest = Script(turns, "rest")
    both = Asked(
        "m", (Entry("user", "[b]"), Entry("user", "[a]"), Entry("assistant", "[b]")), TOOLS
    )
    neither = replace(both, entries=(PROMPT,))
    assert find((rest, b, a, key), both, "k") is key
    assert find((rest, b, a, key), both, "other") is a
    assert find((rest, b, a, key), neither, "") is rest
    with pytest.raises(Unplayable, match=r"none of the markers \[a\], \[b\]"):
        find((a, b), neither, "")
    with pytest.raises(Unplayable, match="no script has this API key") as refused:
        find((key,), neither, "other")
    assert refused.value.status == 401


def test_a_longer_marker_wins_over_one_that_it_contains():
    short, long = Script(TURNS, "1", marker="task-1"), Script(TURNS, "12", marker="task-12")
    asked = Asked("m", (Entry("user", "do task-12"),), TOOLS)
    assert find((short, long), asked, "") is long


def test_conversations_are_told_apart_by_their_session_or_by_how_they_began():
    def conversation(text, **headers):
        return step(SCRIPT, Asked("m", (Entry("user", text), CALLED), TOOLS), headers).conversation

    assert conversation("a") == conversation("a") != conversation("b")
    session = {"thread-id": "1"}
    assert conversation("a", **session) == conversation("b", **session) != conversation("a")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (
            {"properties": {"a": {"type": "null"}}, "required": ["a", "b"]},
            {"a": None, "b": "scripted"},
        ),
        ({"type": "ARRAY", "items": {"type": "BOOLEAN"}, "minItems": 2}, [False, False]),
        ({"enum": ["x", "y"]}, "x"),
        ({"const": 5}, 5),
        ({"type": ["null", "string"]}, None),
        ({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "string"}]}, 3),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string", "minLength": 10}}}, "scripted.."),
    ],
    ids=str,
)
def test_an_example_fits_its_schema(schema, value):
    assert example(schema) == value


def test_a_schema_that_contains_itself_has_an_end():
    assert example({"$ref": "#"}) is None
