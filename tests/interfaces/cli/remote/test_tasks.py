"""`paddock task` as a program: run and followed, told, left, cancelled, compared."""

import json
import re
import signal
import time

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.interfaces.cli.remote.task_giving import tasks_in
from paddock.interfaces.cli.remote.task_wishing import prompt_of as prompt_in_file
from paddock.interfaces.cli.remote.task_wishing import sandbox_wish, tools_in
from paddock.interfaces.client.task_wishes import task_wish
from paddock.testing.agent import prompt_of
from tests.interfaces.client.conftest import serving
from tests.tasks.conftest import SETTINGS

pytestmark = pytest.mark.timeout(120)
SPOKE = {"output_tokens": 3, "reasoning_tokens": 2}
HERE = ("--agent", "scripted", "--template", "plain")


@pytest.fixture(scope="module")
def running():
    with serving(works=True, settings=SETTINGS) as made:
        yield made


def begun(cli, *steps, more=()):
    return cli.text("task", "run", prompt_of(*steps), *HERE, "--detach", *more).strip()


@pytest.mark.proves("T1")
def test_a_task_is_run_and_told_line_by_line(cli, tmp_path):
    given = tmp_path / "in.txt"
    given.write_text("given\n")
    steps = ({"say": "I begin."}, {"run": "cp in.txt out.txt"}, {"run": "exit 3"}, {"say": "Done."})
    done = cli(
        "task",
        "run",
        "-",
        *HERE,
        "--file",
        f"{given}:in.txt",
        "--check",
        "same=cmp in.txt out.txt",
        "-e",
        "A=b",
        "--budget-usd",
        "2",
        "--timeout",
        "1m",
        "--name",
        "line-by-line",
        stdin=prompt_of({"usage": {"input_tokens": 4, **SPOKE, "cost_usd": 0.5}}, *steps).encode(),
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    for part in ("I begin.\n", "→ run cp in.txt out.txt\n", "  ✗ \n", "Done.\n", "· completed\n"):
        assert part in said, (part, said)
    assert "added    +1     -0     out.txt" in said
    assert "✓ same  exit 0" in said
    assert "7 tokens (2 of them thought)  $0.5000" in said
    (task, *_) = cli.answer("task", "ls", "--state", "completed")["tasks"]
    assert task["name"] == "line-by-line"
    shown = cli.text("task", "show", task["id"])
    assert 'env_names     ["A"]' in shown
    assert "+given" in cli.text("task", "diff", task["id"])
    assert '"type": "say"' in cli.text("task", "output", task["id"])
    assert cli.text("task", "logs", task["id"]).count("I begin.") == 1
    assert cli.text("task", "revert", task["id"]) == f"{task['id']} reverted\n"
    followed = cli("task", "follow-up", task["id"], prompt_of(*[{"say": "more"}] * 9))
    assert (followed.returncode, b"more" in followed.stdout) == (0, True), followed.stdout


def test_live_output_says_why_a_task_waits_and_what_answers_it(cli):
    usage = {"usage": {"input_tokens": 120, "output_tokens": 0}}
    asks = {"desk": ["/ask", {"question": "Which port?"}]}
    steps = (usage, {"await": 1}, asks, {"end": "asked"}, {"say": "thanks"})
    task = begun(cli, *steps, more=("--budget-tokens", "100"))
    said = until_told(cli, task, "? The budget is used up")
    assert "(rule budget_gone)" in said
    approval = re.search(r"yes: paddock approvals allow (apr_\w+)", said)
    cli.text("task", "send", task, "Use\tport 8080.")
    cli.text("approvals", "allow", approval.group(1))
    said = until_told(cli, task, "· waiting: its agent asks: Which port?")
    assert "» Use\tport 8080.\n" in said
    assert "· message seen: Use port 8080.\n" in said
    approval = re.search(r"answer: paddock approvals answer (apr_\w+) --say", said)
    cli.text("approvals", "answer", approval.group(1), "--say", "8080")
    assert "· completed" in cli.text("task", "logs", "-f", task)


def until_told(cli, task, words):
    until = time.monotonic() + 30
    while words not in (said := cli.text("task", "logs", task)):
        assert time.monotonic() < until, said
    return said


@pytest.mark.proves("T17")
def test_a_prompt_of_a_file_has_its_variables_filled_in(cli, tmp_path):
    steps = ({"write": ["said", "{{title}} in {{directory}} of {{ sandbox }}: {{checks}}"]},)
    given = tmp_path / "prompt.txt"
    given.write_text(prompt_of(*steps, {"run": "cat said"}, {"say": "{{task_name}}"}))
    more = (*HERE, "--name", "filled-in", "--check", "there=test -e said", "--memory", "300m")
    told = ("--guardian", "loop=ask", "--network", "none")
    done = cli("task", "run", "--prompt-file", str(given), "--var", "title=A b", *more, *told)
    assert done.returncode == 0, done.stdout + done.stderr
    (task, *_) = cli.answer("task", "ls", "--state", "completed")["tasks"]
    shown = cli.text("task", "show", task["id"])
    assert "its last words:\nfilled-in\n" in shown
    found = cli.answer("task", "show", task["id"])
    assert found["variables"] == {"title": "A b"}
    assert "{{title}}" in found["prompt"]
    assert found["guardian"] == {"loop": "ask"}
    (box,) = cli.answer("inspect", found["sandbox_id"])["sandboxes"]
    assert box["resources"]["memory_mib"] == 300
    said = f"A b in {found['directory']} of {box['name']}: /bin/sh -c 'test -e said'"
    assert said in cli.text("task", "diff", task["id"])
    unknown = cli("task", "run", "{{branch}}", "--var", "title=x", *HERE)
    assert (unknown.returncode, b"nobody gave: branch" in unknown.stderr) == (2, True)
    twice = cli("task", "run", "x", "--prompt-file", str(given), *HERE)
    assert (twice.returncode, b"given twice" in twice.stderr) == (2, True)
    followed = cli(
        "task", "follow-up", task["id"], "--prompt-file", str(given), "--var", "title=C", "-d"
    )
    assert followed.returncode == 0, followed.stderr
    after = cli.answer("task", "show", followed.stdout.decode().strip())
    assert (after["variables"], after["sandbox_id"]) == ({"title": "C"}, found["sandbox_id"])


def test_its_sandbox_and_its_tools_are_asked_for_as_the_api_takes_them(tmp_path):
    tools = tmp_path / "mcp.json"
    notes = {"command": "cat", "args": ["-u"], "env": {"A": "b"}}
    servers = {"notes": notes, "far": {"url": "http://far/mcp"}}
    tools.write_text(json.dumps({"mcpServers": servers}))
    unsaid = dict.fromkeys(("cpus", "memory_mib", "disk_mib", "pids", "network", "tools"))
    options = {**unsaid, "allow": (), "guardian": ()}
    assert sandbox_wish(options) == {}
    said = {"cpus": 2.0, "allow": ("example.com",), "guardian": ("loop=ask",), "tools": tools}
    assert sandbox_wish({**options, **said}) == {
        "resources": {"cpus": 2.0},
        "network": {"rules": ["example.com"]},
        "guardian": {"loop": "ask"},
        "tools": [
            {"name": "notes", "command": ["cat", "-u"], "env": {"A": "b"}},
            {"name": "far", "url": "http://far/mcp"},
        ],
    }
    wanted = sandbox_wish({**options, **said, "network": "allowlist"})
    body = task_wish(prompt="x", **wanted)
    assert body["egress"] == {"mode": "allowlist", "rules": ["example.com"]}
    assert task_wish(prompt="x", network="open")["egress"] == {"mode": "open"}
    assert "egress" not in task_wish(prompt="x")
    assert task_wish(prompt="x", sandbox="", name="") == {"prompt": "x", "sandbox": ""}
    tools.write_text('[{"name": "notes", "command": ["cat"]}]')
    assert tools_in(tools) == [{"name": "notes", "command": ["cat"]}]
    for wrong in ("{", '"x"', "{}", "[1]"):
        tools.write_text(wrong)
        with pytest.raises(InvalidRequest):
            tools_in(tools)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"url": "http://far/mcp", "headers": {"A": "b"}}, "headers, which cannot be handed on"),
        ({"command": "npx", "args": "-y pkg"}, "other `args` than a list of strings"),
        ({"command": "npx", "args": None}, "other `args` than a list of strings"),
        ({"command": "npx", "args": [1]}, "other `args` than a list of strings"),
        ({"command": ["npx"]}, "other `command` than a string"),
        ({"command": "npx", "env": {"A": 1}}, "other `env` than an object of strings"),
        ({"command": "npx", "url": "http://far/mcp"}, "either a command or a url"),
        ({"url": "http://far/mcp", "args": ["-y"]}, "either a command or a url"),
        ({"url": "http://far/mcp", "type": "sse"}, "`type` that is not spoken here"),
        ("npx", "is no object"),
    ],
)
def test_tools_that_cannot_be_handed_on_whole_are_refused(tmp_path, server, said):
    tools = tmp_path / "mcp.json"
    tools.write_text(json.dumps({"mcpServers": {"notes": server}}))
    with pytest.raises(InvalidRequest) as refused:
        tools_in(tools)
    assert said in refused.value.message
    assert "'notes'" in refused.value.message


