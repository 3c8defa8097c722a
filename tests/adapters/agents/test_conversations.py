"""What holds for a conversation with any agent, wherever it is cut and whatever is said in it."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.adapters.agents.registry import AGENTS, agent_named
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Mode
from tests.adapters.agents.driving import message
from tests.adapters.agents.recorded import SAMPLES, Told, begun, brief, sample

NAMES = sorted(AGENTS)
RECORDED = [
    (name, path.stem)
    for name in NAMES
    for path in sorted(SAMPLES.glob(f"{name}-*.jsonl"))
    if not path.stem.endswith(".sent")
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@dataclass
class Meddling:
    """What comes from outside, before the line with some number: messages, and a stop."""

    at: dict[int, Mode | None] = field(default_factory=dict)

    def before(self, number: int, told: Told, agent) -> None:
        if number in self.at:
            mode = self.at[number]
            if mode is None:
                told.then(agent.stop(told.talk))
            elif mode in agent.traits.modes:
                told.then(agent.tell(told.talk, message("and X", mode, f"msg_{number}")))


def meddlings(most: int):
    when = st.integers(0, most)
    what = st.sampled_from([Mode.NOW, Mode.TURN, Mode.INTERRUPT, Mode.NOW, None])
    return st.builds(Meddling, st.dictionaries(when, what, max_size=4))


def talked(agent, lines, meddling) -> Told:
    told = begun(agent)
    for number, line in enumerate(lines):
        meddling.before(number, told, agent)
        told.then(agent.hear(told.talk, line))
    return told


@pytest.mark.parametrize(("name", "recorded"), RECORDED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_conversation_goes_on_from_what_was_kept_wherever_it_is_cut(name, recorded, data):
    agent, lines = agent_named(name), sample(recorded)
    meddling = data.draw(meddlings(len(lines)))
    whole = talked(agent, lines, meddling)
    cut = data.draw(st.integers(0, len(lines)))
    half = talked(agent, lines[:cut], meddling)
    # Another server: nothing of it is left but what was kept.
    rest = Told(type(half.talk)(state=json.loads(json.dumps(half.talk.state))))
    for number, line in enumerate(lines[cut:], cut):
        meddling.before(number, rest, agent)
        rest.then(agent.hear(rest.talk, line))
    assert half.events + rest.events == whole.events
    assert half.says + rest.says == whole.says
    assert half.delivered + rest.delivered == whole.delivered
    assert half.seen + rest.seen == whole.seen
    assert rest.talk.state == whole.talk.state


@pytest.mark.parametrize(("name", "recorded"), RECORDED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_line_may_hold_anything_in_any_place(name, recorded, data):
    agent, lines = agent_named(name), sample(recorded)
    told = begun(agent)
    for line in lines:
        damaged = data.draw(st.booleans())
        said = json.loads(line)
        if damaged:
            said = _replaced(said, data)
        told.then(agent.hear(told.talk, json.dumps(said).encode()))
    for event in told.events:
        json.dumps(event.data, allow_nan=False).encode()
    told.then(agent.end(told.talk, 1, "tail"))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "command"])
@given(line=st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_garbage_changes_nothing(name, line):
    agent = agent_named(name)
    told = begun(agent)
    before = told.talk.state
    told.then(agent.hear(told.talk, line))
    assert told.talk.state == before
    assert len(told.says) == len(begun(agent).says)
    assert all(event.kind.value == "agent.other" for event in told.events)


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_of_any_content_and_size_is_no_argument(name):
    agent = agent_named(name)
    prompt = 'it\'s "$(touch /tmp/x)" `y` \\ %s \N{SNOWMAN}\u2028\r\n' + "z" * (1 << 20)
    launch = agent.launch(brief(prompt, options={"command": ["/agent"]}))
    assert not any("touch" in argument for argument in launch.argv)
    assert "touch" not in json.dumps(dict(launch.env))


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_that_ends_without_a_word_has_failed(name):
    agent = agent_named(name)
    (event,) = agent.end(begun(agent).talk, 0, "").events
    assert event.data["final"]


def test_an_unknown_agent_is_refused_with_those_that_are_known():
    with pytest.raises(InvalidRequest) as refused:
        agent_named("clod")
    assert "claude_code" in refused.value.remediation


def _replaced(value, data):
    """The same, with something else in one of its places."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: _replaced(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], _replaced(value[place], data), *value[place + 1 :]]
    return data.draw(JSON)
