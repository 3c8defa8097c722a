"""The Agent Client Protocol: what five servers said, and what they are answered."""

import json

import pytest

from paddock.adapters.agents.acp import Acp
from paddock.adapters.agents.joining import LONGEST_PIECE
from paddock.adapters.agents.opencode import OpenCode
from paddock.domain.agent import ToolServer
from paddock.domain.agent_event import LONGEST_DATA
from paddock.domain.agent_event import AgentEventKind as Kind
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Mode
from tests.adapters.agents.driving import message
from tests.adapters.agents.recorded import begun, brief, played

ACP = Acp()
FOUND = {"agentCapabilities": {"loadSession": True, "mcpCapabilities": {"http": True}}}


def answer(number, result):
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


def update(kind, **more):
    params = {"sessionId": "s1", "update": {"sessionUpdate": kind, **more}}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()


def chunk(text, kind="agent_message_chunk"):
    return update(kind, content={"type": "text", "text": text})


def working(agent=ACP, given=None):
    """A conversation whose prompt is on its way, as request 3."""
    return begun(agent, given).hear(agent, [answer(1, FOUND), answer(2, {"sessionId": "s1"})])


def methods(told):
    return [said.get("method") for said in told.said]


@pytest.mark.parametrize("name", ["gemini", "claude-agent-acp", "codex-acp", "goose"])
def test_what_servers_say_becomes_the_same_events(name):
    told = played(ACP, f"acp-{name}")
    assert {"step0", "step1", "step2"} <= {said["text"] for said in told.of(Kind.MESSAGE)}
    calls = told.of(Kind.TOOL_CALL)
    assert len({call["id"] for call in calls}) == len(calls)
    assert {result["id"] for result in told.of(Kind.TOOL_RESULT)} <= {call["id"] for call in calls}
    assert told.session == told.of(Kind.STARTED)[0]["session"]
    if name != "goose":  # which does not say what it edits
        assert told.of(Kind.FILE_EDITED)[0]["path"] == "/workspace/hello.txt"
        assert "+hi" in told.of(Kind.FILE_EDITED)[0]["diff"]


def test_tools_are_named_as_the_agent_names_them():
    named = {
        name: [call["name"] for call in played(ACP, f"acp-{name}").of(Kind.TOOL_CALL)][:2]
        for name in ("claude-agent-acp", "codex-acp", "goose")
    }
    assert named["claude-agent-acp"] == ["Bash", "Write"]
    assert named["codex-acp"][0] == "exec_command"
    assert set(named["goose"]) == {"shell"}


def test_a_call_is_told_of_once_with_its_input():
    told = played(OpenCode(), "opencode-acp")
    assert [(call["name"], call["input"].get("command")) for call in told.of(Kind.TOOL_CALL)] == [
        ("bash", "sleep 4; echo A"),
        ("write", None),
        ("bash", "sleep 30"),
    ]
    assert told.of(Kind.TOOL_RESULT)[0]["output"] == "A\n"
    (edit,) = told.of(Kind.FILE_EDITED)
    assert (edit["path"], edit["kind"]) == ("/workspace/hello.txt", "add")
    assert not told.of(Kind.USAGE), "which would be of its last request only"


def test_a_session_is_asked_for_with_the_servers_and_the_prompt_follows():
    servers = (
        ToolServer("echo", ("python3", "e.py"), {"A": "b"}),
        ToolServer("far", url="http://x"),
    )
    told = working(given=brief("do 'it'", tools=servers))
    assert methods(told) == ["initialize", "session/new", "session/prompt"]
    local, far = told.said[1]["params"]["mcpServers"]
    assert local["env"] == [{"name": "A", "value": "b"}]
    assert (far["type"], far["url"]) == ("http", "http://x")
    assert told.said[2]["params"]["prompt"] == [{"type": "text", "text": "do 'it'"}]
    assert "do 'it'" not in json.dumps(told.talk.state), "it is not kept longer than needed"


def test_servers_that_it_cannot_reach_are_left_out_and_said():
    given = brief(tools=(ToolServer("far", url="http://x"),))
    told = begun(ACP, given).hear(ACP, [answer(1, {})])
    assert told.said[1]["params"]["mcpServers"] == []
    assert "far" in told.of(Kind.ERROR)[0]["message"]
    assert not told.of(Kind.ERROR)[0]["final"]