def test_an_empty_argument_and_a_type_that_says_nothing_new_stay_right(tmp_path):
    tools = tmp_path / "mcp.json"
    notes = {"type": "stdio", "command": "cat", "args": ["", "-u"]}
    tools.write_text(json.dumps({"mcpServers": {"notes": notes}}))
    assert tools_in(tools) == [{"name": "notes", "command": ["cat", "", "-u"]}]


@pytest.mark.proves("T13", "T10")
def test_rounds_are_told_and_what_is_not_known_is_no_pass(cli):
    steps = ({"write": ["a", "1"]}, {"end": "so"}, {"write": ["b", "1"]}, {"say": "both"})
    check = ("--check", "both=test -e a && test -e b", "--rounds", "3")
    planned = cli.text("task", "run", prompt_of(*steps), *HERE, *check, "--dry-run")
    assert "3 rounds at most" in planned
    more = ("--plan", "--review", "scripted", "--reviews", "4", "--mode", "implement")
    planned = cli.text("task", "run", prompt_of(*steps), *HERE, *more, "--dry-run")
    assert "have it make a plan first" in planned
    assert "have scripted review it in a session of its own, 4 times" in planned
    only = cli.text("task", "run", prompt_of(*steps), *HERE, "--plan", "--dry-run")
    assert ("make a plan first" in only, "review" in only) == (True, False)
    said = cli.text("task", "run", prompt_of(*steps), *HERE, *check)
    assert "· round 1 of 3  ✗ both\n" in said
    assert "· round 2 of 3  ✓ both\n" in said
    slow = ("--check", "slow=sleep 60", "--check-timeout", "1s")
    done = cli("task", "run", prompt_of({"say": "x"}), *HERE, *slow)
    assert (done.returncode, "? slow  it was not over after 1 s" in done.stdout.decode()) == (
        1,
        True,
    ), done.stdout


