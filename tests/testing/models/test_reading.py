"""Requests of real agents are understood: what was said, which tools there are, what was done."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.testing.models import CallMcp, CallTool, EditFile, ReadFile, RunShell, WriteFile
from paddock.testing.models.conversation import Asked, Entry, Tool, turns
from paddock.testing.models.dialects import ANTHROPIC, CHAT, GEMINI, RESPONSES
from paddock.testing.models.tools import NoTool, resolved
from tests.testing.models.recorded import AGENTS, asked, requests

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+hi\n*** End Patch\n"
CHANGE = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hi\n+ho\n*** End Patch\n"

WRITE = {
    "claude_code": ("Write", {"file_path": "a.txt", "content": "hi"}),
    "codex-gpt-5.5": ("apply_patch", PATCH),
    "codex-gpt-6-sol": ("exec", f"text(await tools.apply_patch({json.dumps(PATCH)}));"),
    "codex-mcp-namespace": ("exec_command", {"cmd": "printf %s hi > a.txt"}),
    "opencode-chat": ("write", {"filePath": "a.txt", "content": "hi"}),
    "opencode-anthropic": ("write", {"filePath": "a.txt", "content": "hi"}),
    "gemini": ("write_file", {"file_path": "a.txt", "content": "hi"}),
    "gemini-code-assist": ("write_file", {"file_path": "a.txt", "content": "hi"}),
    "goose-chat": ("write", {"path": "a.txt", "content": "hi"}),
    "pi": ("write", {"path": "a.txt", "content": "hi"}),
    "copilot": ("bash", {"command": "printf %s hi > a.txt", "description": "scripted"}),
    "qwen": ("write_file", {"file_path": "a.txt", "content": "hi"}),
}
EDIT = {
    "claude_code": ("Edit", {"file_path": "a.txt", "old_string": "hi", "new_string": "ho"}),
    "codex-gpt-5.5": ("apply_patch", CHANGE),
    "codex-gpt-6-sol": ("exec", f"text(await tools.apply_patch({json.dumps(CHANGE)}));"),
    "opencode-chat": ("edit", {"filePath": "a.txt", "oldString": "hi", "newString": "ho"}),
    "gemini": (
        "replace",
        {"file_path": "a.txt", "old_string": "hi", "new_string": "ho", "instruction": "scripted"},
    ),
    "goose-chat": ("edit", {"path": "a.txt", "before": "hi", "after": "ho"}),
    "pi": ("edit", {"path": "a.txt", "edits": [{"oldText": "hi", "newText": "ho"}]}),
    "qwen": ("edit", {"file_path": "a.txt", "old_string": "hi", "new_string": "ho"}),
}
RUN = {
    "claude_code": ("Bash", {"command": "ls"}),
    "codex-gpt-5.5": ("exec_command", {"cmd": "ls"}),
    "codex-gpt-6-sol": (
        "exec",
        'const r = await tools.exec_command({"cmd": "ls"}); text(r.output ?? r);',
    ),
    "opencode-chat": ("bash", {"command": "ls"}),
    "gemini": ("run_shell_command", {"command": "ls"}),
    "goose-chat": ("shell", {"command": "ls"}),
    "pi": ("bash", {"command": "ls"}),
    "copilot": ("bash", {"command": "ls", "description": "scripted"}),
    "qwen": ("run_shell_command", {"command": "ls"}),
}
READ = {
    "claude_code": ("Read", {"file_path": "a.txt"}),
    "codex-gpt-5.5": ("exec_command", {"cmd": "cat a.txt"}),
    "opencode-chat": ("read", {"filePath": "a.txt"}),
    "gemini": ("read_file", {"file_path": "a.txt"}),
    "goose-chat": ("shell", {"command": "cat a.txt"}),
    "copilot": ("view", {"path": "a.txt"}),
}


def made(call, agent):
    found = resolved(call, asked(agent))
    return found.name, found.arguments


@pytest.mark.parametrize("agent", WRITE)
def test_a_file_is_written_with_the_agents_own_tool(agent):
    assert made(WriteFile("a.txt", "hi"), agent) == WRITE[agent]


@pytest.mark.parametrize("agent", EDIT)
def test_a_file_is_edited_with_the_agents_own_tool(agent):
    assert made(EditFile("a.txt", "hi", "ho"), agent) == EDIT[agent]


@pytest.mark.parametrize("agent", RUN)
def test_a_command_is_run_with_the_agents_own_tool(agent):
    assert made(RunShell("ls"), agent) == RUN[agent]


@pytest.mark.parametrize("agent", READ)
def test_a_file_is_read_with_the_agents_own_tool(agent):
    assert made(ReadFile("a.txt"), agent) == READ[agent]


@pytest.mark.parametrize(
    ("agent", "name", "namespace"),
    [
        ("claude_code", "mcp__echo__say", ""),
        ("codex-gpt-5.5", "say", "mcp__echo"),
        ("codex-mcp-namespace", "say", "mcp__echo"),
    ],
)
def test_tools_of_mcp_servers_may_be_called_before_they_are_offered(agent, name, namespace):
    call = resolved(CallMcp("echo", "say", {"what": "hi"}), asked(agent))
    assert (call.name, call.namespace, call.arguments) == (name, namespace, {"what": "hi"})


@pytest.mark.parametrize("offered", ["echo_say", "mcp_echo_say", "mcp__echo__say", "echo__say"])
def test_tools_of_mcp_servers_go_by_the_name_that_is_offered(offered):
    known = Asked("m", (), (Tool("bash", {}), Tool(offered, {})))
    assert resolved(CallMcp("echo", "say"), known).name == offered


def test_an_exact_tool_is_called_as_it_is_written():
    assert made(CallTool("Odd", {"a": 1}), "claude_code") == ("Odd", {"a": 1})
    assert made(CallTool("exec", "text(1)"), "codex-gpt-6-sol") == ("exec", "text(1)")


def test_an_agent_without_tools_for_it_is_named_with_what_it_has():
    with pytest.raises(NoTool, match="it offers: look"):
        resolved(WriteFile("a", "b"), Asked("m", (), (Tool("look", {}),)))


@pytest.mark.parametrize(
    "said",
    [
        " - Primary working directory: /workspace",
        "<environment_context>\n  <cwd>/workspace</cwd>\n</environment_context>",
        "  Working directory: /workspace\n  Platform: linux",
        "Current working directory: /workspace",
        "I'm currently working in the directory: /workspace\n",
        "- **Workspace Directories:**\n  - /workspace\n",
    ],
)
def test_paths_are_made_absolute_where_the_agent_says_where_it_is(said):
    tool = Tool("write", {"properties": {"filePath": {}, "content": {}}})
    known = Asked("m", (Entry("system", said),), (tool,))
    assert resolved(WriteFile("a/b", ""), known).arguments["filePath"] == "/workspace/a/b"
    assert resolved(WriteFile("/x", ""), known).arguments["filePath"] == "/x"


@pytest.mark.parametrize("agent", AGENTS)
def test_the_conversation_of_each_agent_is_understood(agent):
    known = [request.asked for request in requests(agent) if request.asked.tools]
    assert known[0].said("user").endswith(("do the task", "create hello.txt with hi"))
    assert all(request.streams and request.model for request in known)
    for later in known[1:]:
        fresh = turns(later.entries)[len(turns(known[0].entries)) :]
        assert len(fresh) == 1, "one reply is one turn, however the agent keeps it"
        assert fresh[0].calls
        assert later.entries[-1].role == "tool"
        assert later.entries[-1].text


@pytest.mark.parametrize("agent", ["opencode-chat", "goose-chat", "gemini"])
def test_requests_on_the_side_offer_no_tools(agent):
    assert not requests(agent)[0].asked.tools
    assert (requests(agent)[0].asked.schema is not None) == (agent == "gemini")


def test_what_was_said_includes_results_and_not_the_model():
    later = requests("codex-gpt-5.5")[1].asked
    assert "Process exited with code 0" in later.said()
    assert "hmm thinking" not in later.said()


def test_newer_claude_models_are_told_things_by_the_system_within_the_conversation():
    known = requests("claude_code-default-model")[1].asked
    assert "MCP-SAID hi" in known.said("tool")
    assert "9645" in known.said("system")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "role type content text tools name function input messages parts contents "
                "tool_calls functionCall functionResponse response parameters properties required "
                "stream output_config format schema system instructions generationConfig".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


tops = (
    "messages input contents tools text system systemInstruction generationConfig "
    "response_format output_config stream_options".split()
)


@given(st.dictionaries(st.sampled_from(tops), json_values))
def test_nonsense_is_read_as_little_and_never_fails(body):
    for dialect in (ANTHROPIC, RESPONSES, CHAT, GEMINI):
        known = dialect.read(body)
        assert isinstance(known.said(), str)
        assert all(tool.properties is not None for tool in known.tools)
