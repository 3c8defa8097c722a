"""What Claude Code says, read from lines that it wrote."""

import json

import pytest

from paddock.adapters.agents.claude_code import ClaudeCode
from paddock.adapters.agents.claude_stream import uuid_of
from paddock.domain.agent import ToolServer
from paddock.domain.agent_event import AgentEventKind as Kind
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Mode
from tests.adapters.agents.driving import message
from tests.adapters.agents.recorded import begun, brief, played, sample

CLAUDE = ClaudeCode()
SESSION = "00000000-0000-4000-8000-000000000001"
RECORDED = "00000000-0000-4000-8000-000000000006"
"""The UUID of the message in the recorded runs."""


def lines(name, told_id):
    """A recorded run, as if its message had been this one."""
    return [line.replace(RECORDED.encode(), uuid_of(told_id).encode()) for line in sample(name)]


def test_a_plain_run_becomes_events():
    told = played(CLAUDE, "claude_code-edit")
    assert [event.kind for event in told.events] == [
        Kind.STARTED,
        Kind.MESSAGE,
        Kind.TOOL_CALL,
        Kind.TOOL_RESULT,
        Kind.FILE_EDITED,
        Kind.MESSAGE,
        Kind.USAGE,
        Kind.COMPLETED,
    ]
    assert told.of(Kind.STARTED) == [
        {"version": "2.1.325", "model": "claude-sonnet-4-5", "session": SESSION}
    ]
    assert told.of(Kind.TOOL_CALL) == [
        {
            "id": "toolu_010001",
            "name": "Write",
            "input": {"file_path": "/workspace/hello.txt", "content": "hi"},
        }
    ]
    assert told.of(Kind.TOOL_RESULT)[0]["ok"]
    diff = "--- /dev/null\n+++ b/workspace/hello.txt\n@@ -0,0 +1 @@\n+hi\n"
    assert told.of(Kind.FILE_EDITED) == [
        {
            "path": "/workspace/hello.txt",
            "kind": "add",
            "diff": f"{diff}\\ No newline at end of file\n",
        }
    ]
    assert told.of(Kind.USAGE) == [
        {"input_tokens": 2000, "cached_tokens": 0, "output_tokens": 100, "cost_usd": 0.0075}
    ]
    assert told.of(Kind.COMPLETED) == [{"text": "Created hello.txt.", "ok": True}]
    assert told.session == SESSION
    assert told.talk.is_over
    assert CLAUDE.end(told.talk, 0, "").events == ()


def test_thoughts_are_told_once_though_they_come_in_pieces_too():
    told = played(CLAUDE, "claude_code-partial-and-thinking")
    assert told.of(Kind.THINKING) == [{"text": "Plan it."}]
    assert [said["text"] for said in told.of(Kind.MESSAGE)] == ["I will run it.", "Done."]
    assert not told.of(Kind.OTHER)


def test_a_tool_of_an_mcp_server_answers_in_blocks():
    told = played(CLAUDE, "claude_code-mcp")
    assert told.of(Kind.TOOL_CALL)[0]["name"] == "mcp__echo__say"
    assert told.of(Kind.TOOL_RESULT) == [
        {"id": "toolu_010001", "ok": True, "output": "MCP-SAID hi"}
    ]


def test_a_message_for_now_is_delivered_when_queued_and_seen_when_the_model_gets_it():
    told = begun(CLAUDE)
    recorded = lines("claude_code-inject-next", "msg_1")
    told.hear(CLAUDE, recorded[:4])
    told.then(CLAUDE.tell(told.talk, message("please also do X", Mode.NOW)))
    sent = told.said[-1]
    assert (sent["uuid"], sent["message"]["content"]) == (uuid_of("msg_1"), "please also do X")
    assert "priority" not in sent
    assert told.says[-1].message == "msg_1"
    told.hear(CLAUDE, recorded[4:5])
    assert (told.delivered, told.seen) == (["msg_1"], [])
    told.hear(CLAUDE, recorded[5:8])
    assert (told.delivered, told.seen) == (["msg_1"], ["msg_1"])
    told.hear(CLAUDE, recorded[8:])
    assert told.talk.is_over
    assert told.of(Kind.USAGE)[0]["input_tokens"] == 3000


def test_a_run_is_not_over_while_a_message_waits_for_its_turn():
    told = begun(CLAUDE)
    first, second = _turns(sample("claude_code-inject-later"))
    told.hear(CLAUDE, first[:3])
    told.then(CLAUDE.tell(told.talk, message("and then Y", Mode.TURN)))
    assert told.said[-1]["priority"] == "later"
    told.hear(CLAUDE, first[3:])
    assert not told.talk.is_over
    told.hear(CLAUDE, [_lifecycle("queued"), _lifecycle("started"), *second])
    assert told.talk.is_over
    assert (told.delivered, told.seen) == (["msg_1"], ["msg_1"])
    assert [usage["input_tokens"] for usage in told.of(Kind.USAGE)] == [3000, 1000]
    assert len(told.of(Kind.STARTED)) == 1