@pytest.mark.proves("T11")
def test_an_app_is_looked_at_and_told_of(cli):
    app = ("--web", "1/health", "--within", "1s", "--worker", "queue", "--restart", "web")
    more = ("--preset", "vite", "--check", "make=true", "--build", "make")
    planned = cli.text("task", "run", prompt_of({"say": "x"}), *HERE, *app, *more, "--dry-run")
    assert "start web anew if tailwind.config.*, " in planned
    assert "port 1 answers /health without an error, or one of these processes runs" in planned
    done = cli("task", "run", prompt_of({"say": "x"}), *HERE, *app)
    said = done.stdout.decode()
    assert done.returncode == 1, said
    assert "· app not healthy: port 1: there is no way to it" in said  # here, to no port
    assert "there is no process queue" in said
    assert "  ✗ app not healthy" in said
    (task, *_) = cli.answer("task", "ls", "--state", "failed")["tasks"]
    assert task["result"]["healthy"] is False
    shown = cli.text("task", "show", task["id"])
    assert "there is no way to it" in shown
    for wrong in (("--preset", "vite"), ("--web", "x"), ("--web", "80", "--build", "none")):
        refused = cli("task", "run", "x", *HERE, *wrong)
        assert refused.returncode != 0, wrong
        assert b"Traceback" not in refused.stderr