@pytest.mark.parametrize(
    ("abilities", "method"),
    [
        ({"loadSession": True}, "session/load"),
        ({"loadSession": True, "sessionCapabilities": {"resume": {}}}, "session/resume"),
    ],
)
def test_it_goes_on_with_a_session_and_what_is_said_again_is_not_heard(abilities, method):
    told = begun(ACP, brief("go on", session="s1"))
    told.hear(ACP, [answer(1, {"agentCapabilities": abilities}), chunk("long ago"), answer(2, {})])
    assert methods(told) == ["initialize", method, "session/prompt"]
    assert told.session == "s1"
    told.hear(ACP, [chunk("new"), answer(3, {"stopReason": "end_turn"})])
    assert told.of(Kind.MESSAGE) == [{"text": "new"}]


def test_an_agent_that_cannot_resume_says_so():
    told = begun(ACP, brief(session="s1")).hear(ACP, [answer(1, {})])
    assert told.of(Kind.ERROR)[0]["final"]
    assert told.talk.is_over


def test_it_may_do_what_it_asks_for_and_nothing_else_is_known():
    told = working()
    options = [
        {"optionId": "never", "kind": "reject_once"},
        {"optionId": "all", "kind": "allow_always"},
        {"optionId": "one", "kind": "allow_once"},
    ]
    call = {"toolCallId": "t1", "name": "Write", "rawInput": {"path": "a"}, "status": "pending"}
    params = {"sessionId": "s1", "toolCall": call, "options": options}
    asks = {"jsonrpc": "2.0", "id": 0, "method": "session/request_permission", "params": params}
    reads = {"jsonrpc": "2.0", "id": "x", "method": "fs/read_text_file", "params": {}}
    told.hear(ACP, [json.dumps(asks).encode(), json.dumps(reads).encode()])
    allowed, refused = told.said[-2:]
    assert allowed["result"] == {"outcome": {"outcome": "selected", "optionId": "one"}}
    assert (refused["id"], refused["error"]["code"]) == ("x", -32601)
    assert told.of(Kind.TOOL_CALL) == [{"id": "t1", "name": "Write", "input": {"path": "a"}}]


def test_a_message_for_the_next_turn_is_prompted_after_the_answer():
    told = working()
    told.then(ACP.tell(told.talk, message("and X", Mode.TURN)))
    assert len(told.says) == 3
    told.hear(ACP, [chunk("A"), answer(3, {"stopReason": "end_turn"})])
    assert told.says[3].message == "msg_1"
    assert told.said[3]["params"]["prompt"] == [{"type": "text", "text": "and X"}]
    assert not told.talk.is_over
    assert not told.seen
    told.hear(ACP, [chunk("B"), answer(4, {"stopReason": "end_turn"})])
    assert told.seen == ["msg_1"]
    assert told.talk.is_over
    assert [done["text"] for done in told.of(Kind.COMPLETED)] == ["A", "B"]


def test_interruptions_go_first_and_together():
    told = working()
    for number, mode in enumerate([Mode.TURN, Mode.INTERRUPT, Mode.INTERRUPT]):
        told.then(ACP.tell(told.talk, message(f"say {number}", mode, f"m{number}")))
    assert methods(told)[3:] == ["session/cancel"]
    told.hear(ACP, [answer(3, {"stopReason": "cancelled"})])
    texts = [block["text"] for block in told.said[-1]["params"]["prompt"]]
    assert texts == ["say 1", "say 2"]
    assert told.delivered == ["m1", "m2"]
    told.hear(ACP, [answer(4, {"stopReason": "end_turn"})])
    assert told.said[-1]["params"]["prompt"][0]["text"] == "say 0"
    assert [done["ok"] for done in told.of(Kind.COMPLETED)] == [False, True]


def test_a_message_joins_a_turn_of_opencode_and_is_seen_after_a_tool():
    agent = OpenCode()
    told = working(agent)
    told.hear(agent, [update("tool_call", toolCallId="t", status="in_progress", title="bash")])
    told.then(agent.tell(told.talk, message("and X", Mode.NOW)))
    told.hear(agent, [chunk("still the same answer")])
    assert not told.seen
    told.hear(agent, [update("tool_call_update", toolCallId="t", status="completed"), chunk("B")])
    assert told.seen == ["msg_1"]
    told.hear(agent, [answer(3, {"stopReason": "end_turn"})])
    assert not told.talk.is_over
    told.hear(agent, [answer(4, {"stopReason": "end_turn"})])
    assert told.talk.is_over
    assert len(told.of(Kind.COMPLETED)) == 1


def test_what_comes_before_the_session_goes_with_the_prompt():
    told = begun(ACP)
    told.then(ACP.tell(told.talk, message("and be quick", Mode.INTERRUPT)))
    told.hear(ACP, [answer(1, FOUND), answer(2, {"sessionId": "s1"})])
    texts = [block["text"] for block in told.said[-1]["params"]["prompt"]]
    assert texts == ["do the task", "and be quick"]
    assert told.delivered == ["msg_1"]


