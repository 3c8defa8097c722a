"""What agents write is heard to the end, whatever it is, and never costs more than it may."""

import json
from dataclasses import replace
from uuid import uuid4

import pytest

from paddock.adapters.agents.claude_code import ClaudeCode
from paddock.adapters.agents.codex import Codex
from paddock.adapters.agents.command import Command
from paddock.adapters.agents.gemini import Gemini
from paddock.domain.agent_event import LONGEST_SAID
from paddock.domain.agent_event import AgentEventKind as Kind
from paddock.domain.broker.masking import NO_MASK
from paddock.domain.conversation import Conversation, ended
from paddock.domain.message import Message, MessageState, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord
from paddock.domain.task_course import Step, after_run
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.guest_client.runs import Chunk, Gap, Told
from paddock.services import task_mail
from paddock.services.task_reading import Steps, apart, bounded
from tests.adapters.agents.recorded import brief
from tests.adapters.store.conftest import place, postgres_place, sqlite_place, store

__all__ = ["place", "postgres_place", "sqlite_place", "store"]  # fixtures
MEGABYTES = 7 << 20


class Stumbling(Command):
    """A program whose adapter has a fault."""

    def hear(self, talk, line):
        if line == b"odd":
            raise OverflowError("int too large to convert to float")
        return super().hear(talk, line)


def steps(agent, **more):
    talk = agent.begin(brief(options={"command": ["x"]}))
    return Steps(agent, replace(Conversation(run=1), state=talk.state, **more), NO_MASK)


def of_claude(*blocks):
    return json.dumps({"type": "assistant", "message": {"content": blocks}}).encode()


def test_a_line_that_an_adapter_fails_on_is_told_and_the_next_is_heard():
    heard = steps(Stumbling())
    for line in (b"one", b"odd", b"two"):
        heard.hear(line)
    assert [event.data.get("text") for event in heard.events] == ["one", None, "two"]
    error = heard.events[1]
    assert (error.kind, error.data["final"]) == (Kind.ERROR, False)
    assert "line 2" in error.data["message"]


@pytest.mark.parametrize(
    "said",
    [
        {"type": "system", "subtype": "api_retry", "retry_delay_ms": int("9" * 400)},
        {
            "type": "result",
            "terminal_reason": "completed",
            "model_usage_since_last_result": {
                "m": {"outputTokens": int("9" * 400), "costUSD": 1e308},
                "n": {"outputTokens": 1, "costUSD": 1e308},
            },
        },
    ],
)
def test_numbers_that_no_count_can_be_are_none(said):
    heard = steps(ClaudeCode())
    heard.hear(json.dumps(said).encode())
    assert Kind.ERROR not in {event.kind for event in heard.events}
    for event in heard.events:
        json.dumps(dict(event.data), allow_nan=False)