def test_the_exit_code_says_how_it_ended(cli):
    failed = cli("task", "run", prompt_of({"fail": "no such thing"}), *HERE)
    assert failed.returncode == 1
    assert b"failed: agent_error" in failed.stdout
    assert b"no such thing" in failed.stdout
    checked = cli("task", "run", prompt_of({"say": "x"}), *HERE, "--check", "never=echo why; false")
    assert checked.returncode == 1
    assert "✗ never  exit 1" in checked.stdout.decode()
    assert b"    why\n" in checked.stdout
    silent = cli(
        "task", "run", "x", "--agent", "command", *HERE[2:], "--option", 'command=["true"]'
    )
    assert (silent.returncode, b"failed: no_output" in silent.stdout) == (1, True), silent.stdout
    unknown = cli("task", "run", "x", "--agent", "nobody")
    assert (unknown.returncode, b"there is no agent 'nobody'" in unknown.stderr) == (2, True)
    assert cli("task", "show", "tsk_nobody").returncode == 1


@pytest.mark.proves("M5")
def test_it_is_told_something_and_cancelled(cli):
    task = begun(cli, {"say": "begun"}, {"await": 9})
    while "begun" not in cli.text("task", "logs", task):
        pass
    following = cli.start("task", "logs", "-f", task)
    sent = cli.text("task", "send", task, "a word", "--mode", "interrupt")
    assert sent.endswith("  queued, read at once\n")
    unsure = cli.text("task", "send", task, "or this", "--mode", "turn", "--ttl", "1h")
    assert unsure.endswith("  queued\n")
    assert "interrupt" in cli.text("task", "messages", task)
    assert cli.text("task", "cancel", task) == f"{task}  cancelling\n"
    out, _ = following.communicate(timeout=40)
    assert following.returncode == 130
    assert b"cancelled" in out
    late = cli("task", "send", task, "late")
    assert (late.returncode, b"follow-up" in late.stderr) == (1, True)


def test_who_interrupts_leaves_it_or_cancels_it(cli, screen):
    desk = screen("task", "run", prompt_of({"say": "begun"}, {"await": 1}), *HERE)
    task = desk.until(r"task tsk_\w+")
    task = task[task.index("tsk_") :][:30]
    desk.until("begun")
    desk.type("\x03")
    desk.until("leave, cancel")
    desk.type("cancel\n")
    seen = desk.rest()
    assert "cancelled" in seen
    assert desk.process.wait(30) == 130
    assert cli.answer("task", "show", task)["state"] == "cancelled"
    task = begun(cli, {"say": "begun"}, {"await": 1})
    program = cli.start("task", "run", prompt_of({"say": "begun"}, {"await": 1}), *HERE)
    while b"begun" not in (program.stdout.readline()):
        pass
    program.send_signal(signal.SIGINT)
    _, told = program.communicate(timeout=30)
    assert (program.returncode, b"it goes on" in told) == (130, True)
    states = {each["state"] for each in cli.answer("task", "ls", "--agent", "scripted")["tasks"]}
    assert "running" in states


