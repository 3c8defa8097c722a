"""`paddock approvals` as a program, with somebody at the terminal."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock import ApprovalInfo, Approvals, Server
from tests.interfaces.cli.remote.conftest import Cli

pytestmark = pytest.mark.timeout(120)
POLICY = """
[[rules]]
name = "echoes wait"
verdict = "ask"
command = "echo **"
"""


@pytest.fixture
def agent(cli: Cli, box: str, tmp_path: Path) -> Cli:
    """Somebody else's token, in a sandbox where echoes wait."""
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    cli.text("policy", "set", str(file), "--sandbox", box)
    return Cli(cli.url, cli.text("token", "create", "agent").strip())


@pytest.fixture
def asks(agent: Cli, box: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Begins something that waits for an answer."""
    begun = []

    def ask(*words: str) -> subprocess.Popen[bytes]:
        begun.append(agent.start("exec", box, "--", "echo", *words))
        return begun[-1]

    yield ask
    for each in begun:
        each.kill()
        each.communicate()


def pending(cli: Cli, box: str) -> str:
    while not (found := cli.answer("approvals", "ls", box)["approvals"]):
        pass
    return found[0]["id"]


@pytest.mark.proves("E8")
def test_listed_shown_allowed_and_denied(cli: Cli, agent: Cli, box: str, asks):
    child = asks("one", "two")
    approval = pending(cli, box)
    shown = cli.text("approvals", "show", approval)
    assert '"argv": ["echo", "one", "two"]' in shown
    own = agent("approvals", "allow", approval)
    assert own.returncode == 1
    assert b"cannot answer it" in own.stderr
    assert cli.text("approvals", "allow", approval) == f"allowed_once  {box}  echo\n"
    assert child.communicate(timeout=30) == (b"one two\n", b"")
    assert cli("approvals", "deny", approval).returncode == 1
    child = asks("three")
    approval = pending(cli, box)
    both = cli("approvals", "allow", approval, "--task", "--always", "app")
    assert (both.returncode, b"two answers" in both.stderr) == (2, True)
    cli.text("approvals", "deny", approval, "--note", "no")
    _, said = child.communicate(timeout=30)
    assert child.returncode == 1
    assert b"somebody has denied it" in said
    states = {each["state"] for each in cli.answer("approvals", "ls", box, "--all")["approvals"]}
    assert states == {"allowed_once", "denied"}


@pytest.mark.proves("E8")
def test_somebody_at_the_terminal_answers_as_it_comes(cli: Cli, box: str, screen, asks):
    before = asks("before")
    pending(cli, box)
    desk = screen("approvals", "watch", box)
    desk.until(r"echo .*\? ")
    desk.type("nonsense\n")
    desk.until("none of: .*skip")
    desk.type("o\n")
    desk.until("allowed_once by")
    assert before.communicate(timeout=30)[0] == b"before\n"
    after = asks("after")
    desk.until(r"echo .*\? ")
    desk.type("d not today\n")
    desk.until("denied by")
    after.communicate(timeout=30)
    assert after.returncode == 1
    found = cli.answer("approvals", "ls", box, "--state", "denied")["approvals"]
    assert found[0]["note"] == "not today"


def test_programs_are_told_one_event_a_line(cli: Cli, box: str, asks):
    child = asks("json")
    approval = pending(cli, box)
    watching = cli.start("approvals", "watch", box, "-o", "json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["id"] == approval
    cli.text("approvals", "allow", approval)
    event = json.loads(watching.stdout.readline())
    assert (event["kind"], event["data"]["approval"]) == ("approval.answered", approval)
    watching.terminate()
    watching.communicate(timeout=20)
    child.communicate(timeout=30)
    assert child.returncode == 0


def test_the_sdk_without_an_event_loop(cli: Cli, box: str, asks):
    child = asks("sdk")
    approval = pending(cli, box)
    server = Server(cli.url, cli.token)
    (found,) = Approvals.list(states=["pending"], server=server)
    assert isinstance(found, ApprovalInfo)
    assert (found.id, found.allowed) == (approval, False)
    assert Approvals.allow(approval, task=True, note="fine", server=server).allowed
    child.communicate(timeout=30)
    assert child.returncode == 0
    assert Approvals.get(approval, server=server).note == "fine"
    child = asks("sdk")
    child.communicate(timeout=30)
    assert child.returncode == 0, "it is not asked again"
    events = Approvals.follow(after=0, server=server)
    assert next(events).kind == "approval.requested"


def test_an_answer_in_words_is_kept_with_its_yes_or_no(cli: Cli, box: str, asks):
    for words, state, status in (((), "allowed_once", 0), (("--deny",), "denied", 1)):
        child = asks(state)
        approval = pending(cli, box)
        said = cli.text("approvals", "answer", approval, *words, "--say", "it's $(fine)")
        assert said == f"{state}  {box}  echo\n"
        child.communicate(timeout=30)
        assert child.returncode == status
        assert cli.answer("approvals", "show", approval)["note"] == "it's $(fine)"
    assert cli("approvals", "answer", approval).returncode == 2