def test_an_interruption_is_no_failure_if_it_was_wanted():
    told = begun(CLAUDE)
    first, second = _turns(sample("claude_code-interrupt"))
    told.hear(CLAUDE, first[:3])
    told.then(CLAUDE.tell(told.talk, message("do Z instead", Mode.INTERRUPT)))
    assert [said["type"] for said in told.said[-2:]] == ["control_request", "user"]
    told.hear(CLAUDE, first[3:])
    assert told.of(Kind.COMPLETED) == [{"text": "", "ok": False}]
    assert not told.talk.is_over
    told.hear(CLAUDE, [_lifecycle("started"), *second])
    assert told.talk.is_over
    assert told.of(Kind.COMPLETED)[1]["ok"]
    assert not told.of(Kind.ERROR)


def test_an_interruption_that_nobody_wanted_is_a_failure():
    told = played(CLAUDE, "claude_code-interrupt")
    assert [error["final"] for error in told.of(Kind.ERROR)] == [True]


def test_a_message_that_interrupts_waits_for_a_turn_to_interrupt():
    told = begun(CLAUDE)
    told.then(CLAUDE.tell(told.talk, message("do Z instead", Mode.INTERRUPT)))
    assert len(told.says) == 1
    told.hear(CLAUDE, sample("claude_code-interrupt")[:1])
    assert [said["type"] for said in told.said[1:]] == ["control_request", "user"]


def test_a_message_that_interrupts_nothing_is_given_all_the_same():
    told = played(CLAUDE, "claude_code-edit")
    told.then(CLAUDE.tell(told.talk, message("do Z", Mode.INTERRUPT)))
    assert told.said[-1]["message"]["content"] == "do Z"
    assert not told.talk.is_over
    told = begun(CLAUDE).hear(CLAUDE, sample("claude_code-edit")[:-1])
    told.then(CLAUDE.tell(told.talk, message("once", Mode.TURN)))
    told.hear(CLAUDE, sample("claude_code-edit")[-1:])
    told.then(CLAUDE.tell(told.talk, message("do Z", Mode.INTERRUPT, "msg_2")))
    assert told.said[-1]["message"]["content"] == "once"
    told.hear(CLAUDE, [_lifecycle("completed")])
    assert told.said[-1]["message"]["content"] == "do Z"


def test_a_message_that_an_earlier_run_took_already_is_not_waited_for():
    told = begun(CLAUDE).hear(CLAUDE, sample("claude_code-edit")[:-1])
    told.then(CLAUDE.tell(told.talk, message("once", Mode.TURN)))
    told.hear(CLAUDE, sample("claude_code-edit")[-1:])
    assert not told.talk.is_over
    told.hear(CLAUDE, [_lifecycle("completed")])
    assert told.talk.is_over


def test_what_is_told_before_the_input_is_closed_begins_another_turn():
    told = played(CLAUDE, "claude_code-edit")
    told.then(CLAUDE.tell(told.talk, message("one more", Mode.NOW)))
    assert not told.talk.is_over
    assert told.said[-1]["message"]["content"] == "one more"
    told.hear(CLAUDE, [_lifecycle("started")])
    assert not told.talk.is_over
    told.hear(CLAUDE, sample("claude_code-edit"))
    assert told.talk.is_over
    assert len(told.of(Kind.COMPLETED)) == 2


def test_it_stays_over_whatever_it_says_afterwards():
    told = played(CLAUDE, "claude_code-edit")
    told.hear(CLAUDE, [b"goodbye"])
    assert told.talk.is_over


def test_a_stop_breaks_off_the_turn_and_those_of_messages_that_it_has_already():
    told = begun(CLAUDE)
    first, second = _turns(sample("claude_code-interrupt"))
    told.hear(CLAUDE, first[:3])
    told.then(CLAUDE.tell(told.talk, message("later", Mode.TURN)))
    told.then(CLAUDE.stop(told.talk))
    assert told.said[-1]["request"] == {"subtype": "interrupt"}
    told.hear(CLAUDE, first[3:])
    assert not told.talk.is_over
    said = len(told.says)
    told.hear(CLAUDE, [_lifecycle("started"), second[0]])
    assert [entry["request"] for entry in told.said[said:]] == [{"subtype": "interrupt"}]
    told.hear(CLAUDE, first[-1:])
    assert told.talk.is_over
    assert not told.of(Kind.ERROR)
    assert CLAUDE.end(told.talk, 1, "").events == ()


def test_waits_for_the_model_are_told():
    told = played(CLAUDE, "claude_code-collection")
    waits = told.of(Kind.WAITING)
    assert waits[0] == {
        "why": "the model's API: authentication_failed (401), attempt 1 of 10",
        "retry_in_s": 0.584,
    }
    assert waits[2]["why"] == "the model's API: rate_limit (429), attempt 1 of 10"


