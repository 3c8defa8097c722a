"""`paddock agents`, as a program."""

import pytest

from paddock.adapters.agents.registry import AGENTS

pytestmark = pytest.mark.timeout(90)
PACKAGE = AGENTS["claude_code"].traits.package


def test_agents_are_listed_with_why_they_are_not_ready(cli):
    head, *rows = cli.text("agents").splitlines()
    assert head.split() == ["NAME", "VERSION", "INSTALLED", "KEEPS", "TO", "READY"]
    assert [row.split()[0] for row in rows] == sorted(AGENTS)
    (claude,) = [row for row in rows if row.startswith("claude_code ")]
    assert PACKAGE.version in claude
    assert "on first use" in claude
    assert "paddock secrets set ANTHROPIC_API_KEY" in claude
    assert cli.text("agents", "ls").splitlines()[0] == head
    listed = cli.answer("agents")["agents"]
    assert [each["name"] for each in listed] == sorted(AGENTS)
    assert cli.answer("agents", "ls")["agents"] == listed


def test_one_is_looked_at(cli):
    text = cli.text("agents", "inspect", "claude_code")
    assert "messages     interrupt, now, turn\n" in text
    assert "ANTHROPIC_API_KEY (missing)" in text
    assert cli.answer("agents", "inspect", "claude_code")["title"] == "Claude Code"


def test_one_is_installed_and_what_there_is_not_is_refused(cli, running):
    """What a host has already is tried, and taken."""
    name = f"anthropic-ai-claude-code-{PACKAGE.version}"
    place = running.plane.place / "data" / "agents" / name
    program = place / "node_modules" / PACKAGE.program.replace("*", "x64")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 2.1\n")
    program.chmod(0o755)
    done = cli("agents", "install", "claude_code")
    assert done.stdout.decode() == f"claude_code {PACKAGE.version} is installed\n"
    assert "which is there" in done.stderr.decode()
    assert cli.answer("agents", "install", "claude_code")["installed"] is True
    missing = cli("agents", "install", "nope")
    assert missing.returncode == 1
    assert "there is no agent 'nope'" in missing.stderr.decode()
