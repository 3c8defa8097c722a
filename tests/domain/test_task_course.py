"""What follows when a run of an agent has ended."""

from dataclasses import replace

import pytest

from paddock.domain.agent import Talk
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.conversation import Conversation, Judged, begun, ended, stepped, whole_lines
from paddock.domain.reason import Reason
from paddock.domain.task_course import GO_ON, Next, Step, after_run

GOOD = Judged(last_words="done", did_something=True, has_completed=True)


def after(conversation: Conversation, **more: object) -> Next:
    wish = {"is_cancelled": False, "resumes": True, "mail": [], **more}
    return after_run(conversation, **wish)  # type: ignore[arg-type]


def over(code: int | None = 0, judged: Judged = GOOD, **more: object) -> Conversation:
    conversation = replace(begun(Conversation(session="s")), judged=judged, **more)  # type: ignore[arg-type]
    return ended(conversation, code, is_lost=False)


def test_what_was_done_completes_and_what_did_nothing_fails():
    assert after(over()).step is Step.COMPLETE
    nothing = after(over(judged=Judged()))
    assert (nothing.step, nothing.reason) == (Step.FAIL, Reason.NO_OUTPUT)
    assert "no output" in nothing.why


def test_mail_begins_a_run_of_its_own_where_it_can():
    assert after(over(), mail=["a", "b"]) == Next(Step.BEGIN, "a\n\nb", message="done")
    assert after(over(), mail=["a"], resumes=False).step is Step.COMPLETE


@pytest.mark.parametrize("code", [-9, 137, None])
def test_who_died_is_started_again_with_what_it_has_not_read(code):
    worked = Judged(did_something=True)
    assert after(over(code, worked)).prompt == GO_ON
    fresh = replace(over(code, Judged()), prompt="mail")
    assert (after(fresh).step, after(fresh).prompt) == (Step.RESTART, "mail")


def test_whoever_wanted_an_end_gets_it():
    assert after(over(), is_cancelled=True).step is Step.CANCEL
    late = after(over(why_stopped=Reason.DEADLINE))
    assert (late.step, late.reason) == (Step.FAIL, Reason.DEADLINE)


def test_last_words_alone_are_output():
    done = AgentEvent(AgentEventKind.COMPLETED, {"text": "fine"})
    heard = stepped(begun(Conversation()), Talk(events=(done,)))
    assert after(ended(heard, 0, is_lost=False)).step is Step.COMPLETE


@pytest.mark.parametrize(
    ("data", "last", "lines", "length"),
    [
        (b"a\nb\nc", False, (b"a", b"b"), 4),
        (b"a\nb\nc", True, (b"a", b"b", b"c"), 5),
        (b"abc", False, (), 0),
        (b"", True, (), 0),
    ],
)
def test_only_whole_lines_are_read_until_the_end(data, last, lines, length):
    found = whole_lines(data, is_skipping=False, is_last=last)
    assert (found.lines, found.length) == (lines, length)


def test_an_exit_code_is_a_signal_only_where_there_is_one():
    for code, step in ((255, Step.FAIL), (137, Step.RESTART), (193, Step.FAIL)):
        ended = Conversation(run=1, exit_code=code, has_ended=True)
        found = after_run(ended, is_cancelled=False, resumes=True, mail=())
        assert found.step is step, code