@pytest.mark.parametrize("kind, key", [("text", "text"), ("thinking", "thinking")])
def test_a_message_of_megabytes_is_told_in_pieces(kind, key):
    heard = steps(ClaudeCode())
    words = "word " * (MEGABYTES // 5)
    heard.hear(of_claude({"type": kind, key: words}))
    assert "".join(event.data["text"] for event in heard.events) == words
    assert max(len(event.data["text"]) for event in heard.events) <= LONGEST_SAID
    assert len(heard.conversation.judged.last_words) <= LONGEST_SAID + 100


def test_last_words_of_megabytes_are_cut_and_say_so():
    heard = steps(ClaudeCode())
    said = {"type": "result", "terminal_reason": "completed", "result": "x" * MEGABYTES}
    heard.hear(json.dumps(said).encode())
    completed = heard.events[-1]
    assert (len(completed.data["text"]), completed.data["cut"]) == (LONGEST_SAID, True)
    last = heard.conversation.judged.last_words
    assert len(last) < LONGEST_SAID + 100
    assert last.endswith("[cut: it was longer]")


def test_an_error_of_megabytes_is_cut():
    heard = steps(ClaudeCode())
    said = {"type": "result", "is_error": True, "result": "x" * MEGABYTES}
    heard.hear(json.dumps(said).encode())
    assert len(heard.events[-1].data["message"]) == LONGEST_SAID
    assert len(heard.conversation.judged.error) <= LONGEST_SAID


def test_an_agent_that_tells_without_end_what_is_always_told_is_ended():
    heard = steps(ClaudeCode())
    used = {"m": {"inputTokens": 1, "outputTokens": 1}}
    line = json.dumps({"type": "result", "model_usage_since_last_result": used}).encode()
    while not heard.conversation.must_stop:
        heard.hear(line)
        assert len(heard.events) <= 41_000
    for _ in range(100):
        heard.hear(line)
    told = bounded(heard.events, 0, heard.conversation.events)
    assert len(told) <= 40_010
    over = after_run(
        ended(heard.conversation, 137, is_lost=False), is_cancelled=False, resumes=True, mail=()
    )
    assert (over.step, over.reason) == (Step.FAIL, Reason.TOO_MUCH)
    assert "40000 events" in over.why


def test_an_agent_that_only_talks_very_much_goes_on():
    heard = steps(Command(), events=39_999)
    for _ in range(50):
        heard.hear(b"still here")
    assert not heard.conversation.must_stop


@pytest.mark.parametrize("session", ["", "--dangerous", "x" * 5000, "a b", "s\n"])
def test_a_session_that_can_be_none_is_never_resumed(session):
    claude = steps(ClaudeCode())
    claude.hear(json.dumps({"type": "system", "subtype": "init", "session_id": session}).encode())
    assert claude.conversation.session == ""
    assert "--resume" not in ClaudeCode().launch(brief(session=session)).argv
    gemini = steps(Gemini())
    gemini.hear(json.dumps({"type": "init", "session_id": session}).encode())
    gemini.hear(json.dumps({"type": "message", "role": "assistant", "content": "hi"}).encode())
    assert gemini.conversation.session == ""
    assert "-r" not in Gemini().launch(brief(session=session)).argv
    codex = steps(Codex())
    for number in range(3):
        codex.hear(json.dumps({"id": number, "result": {"thread": {"id": session}}}).encode())
    assert codex.conversation.session == ""


async def test_an_agent_cannot_touch_the_messages_of_another_task(store):
    team = Team(f"tem_{uuid4().hex}", uuid4().hex, 1.0)
    mine, other = (
        TaskRecord(f"tsk_{uuid4().hex}", team.id, "a", TaskWish("do it", "command"), 1.0, 1.0)
        for _ in range(2)
    )
    own, foreign = (
        Message(f"msg_{uuid4().hex}", team.id, task.id, "hello", Mode.NOW, "a", 1.0)
        for task in (mine, other)
    )

    def write(tx):
        tx.teams.add(team)
        for task, message in ((mine, own), (other, foreign)):
            tx.tasks.add(task)
            tx.messages.add(message)
        task_mail.note_seen(tx, mine.id, [foreign.id, own.id, "msg_nobody"], 2.0)
        return [tx.messages.get(team.id, each.id).state for each in (own, foreign)]

    assert await store.write(write) == [MessageState.SEEN, MessageState.QUEUED]


def test_what_was_written_before_a_gap_is_a_part_of_its_own():
    one, gap, two = Chunk(0, b"one\n"), Gap(4, 9), Chunk(9, b"two\n")
    said = ("stderr", Chunk(0, b"x"))
    told = Told((("stdout", one), ("stdout", gap), ("stdout", two), said))
    assert apart(told) == [Told((("stdout", one),)), Told((("stdout", gap), ("stdout", two), said))]
    assert apart(Told((("stdout", gap), ("stdout", two)))) == [
        Told((("stdout", gap), ("stdout", two)))
    ]
    assert apart(Told(())) == [Told(())]
