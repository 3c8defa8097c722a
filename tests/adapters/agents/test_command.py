"""Any program as an agent, really run."""

import json

import pytest

from paddock.adapters.agents.command import Command
from paddock.domain.agent_event import LONGEST_DATA
from paddock.domain.agent_event import AgentEventKind as Kind
from paddock.domain.errors import InvalidRequest
from tests.adapters.agents.driving import brief_for, drive, driving
from tests.adapters.agents.recorded import begun, brief
from tests.testing.models.agents import Place

pytestmark = pytest.mark.timeout(60)
COMMAND = Command()


@pytest.fixture
def ran(tmp_path):
    place = Place.under(tmp_path)

    async def run(script, prompt="do the task"):
        given = brief_for(place, "", prompt, options={"command": ["/bin/sh", "-c", script]})
        return await drive(COMMAND, given, place)

    return run


async def test_a_program_gets_its_prompt_twice_over_and_what_it_prints_is_its_message(ran):
    prompt = 'it\'s "$(id)" é\n' * 80_000
    driven = await ran('cat | cmp - "$PADDOCK_PROMPT_FILE" && echo one; echo; echo two', prompt)
    assert driven.of(Kind.MESSAGE) == [{"text": "one"}, {"text": "two"}]
    assert driven.of(Kind.COMPLETED) == [{"text": "two", "ok": True}]


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 0", "no output"), ("echo hm; echo broken >&2; exit 3", "ended with 3"), ("echo", "no")],
)
async def test_one_that_fails_or_says_nothing_has_failed(ran, script, why):
    driven = await ran(script)
    (error,) = driven.of(Kind.ERROR)
    assert error["final"]
    assert why in error["message"]
    assert not driven.of(Kind.COMPLETED)


async def test_one_that_is_stopped_is_ended(tmp_path):
    place = Place.under(tmp_path)
    given = brief_for(place, "", "x", options={"command": ["/bin/sh", "-c", "echo a; sleep 50"]})
    async with driving(COMMAND, given, place) as driven:
        await driven.until_kind(Kind.MESSAGE)
        await driven.stop()
        await driven.finished(10)
    assert driven.of(Kind.COMPLETED) == [{"text": "a", "ok": False}]


def test_long_lines_and_odd_bytes_are_cut_and_kept_readable():
    told = begun(COMMAND).hear(COMMAND, [b"x" * (1 << 22), b"\xff\0a"])
    assert told.of(Kind.MESSAGE)[0] == {"text": "x" * LONGEST_DATA, "cut": True}
    assert "\0" not in told.of(Kind.MESSAGE)[1]["text"]
    assert len(json.dumps(told.talk.state)) < 200


def test_it_cannot_be_given_a_model():
    with pytest.raises(InvalidRequest):
        COMMAND.check(brief(model="gpt-5.5", options={"command": ["x"]}))