@pytest.mark.parametrize(
    ("part", "status"),
    [
        ("403 credit", 403),
        ("issue with the selected model", 404),
        ("Prompt is too long", 400),
        ("529 Overloaded", 529),
        ("Connection refused", None),
        ("timed out", None),
        ("Not logged in", None),
        ("maximum number of turns", None),
        ("maximum budget", None),
        ("No conversation found", None),
        ("hook_stopped", None),
    ],
)
def test_a_result_that_calls_itself_a_success_may_be_a_failure(part, status):
    results = [line for line in sample("claude_code-collection") if b'"type":"result"' in line]
    (line,) = [line for line in results if part.encode() in line]
    told = begun(CLAUDE).hear(CLAUDE, [line])
    (error,) = told.of(Kind.ERROR)
    assert part in error["message"]
    assert error["final"]
    assert error.get("status") == status
    assert not told.of(Kind.COMPLETED)


def test_an_agent_that_died_fails_with_what_it_said_last():
    told = begun(CLAUDE).hear(CLAUDE, sample("claude_code-edit")[:3])
    (event,) = CLAUDE.end(told.talk, 143, "some\nlast words\n").events
    assert event.data == {
        "message": "claude ended with 143 before it was done: some\nlast words",
        "final": True,
        "exit_code": 143,
    }


def test_what_it_asks_is_answered_so_that_it_does_not_wait():
    asked = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}
    told = begun(CLAUDE).hear(CLAUDE, [_asked(asked), _asked({"subtype": "hook_callback"})])
    allowed, refused = told.said[1:]
    assert allowed["response"]["response"]["updatedInput"] == {"command": "ls"}
    assert refused["response"]["subtype"] == "error"


def test_it_is_started_with_arguments_and_never_with_the_prompt():
    prompt = 'it\'s "$(rm -rf /)" `x` \u2028 \N{SNOWMAN}'
    given = brief(
        prompt,
        routes={"anthropic": "http://broker"},
        env={"IS_SANDBOX": "0", "LANG": "C", "CLAUDE_CODE_MAX_RETRIES": "2"},
        tools=(
            ToolServer("echo", ("python3", "/x/echo.py"), {"A": "1"}),
            ToolServer("far", url="http://mcp"),
        ),
    )
    launch = CLAUDE.launch(given)
    assert prompt not in launch.argv
    assert launch.argv[launch.argv.index("--session-id") + 1] == uuid_of("run-1")
    assert launch.argv[launch.argv.index("--model") + 1] == CLAUDE.traits.default_model
    assert json.loads(launch.argv[launch.argv.index("--mcp-config") + 1]) == {
        "mcpServers": {
            "echo": {
                "type": "stdio",
                "command": "python3",
                "args": ["/x/echo.py"],
                "env": {"A": "1"},
            },
            "far": {"type": "http", "url": "http://mcp"},
        }
    }
    assert launch.env["IS_SANDBOX"] == "1"
    assert launch.env["LANG"] == "C"
    assert launch.env["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert launch.env["ANTHROPIC_BASE_URL"] == "http://broker"
    (say,) = CLAUDE.begin(given).says
    assert say.data.isascii()
    assert json.loads(say.data)["message"]["content"] == prompt


def test_a_prompt_or_message_that_starts_with_a_slash_is_none_of_its_commands():
    (said,) = CLAUDE.begin(brief("/clear is what I want to know about")).says
    content = json.loads(said.data)["message"]["content"]
    assert not content.lstrip().startswith("/")
    assert content.endswith("\n\n/clear is what I want to know about")
    (told,) = CLAUDE.tell(CLAUDE.begin(brief("x")), message(" /exit", Mode.NOW)).says
    assert json.loads(told.data)["message"]["content"].startswith("What follows")


def test_it_goes_on_with_a_session_and_finds_a_key_of_another_name():
    launch = CLAUDE.launch(brief(session=SESSION, keys={"anthropic": "TEAM_KEY"}))
    assert launch.argv[launch.argv.index("--resume") + 1] == SESSION
    assert "--session-id" not in launch.argv
    assert json.loads(launch.argv[launch.argv.index("--settings") + 1]) == {
        "apiKeyHelper": "printenv TEAM_KEY"
    }
    for known in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        assert "--settings" not in CLAUDE.launch(brief(keys={"anthropic": known})).argv


@pytest.mark.parametrize("given", [{"model": "--resume"}, {"model": "a b"}, {"options": {"x": 1}}])
def test_what_can_never_work_is_refused(given):
    with pytest.raises(InvalidRequest):
        CLAUDE.check(brief(**given))
    CLAUDE.check(brief(model="claude-sonnet-4-5[1m]"))


def _turns(recorded):
    """The lines of each of two turns; a turn begins with `init`."""
    second = [number for number, line in enumerate(recorded) if b'"subtype":"init"' in line][1]
    return recorded[:second], recorded[second:]


def _lifecycle(state):
    return json.dumps(
        {"type": "command_lifecycle", "command_uuid": uuid_of("msg_1"), "state": state}
    ).encode()


def _asked(request):
    return json.dumps({"type": "control_request", "request_id": "1", "request": request}).encode()