def test_a_message_after_the_end_is_for_another_run():
    told = working().hear(ACP, [answer(3, {"stopReason": "end_turn"})])
    after = ACP.tell(told.talk, message("one more", Mode.TURN))
    assert (after.then, after.delivered) == ("one more", ("msg_1",))


def test_a_stop_cancels_and_is_no_error():
    told = working()
    told.then(ACP.stop(told.talk))
    assert methods(told)[-1] == "session/cancel"
    told.hear(ACP, [answer(3, {"stopReason": "cancelled"})])
    assert told.talk.is_over
    assert told.of(Kind.COMPLETED) == [{"text": "", "ok": False}]
    told.then(ACP.end(told.talk, 0, ""))
    assert not told.of(Kind.ERROR)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"error": {"code": -32603, "message": "bad key"}}, "bad key"),
        ({"result": {"stopReason": "max_tokens"}}, "max_tokens"),
        ({"result": {"stopReason": "cancelled"}}, "cancelled"),
        ({"result": "nonsense"}, "not said why"),
    ],
)
def test_a_turn_that_fails_is_a_final_error(said, why):
    told = working().hear(ACP, [json.dumps({"id": 3, **said}).encode()])
    (error,) = told.of(Kind.ERROR)
    assert why in error["message"]
    assert error["final"]
    assert not told.of(Kind.COMPLETED)


@pytest.mark.parametrize(
    ("result", "counts"),
    [
        ({"usage": {"inputTokens": 100, "outputTokens": 5, "totalTokens": 105}}, (100, 0, 5)),
        (
            {
                "usage": {
                    "inputTokens": 600,
                    "cachedReadTokens": 400,
                    "outputTokens": 30,
                    "thoughtTokens": 20,
                    "totalTokens": 1050,
                }
            },
            (1000, 400, 50),
        ),
        (
            {
                "usage": {
                    "inputTokens": 1000,
                    "cachedReadTokens": 400,
                    "outputTokens": 50,
                    "totalTokens": 1050,
                }
            },
            (1000, 400, 50),
        ),
        (
            {"_meta": {"quota": {"token_count": {"input_tokens": 9, "output_tokens": 1}}}},
            (9, 0, 1),
        ),
    ],
)
def test_tokens_from_a_cache_are_counted_as_input_once(result, counts):
    told = working().hear(ACP, [answer(3, {"stopReason": "end_turn", **result})])
    (used,) = told.of(Kind.USAGE)
    assert (used["input_tokens"], used["cached_tokens"], used["output_tokens"]) == counts


def test_whatever_an_agent_says_little_is_kept():
    told = working()
    long = "x" * 3000
    lines = [chunk(long) for _ in range(100)]
    lines += [chunk(f"{n}", "agent_thought_chunk") for n in range(100)]
    lines += [
        update("tool_call", toolCallId=f"{n}{long}", title=long, rawInput={"a": long * 9})
        for n in range(100)
    ]
    diff = {"type": "diff", "path": long, "oldText": "a" * 9000, "newText": "b" * 9000}
    lines += [
        update("tool_call", toolCallId=f"e{n}", status="in_progress", content=[diff] * 99)
        for n in range(40)
    ]
    told.hear(ACP, lines)
    assert len(json.dumps(told.talk.state)) < 16 * 64 * 5000 + 16 * 5 * LONGEST_DATA
    texts = [said["text"] for said in told.of(Kind.MESSAGE)]
    assert "".join(texts) == long * 100
    assert max(map(len, texts)) == LONGEST_PIECE


@pytest.mark.parametrize("text", ["/init", "  /nonsense and more", "/etc/hosts is wrong"])
def test_a_prompt_that_looks_like_a_command_is_none(text):
    told = working(given=brief(text))
    first, second = (block["text"] for block in told.said[-1]["params"]["prompt"])
    assert not first.startswith("/")
    assert second == text


@pytest.mark.parametrize("command", [None, [], "my-agent", [""], ["a", 1], ["a\0"]])
def test_it_needs_a_program(command):
    with pytest.raises(InvalidRequest) as refused:
        ACP.check(brief(options={"command": command}))
    assert "list of arguments" in refused.value.remediation


def test_models_of_opencode_say_whose_they_are():
    with pytest.raises(InvalidRequest) as refused:
        OpenCode().check(brief(model="gpt-5.5"))
    assert "anthropic/" in refused.value.remediation
    OpenCode().check(brief(model="openrouter/qwen/qwen4"))
