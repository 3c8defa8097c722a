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
from paddock.domain.conversation import LONGEST_LINE, Conversation, ended, whole_lines
from paddock.domain.message import Message, MessageState, Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord
from paddock.domain.task_course import Step, after_run
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.guest_client.runs import Chunk, Gap, Told
from paddock.services import task_mail
from paddock.services.task_reading import Steps, apart, bounded, cut_at_end
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
    told = bounded(heard.events, 0)
    assert len(told) <= 40_010
    over = after_run(
        ended(heard.conversation, 137, is_lost=False), is_cancelled=False, resumes=True, mail=()
    )
    assert (over.step, over.reason) == (Step.FAIL, Reason.TOO_MUCH)
    assert "40000 events" in over.why


def said(*events):
    return [event.data["text"] for event in events]


def test_of_many_lines_at_once_those_that_fit_are_told_in_order_and_then_what_is_cut():
    heard = steps(Command())
    for number in range(21_000):
        heard.hear(b"%d" % number)
    told = said(*bounded(heard.events, 0))
    assert told[:-1] == [str(number) for number in range(20_000)]
    assert told[-1] == "limit of 20000 events reached: later ones are only in the agent's output"
    later = steps(Command())
    for number in range(3):
        later.hear(b"%d" % number)
    assert said(*bounded(later.events, 19_998))[:2] == ["0", "1"]
    assert bounded(later.events, 50_000) == []
    assert said(*cut_at_end(heard.conversation)) == ["1000 of its 21000 events were left out"]
    assert cut_at_end(later.conversation) == []


def test_many_short_lines_are_read_in_parts_that_lack_nothing():
    data = b"".join(b"%d\n" % number for number in range(3500)) + b"rest"
    parts = apart(Told((("stdout", Chunk(7, data)), ("stderr", Chunk(0, b"no")))))
    chunks = [item for part in parts for stream, item in part.output if stream == "stdout"]
    assert len(chunks) == 4
    assert b"".join(each.data for each in chunks) == data
    assert [each.offset for each in chunks] == [
        7 + sum(len(each.data) for each in chunks[:n]) for n in range(4)
    ]
    exactly = apart(Told((("stdout", Chunk(0, b"x\n" * 2000)),)))
    assert [len(part.output[0][1].data) for part in exactly] == [2000, 2000]


def test_a_line_that_is_too_long_is_left_out_where_it_stands_and_that_is_told():
    long = b"x" * (LONGEST_LINE + 1)
    lines = whole_lines(b"one\n" + long, is_skipping=False, is_last=False)
    after = whole_lines(b"xx\ntwo\n", is_skipping=lines.is_skipping, is_last=False)
    whole = whole_lines(b"one\n" + long + b"\ntwo\n", is_skipping=False, is_last=True)
    for found in ((*lines.lines, *after.lines), whole.lines):
        heard = steps(Command())
        for line in found:
            heard.hear(line)
        assert [event.data.get("text") for event in heard.events] == ["one", None, "two"]
        message = "line 2 of its output is longer than 8 MiB and was left out"
        assert heard.events[1].data == {"message": message, "final": False}


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