def test_programs_are_told_one_event_a_line_and_the_task_at_last(cli):
    done = cli("task", "run", prompt_of({"say": "x"}), *HERE, "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (lines[0]["kind"], lines[-2]["kind"]) == ("task.pending", "task.completed")
    assert lines[-1]["task"]["state"] == "completed"


@pytest.mark.parametrize("form", ["lines", "list", "toml"])
def test_a_batch_is_read_in_three_forms(form):
    tasks = [{"prompt": "one", "agent": "a"}, {"prompt": "two", "labels": {"k": "v"}}]
    text = {
        "lines": "\n".join(map(json.dumps, tasks)),
        "list": json.dumps(tasks, indent=2),
        "toml": '[[tasks]]\nprompt = "one"\nagent = "a"\n[[tasks]]\nprompt = "two"\n'
        'labels = {k = "v"}\n',
    }[form]
    assert tasks_in(text.encode()) == tasks


def test_a_batch_is_given_and_attempts_are_compared(cli, box, tmp_path):
    file = tmp_path / "tasks.ndjson"
    body = {"prompt": prompt_of({"say": "x"}), "agent": "scripted", "template": "plain"}
    file.write_text(f"{json.dumps(body)}\n{json.dumps(body)}\n")
    made = cli.text("task", "batch", str(file)).split()
    assert len(made) == 2
    bad = tmp_path / "bad"
    bad.write_text("{]")
    refused = cli("task", "batch", str(bad))
    assert (refused.returncode, b"cannot be read as tasks" in refused.stderr) == (2, True)
    prompt = prompt_of({"write": ["x.txt", "x\n"]}, {"say": "made"})
    begun = cli.answer(
        "task", "attempts", prompt, "-n", "2", "--agent", "scripted", "--sandbox", box
    )
    first, second = (each["id"] for each in begun["attempts"])
    table = cli.text("task", "attempts", begun["id"], "--follow")
    assert table.count("+1 -0") == 2
    waited = cli("task", "wait", first, second)
    assert (waited.returncode, waited.stdout.count(b"completed")) == (0, 2), waited.stderr
    assert cli.text("task", "adopt", first) == f"{first} adopted\n"
    assert cli.text("exec", box, "--", "cat */x.txt") == "x\n"
    assert "completed, adopted" in cli.text("task", "attempts", begun["id"])
    alone = cli("task", "attempts", "x", "--with", "scripted")
    assert (alone.returncode, b"nothing to compare" in alone.stderr) == (2, True)


def test_a_task_that_failed_is_waited_for_and_retried(cli):
    task = begun(cli, {"fail": "no"})
    waited = cli("task", "wait", task, "--timeout", "30s")
    assert (waited.returncode, b"failed: agent_error" in waited.stdout) == (1, True), waited
    again = cli("task", "retry", task)
    assert (again.returncode, b"failed: agent_error" in again.stdout) == (1, True), again
    assert task.encode() not in again.stdout


def test_a_place_without_a_name_is_a_mistake_and_no_default(cli):
    for option in ("--sandbox", "--fork", "--snapshot", "--template", "--dir", "--agent"):
        refused = cli("task", "run", "x", option, "", "--dry-run")
        assert refused.returncode == 2
        assert f"Invalid value for '{option}': it is empty".encode() in refused.stderr


def test_a_prompt_of_a_file_keeps_its_line_ends(tmp_path):
    given = tmp_path / "prompt.txt"
    given.write_bytes(b"one\r\ntwo\n")
    assert prompt_in_file(None, given) == "one\r\ntwo\n"


@pytest.mark.proves("T20")
def test_tasks_that_are_over_are_deleted_by_name_and_by_what_they_are(cli):
    labelled = ("--label", "of=old")
    one, *bad = (
        begun(cli, step, more=labelled) for step in ({"say": "x"}, {"fail": "a"}, {"fail": "b"})
    )
    for each in (one, *bad):
        cli("task", "logs", "--follow", each)
    found = cli.answer("task", "ls", *labelled)["tasks"]
    assert {each["id"] for each in found} == {one, *bad}
    would = cli.text("task", "delete", "--state", "failed", *labelled, "--dry-run")
    assert sorted(would.split()[2::3]) == sorted(bad)
    kept = cli.answer("task", "delete", "--older-than", "7d", *labelled)
    assert kept == {"tasks": [], "sandboxes": [], "kept": []}
    gone = cli.answer("task", "delete", "--state", "failed", *labelled, "--sandbox")
    assert (sorted(gone["tasks"]), len(gone["sandboxes"])) == (sorted(bad), 2)
    assert cli.text("task", "delete", one) == f"deleted   {one}\n"
    assert cli.answer("task", "ls", *labelled)["tasks"] == []
    assert cli("task", "delete").returncode == 2
    assert cli("task", "delete", one, "--state", "failed").returncode == 2


@pytest.mark.proves("H7")
def test_what_a_task_is_at_is_told(cli):
    task = begun(cli, {"say": "Here I am."}, {"await": 1})
    while "Here I am." not in cli.text("task", "logs", task):
        pass
    said = cli.text("task", "diagnose", task)
    assert "COMMAND" in said
    assert "last      message: Here I am." in said
    found = cli.answer("task", "diagnose", task)
    assert found["processes"]
    assert found["why"].endswith("asked")
    cli("task", "cancel", task)


@pytest.mark.proves("H8")
def test_a_sandbox_is_set_aside_shown_and_cleared(cli):
    task = begun(cli, {"say": "Here I am."}, {"await": 1})
    while "Here I am." not in cli.text("task", "logs", task):
        pass
    box = cli.answer("task", "show", task)["sandbox_id"]
    case = cli.answer("quarantine", "set", box, "--why", "it looks wrong")
    assert (case["tasks"], case["before"]) == ([task], "running")
    assert case["diagnosis"]["processes"]
    (shown,) = cli.answer("inspect", box)["sandboxes"]
    assert shown["quarantine"] == "it looks wrong", shown
    (listed,) = cli.answer("quarantine", "ls")["quarantine"]
    assert (listed["sandbox_id"], listed["why"]) == (box, "it looks wrong")
    assert "it looks wrong" in cli.text("quarantine", "ls")
    assert cli.answer("task", "show", task)["state"] == "waiting"
    assert '"agent.message"' in cli.text("quarantine", "show", box)
    assert cli.text("quarantine", "clear", box).split()[1] == "running"
    assert cli.answer("quarantine", "ls")["quarantine"] == []
    assert cli("quarantine", "show", box).returncode != 0
    cli("task", "cancel", task)


@pytest.mark.proves("H10", "H3")
def test_the_state_of_everything_and_of_one_sandbox_is_told(cli):
    task = begun(cli, {"say": "x"})
    cli("task", "logs", "--follow", task)
    said = cli.text("status")
    for part in ("server    ", "alive", "tasks     ", "models    ", "provider  "):
        assert part in said, (part, said)
    assert cli.answer("status")["tasks_by_state"]["completed"] >= 1
    with cli.start("status", "--watch", "--every", "0.2s", "--json") as watching:
        pages = [json.loads(_page(watching.stdout)) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
    assert pages[0]["at"] < pages[1]["at"]
    box = cli.answer("task", "show", task)["sandbox_id"]
    asked = cli("health", box)
    assert (asked.returncode, b"running" in asked.stdout) == (0, True)
    cli("stop", box)
    asked = cli("health", box)
    assert (asked.returncode, b"stopped" in asked.stdout) == (1, True)


def _page(stream):
    """One of several that are printed one after the other."""
    lines = []
    while not lines or lines[-1].rstrip() != b"}":
        line = stream.readline()
        assert line, "it ended"
        lines.append(line)
    return b"".join(lines)
