"""What takes the place of a sandbox that was lost under its task."""

from dataclasses import replace

import pytest

from paddock.domain.conversation import Conversation, Judged, Stage, begun, displaced, ended
from paddock.domain.lifetime import Clockwork
from paddock.domain.quarantine import Quarantine
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.task_course import Step, after_run
from paddock.domain.task_loss import (
    Loss,
    beginning_prompt,
    going_on_prompt,
    newest,
    step_after,
    why_not,
)

LOST = SandboxRecord("sbx_1", "tem_1", "a", SandboxState.FAILED, "local", 0.0, 0.0, Clockwork(0.0))
ASIDE = Quarantine("somebody", 0.0, "odd")


def kept(name: str, at: float, **more: object) -> SnapshotRecord:
    return SnapshotRecord(name, "tem_1", name, "local", at, ref="r", **more)  # type: ignore[arg-type]


def test_only_what_nobody_wanted_and_nobody_suspects_is_replaced():
    assert why_not(LOST, is_own=True, is_wanted=True) == ""
    assert "not made for the task" in why_not(LOST, is_own=False, is_wanted=True)
    assert "replace_lost" in why_not(LOST, is_own=True, is_wanted=False)
    aside = replace(LOST, quarantine=ASIDE)
    assert "odd" in why_not(aside, is_own=True, is_wanted=True)


@pytest.mark.parametrize("state", [s for s in SandboxState if s is not SandboxState.FAILED])
def test_what_did_not_fail_is_not_replaced(state):
    assert why_not(replace(LOST, state=state), is_own=True, is_wanted=True)


def test_the_newest_snapshot_counts_that_is_whole_and_nobodys_evidence():
    early, late = kept("early", 10.0), kept("late", 20.0)
    half = replace(kept("half", 30.0), ref="")
    evidence = kept("evidence", 40.0, quarantine=ASIDE)
    assert newest([early, late, half, evidence], 0.0) == late
    assert newest([early, late], 20.5) is None
    assert newest([], 0.0) is None


def test_steps_have_another_name_in_each_sandbox():
    losses = [Loss("sbx_1", 1.0), Loss("sbx_2", 2.0)]
    names = [step_after(losses[:count], "setup") for count in range(3)]
    assert names == ["setup", "setup.1", "setup.2"]


def test_an_agent_is_told_as_of_when_its_files_are_and_what_was_said():
    going_on = going_on_prompt(86_400.0, ["use tabs"])
    assert "1970-01-02 00:00:00 UTC" in going_on
    assert going_on.endswith("use tabs")
    anew = beginning_prompt("Do it.", 0.0, [])
    assert anew.startswith("Do it.\n\n")
    assert "1970" not in anew
    assert "may have been done already" in anew


@pytest.mark.parametrize(
    ("stage", "then"),
    [(Stage.PLAN, Stage.PLAN), (Stage.WORK, Stage.WORK), (Stage.REVIEW, Stage.WORK)],
)
def test_who_planned_plans_again_and_everybody_else_works(stage, then):
    moved = displaced(replace(begun(Conversation()), stage=stage), "s", 5.0)
    assert (moved.stage, moved.session, moved.back_to, moved.run) == (then, "s", 5.0, 1)
    assert displaced(Conversation(session="first"), "", 0.0) == Conversation(session="first")


def test_a_session_that_is_not_there_is_given_up_once():
    first = begun(displaced(begun(Conversation()), "s", 5.0))
    failed = ended(replace(first, judged=Judged(error="no such session")), 1, is_lost=False)
    assert after_run(failed, is_cancelled=False, resumes=True, mail=[]).step is Step.FORGET
    assert after_run(failed, is_cancelled=True, resumes=True, mail=[]).step is Step.CANCEL
    busy = replace(failed, judged=Judged(error="API Error: 529 overloaded"))
    assert after_run(busy, is_cancelled=False, resumes=True, mail=[]).step is Step.FAIL
    again = begun(displaced(failed, "", 5.0))
    failed = ended(replace(again, judged=failed.judged, session="t"), 1, is_lost=False)
    assert after_run(failed, is_cancelled=False, resumes=True, mail=[]).step is Step.FAIL
