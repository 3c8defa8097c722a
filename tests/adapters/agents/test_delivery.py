"""Every message arrives once, whenever it is sent and whatever the agent is doing just then."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.adapters.agents.registry import agent_named
from paddock.domain.message import Mode
from tests.adapters.agents.driving import message
from tests.adapters.agents.recorded import begun
from tests.adapters.agents.simulated import SimulatedClaude, SimulatedCodex

SIMULATED = {"claude_code": SimulatedClaude, "codex": SimulatedCodex}
MOVES = st.lists(
    # Mostly they understand each other; otherwise few would come far enough.
    st.sampled_from(["read", "hear", "work", "finish", "sync", "sync", "sync", *Mode]),
    max_size=40,
)


class Scene:
    """An adapter and its agent, with all that one has said and the other not heard between them."""

    def __init__(self, name):
        self.agent = agent_named(name)
        self.simulated = SIMULATED[name]()
        self.told = begun(self.agent)
        self.passed = 0
        self.texts = {}
        self.modes = {}
        self._pass_on()

    def move(self, move):
        simulated = self.simulated
        if isinstance(move, Mode):
            sent = message(f"text {len(self.modes)}", move, f"msg_{len(self.modes)}")
            self.texts[sent.id] = sent.text
            self.modes[sent.id] = move
            self.told.then(self.agent.tell(self.told.talk, sent))
        elif move == "read" and simulated.told:
            simulated.read()
        elif move == "hear" and simulated.said:
            self.told.hear(self.agent, [simulated.said.popleft()])
        elif move == "sync":
            while simulated.told or simulated.said:
                self.move("read")
                self.move("hear")
        elif move in ("work", "finish"):
            simulated.work(is_done=move == "finish")
        self._pass_on()
        # Whoever closes its input then must not lose anything.
        assert not (self.told.talk.is_over and not simulated.told and simulated.is_busy)

    def drop(self):
        """What nobody has passed on yet, as if it were too late for that."""
        said = {say.message for say in self.told.says} | set(self.told.delivered)
        late = [
            name
            for name, mode in self.modes.items()
            if name not in said and name in self.texts and mode is not Mode.INTERRUPT
        ]
        self.told.then(self.agent.drop(self.told.talk, late))
        for name in late:
            del self.texts[name]
        self._pass_on()

    def settle(self):
        """Until nothing moves any more."""
        self.move("sync")
        while self.simulated.work(is_done=True):
            self.move("sync")

    def _pass_on(self):
        fresh = self.told.says[self.passed :]
        self.passed = len(self.told.says)
        self.simulated.told.extend(json.loads(say.data) for say in fresh)


@pytest.mark.parametrize("name", sorted(SIMULATED))
@settings(max_examples=300, deadline=None)
@given(moves=MOVES)
def test_a_message_arrives_once_and_then_the_agent_is_over(name, moves):
    scene = Scene(name)
    for move in moves:
        scene.move(move)
    scene.settle()
    told = scene.told
    assert told.talk.is_over
    assert sorted(told.delivered) == sorted(told.seen) == sorted(scene.texts)
    got = scene.simulated.seen
    assert sorted(got) == sorted([*scene.texts.values(), "do the task"])


@pytest.mark.proves("M2")
@pytest.mark.parametrize("name", sorted(SIMULATED))
@settings(max_examples=200, deadline=None)
@given(moves=MOVES, more=MOVES)
def test_what_is_dropped_never_arrives_and_the_others_do(name, moves, more):
    scene = Scene(name)
    for move in moves:
        scene.move(move)
    scene.drop()
    for move in more:
        scene.move(move)
    scene.settle()
    assert scene.told.talk.is_over
    got = scene.simulated.seen
    assert sorted(got) == sorted([*scene.texts.values(), "do the task"])
    assert sorted(scene.told.seen) == sorted(scene.texts)


@pytest.mark.parametrize("name", sorted(SIMULATED))
@settings(max_examples=200, deadline=None)
@given(moves=MOVES, more=MOVES)
def test_a_stop_at_any_moment_leads_to_the_end(name, moves, more):
    scene = Scene(name)
    for move in moves:
        scene.move(move)
    scene.told.then(scene.agent.stop(scene.told.talk))
    scene.told.events.clear()
    for move in more:
        scene.move(move)
    scene.settle()
    assert scene.told.talk.is_over
    assert not any(event.data.get("final") for event in scene.told.events)
