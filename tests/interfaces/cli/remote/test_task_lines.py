"""Events of a task as lines: why it waits and what answers it, tools and messages in words."""

from datetime import UTC, datetime

import click
import pytest

from paddock.interfaces.cli.remote.task_lines import Known, line_of
from paddock.interfaces.client.results import Event

TASK = "tsk_01"


def shown(kind, known=None, /, **data):
    event = Event(1, kind, TASK, datetime.now(UTC), "paddock", data)
    return click.unstyle(line_of(event, known))


def test_a_task_that_waits_for_its_agents_question_shows_it_and_the_command_that_answers_it():
    told = shown(
        "task.waiting", detail="its agent asks: Which port?", rule="agent", approval="apr_1"
    )
    assert told == (
        "· waiting: its agent asks: Which port?\n"
        '    answer: paddock approvals answer apr_1 --say "…"'
    )


def test_a_task_that_somebody_paused_shows_who_and_how_it_goes_on():
    assert shown("task.waiting", detail="paused by ann", rule="person") == (
        f"· waiting: paused by ann\n    resume: paddock task resume {TASK}"
    )


def test_a_question_of_the_guardian_shows_its_rule_and_both_answers():
    told = shown(
        "guardian.asked",
        rule="budget_gone",
        why="2 of 2 dollars are used",
        text="Shall it have as much again?",
        after={"state": "waiting", "approval": "apr_2"},
    )
    assert told == (
        "? Shall it have as much again?  (rule budget_gone)\n"
        "    yes: paddock approvals allow apr_2\n"
        "    no:  paddock approvals deny apr_2"
    )


def test_a_connection_that_waits_for_an_approval_shows_the_host():
    asked = {
        "kind": "egress",
        "title": "api.example.com:443",
        "why": "no rule allows it",
        "approval": "apr_3",
    }
    told = shown("task.approval", **asked, state="pending")
    assert told.startswith("? allow a connection to api.example.com:443?  (no rule allows it)\n")
    assert "paddock approvals allow apr_3" in told
    assert shown("task.approval", **asked, state="denied") == (
        "· allow a connection to api.example.com:443? denied"
    )


def test_an_agent_that_waits_for_its_model_says_why():
    assert shown("agent.waiting", why="the model's API: overloaded (529)", retry_in_s=8.2) == (
        "· the agent waits: the model's API: overloaded (529); next try in 8 s"
    )


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("Edit", {"file_path": "/w/cart.py", "old_string": "a", "new_string": "b"}, "Edit cart.py"),
        ("Bash", {"command": "make test", "description": "Run"}, "Bash make test"),
        ("Grep", {"pattern": "TODO", "path": "/w/src"}, "Grep TODO"),
        ("apply_patch", {"paths": ["/w/a.py", "/w/b c.py"]}, "apply_patch a.py 'b c.py'"),
        ("run", {"line": "cp in out"}, "run cp in out"),
        ("TodoWrite", {"merge": True, "count": 2}, "TodoWrite merge=true count=2"),
        ("Stop", {}, "Stop"),
    ],
)
def test_a_tool_call_names_the_tool_and_what_it_is_about(name, given, line):
    assert shown("agent.tool_call", Known("/w"), name=name, input=given) == f"→ {line}"


def test_a_message_is_shown_by_its_text():
    known = Known(messages={"msg_1": "Use the other port.\nAnd test it."})
    told = shown("task.message", known, message="msg_1", mode="now", state="queued")
    assert told == "» Use the other port.\nAnd test it."
    told = shown("task.message", known, message="msg_1", mode="now", state="seen")
    assert told == "· message seen: Use the other port. And test it."


@pytest.mark.parametrize("kind", ["agent.error", "task.failed"])
def test_an_error_is_never_cut(kind):
    message = f"{'long ' * 100}the end"
    told = shown(kind, message=message)
    assert told.endswith("the end")
    assert "…" not in told


def test_the_output_of_a_tool_that_failed_says_how_much_is_left_out():
    output = "\n".join(f"line {n}" for n in range(14))
    told = shown("agent.tool_result", ok=False, output=output)
    assert told.startswith("  ✗ line 0\n    line 1\n")
    assert told.endswith("(and 4 more lines; `paddock task logs --json` has them)")


def test_a_message_with_tabs_and_colours_is_read_as_it_was_meant():
    told = shown("agent.message", text="\x1b[32mok\x1b[0m\tcart.py\nnext")
    assert told == "ok\tcart.py\nnext"
