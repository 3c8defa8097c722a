"""Docker's verbs, on a server."""

import json
import signal
import subprocess

import pytest

from tests.interfaces.cli.remote.conftest import PADDOCK, Cli
from tests.interfaces.cli.test_run import wait_until_ours


@pytest.mark.proves("C1")
def test_a_sandbox_is_made_listed_inspected_stopped_started_and_removed(cli):
    made = cli.answer(
        "create",
        "--template",
        "plain",
        "--name",
        "verbs",
        "-l",
        "of=verbs",
        "-e",
        "A=1,2",
        "--idle-timeout",
        "5m",
    )
    assert made["name"] == "verbs"
    listed = cli.text("ls", "-l", "of=verbs").splitlines()
    assert listed[0].split() == ["NAME", "SANDBOX", "STATE", "TEMPLATE", "AGE", "REASON"]
    assert listed[1].split()[:3] == ["verbs", made["id"], "running"]
    assert cli.text("ls", "-q", "-l", "of=verbs") == f"{made['id']}\n"
    assert cli.text("exec", "verbs", "--", "sh", "-c", "echo $A") == "1,2\n"
    seen = cli.answer("inspect", "verbs")["sandboxes"][0]
    assert (seen["lifetime"]["idle_timeout_s"], seen["usage"]["pids"] > 0) == (300, True)
    assert "verbs" in cli.text("inspect", made["id"])
    for verb, done, state in (
        ("stop", "stopped", "stopped"),
        ("start", "started", "running"),
        ("pause", "paused", "paused"),
        ("resume", "resumed", "running"),
    ):
        assert cli.text(verb, "verbs") == f"verbs {done}\n"
        assert cli.answer("inspect", "verbs")["sandboxes"][0]["state"] == state
    assert cli.text("rm", "verbs") == "verbs removed\n"
    assert "verbs" not in cli.names()
    again = cli("rm", "verbs")
    assert again.returncode == 1
    assert cli("rm", "-f", "verbs").returncode == 0


@pytest.mark.proves("C4", "C5")
def test_errors_are_one_envelope_with_the_same_code_in_both_forms(cli):
    for words, code in (
        (("inspect", "nothing-here"), 1),
        (("exec", "nothing-here", "--", "true"), 1),
        (("create", "--name", "-bad-"), 2),
        (("create", "--memory", "lots"), 2),
        (("exec", "x"), 2),
        (("cp", "a", "b"), 2),
    ):
        text = cli(*words)
        as_json = cli(words[0], "-o", "json", *words[1:])
        assert text.returncode == as_json.returncode == code, text.stderr
        assert text.stderr.startswith(b"error: ")
        error = json.loads(as_json.stderr)["error"]
        assert error["message"]
        assert error["remediation"]


@pytest.mark.parametrize(
    ("before", "words", "after"),
    [
        ("stop", ("exec",), ("--", "true")),
        ("pause", ("exec", "--detach"), ("--", "true")),
        ("stop", ("ps",), ()),
        ("stop", ("ports",), ()),
    ],
    ids=["exec", "exec --detach", "ps", "ports"],
)
def test_a_command_starts_a_sandbox_that_sleeps_unless_told_not_to(cli, box, before, words, after):
    cli.text(before, box)
    asleep = cli.answer("inspect", box)["sandboxes"][0]["state"]
    refused = cli(*words, "--no-start", box, *after)
    assert (refused.returncode, asleep.encode() in refused.stderr) == (1, True)
    assert cli.answer("inspect", box)["sandboxes"][0]["state"] == asleep
    done = cli(*words, box, *after)
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode() == f"note: sandbox {box} was {asleep}; Paddock starts it\n"
    assert cli(*words, box, *after).stderr == b""


def test_the_note_that_a_sandbox_is_started_does_not_disturb_json(cli, box):
    cli.text("stop", box)
    done = cli("ps", box, "-o", "json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (0, b"", {"commands": []})


def test_one_that_fails_does_not_keep_the_others(cli, box):
    done = cli("stop", "nothing-here", box)
    assert done.returncode == 1
    assert done.stdout.decode() == f"{box} stopped\n"


@pytest.mark.proves("E4", "C2")
def test_streams_codes_and_input_pass_through(cli, box):
    done = cli("exec", box, "--", "sh", "-c", "cat; echo err >&2; exit 42", stdin=bytes(range(256)))
    assert (done.returncode, done.stdout, done.stderr) == (42, bytes(range(256)), b"err\n")
    assert cli("exec", box, "--", "sh", "-c", "kill -9 $$").returncode == 137
    late = cli("exec", "--timeout", "1s", box, "--", "sleep", "100")
    assert late.returncode == 124
    assert b"deadline" in late.stderr
    helped = cli("exec", box, "--", "ls", "--help")
    assert b"paddock" not in helped.stdout
    assert cli("exec", box, "echo a && echo b").stdout == b"a\nb\n"
    cli.text("exec", box, "--", "sh", "-c", "echo data > data")
    for words, code in ((("nonesuch",), 127), (("/no/such",), 127), (("./data",), 126)):
        assert cli("exec", box, "--", *words).returncode == code
        assert cli("exec", "-o", "json", box, "--", *words).returncode == code
    assert cli("exec", "-d", box, "--", "nonesuch").returncode == 127
    assert cli("exec", "--workdir", "/no/such", box, "--", "true").returncode == 2
    big = b"x" * (5 << 20)
    assert cli("exec", box, "--", "wc", "-c", stdin=big).stdout.strip() == str(len(big)).encode()


@pytest.mark.parametrize(
    "words",
    [
        ("--timeout", "1", "--", "sleep", "5"),
        ("-w", "/x", "--", "ls"),
        ("--unknown", "--", "ls"),
        ("--timeout=1", "sleep", "5"),
        ("-w/x", "ls"),
        ("-T", "ls"),
    ],
    ids=" ".join,
)
def test_options_after_the_sandbox_are_a_usage_error(cli, box, words):
    done = cli("exec", box, *words)
    assert done.returncode == 2
    assert b"options go before the sandbox" in done.stderr
    assert words[0].encode() in done.stderr


def test_dashes_of_the_command_are_its_own(cli, box):
    for words in (("--", "echo", "--timeout", "1"), ("echo", "--timeout", "1")):
        assert cli("exec", box, *words).stdout == b"--timeout 1\n"
    assert cli("exec", box, "echo", "-w", "--", "x").stdout == b"-w -- x\n"
    odd = cli("exec", box, "--", "--timeout", "1")
    assert (odd.returncode, b"command not found: --timeout" in odd.stderr) == (127, True)


def test_an_empty_word_is_no_command(cli, box):
    for words in (("",), ("", "x")):
        done = cli("exec", box, "--", *words)
        assert (done.returncode, b"no command was given" in done.stderr) == (2, True), done.stderr


def test_only_a_stopped_one_is_archived_and_it_says_how(cli, box):
    refused = cli("archive", box)
    assert refused.returncode != 0
    assert f"stop it first: `paddock stop {box}`".encode() in refused.stderr


def test_json_has_the_output_and_the_same_code(cli, box):
    done = cli("exec", "-o", "json", box, "--", "sh", "-c", "echo out; exit 3")
    said = json.loads(done.stdout)
    assert (done.returncode, said["exit_code"], said["stdout"]) == (3, 3, "out\n")


def test_a_detached_command_is_listed_followed_and_ended(cli, box):
    script = "echo first; sleep 1; echo last; exit 6"
    started = cli.text("exec", "-d", box, "--", "sh", "-c", script).strip()
    assert started in cli.text("ps", box)
    followed = cli("logs", "-f", box, started)
    assert (followed.stdout, followed.returncode) == (b"first\nlast\n", 6)
    assert cli.text("logs", box) == "first\nlast\n"
    other = json.loads(cli.text("exec", "-d", "-o", "json", box, "--", "sleep", "1000"))["id"]
    assert cli.text("kill", "--grace", "0", box, other) == f"{other} killed\n"
    states = {each["id"]: each["exit_code"] for each in cli.answer("ps", box)["commands"]}
    assert states[started] == 6


@pytest.mark.proves("L14")
def test_a_run_leaves_nothing_and_passes_the_code_on(cli):
    before = cli.names()
    done = cli("run", "--template", "plain", "-e", "V=1", "--", "sh", "-c", "echo $V; exit 5")
    assert (done.returncode, done.stdout) == (5, b"1\n")
    said = cli("run", "-o", "json", "--template", "plain", "--", "sh", "-c", "echo out; exit 4")
    assert (said.returncode, json.loads(said.stdout)["stdout"]) == (4, "out\n")
    missing = cli("run", "--template", "plain", "--", "nonesuch")
    assert (missing.returncode, b"command not found: nonesuch" in missing.stderr) == (127, True)
    assert cli.names() == before
    kept = cli("run", "--keep", "--name", "kept-run", "--template", "plain", "--", "true")
    assert kept.stderr == b"kept kept-run\n"
    assert cli("rm", "kept-run").returncode == 0


@pytest.mark.proves("C9")
@pytest.mark.parametrize("moment", ["begun", "made", "running"])
def test_a_run_that_is_interrupted_removes_its_sandbox(cli, moment):
    before = cli.names()
    process = cli.start("run", "--template", "plain", "--", "sh", "-c", "echo on; sleep 1000")
    if moment == "begun":
        wait_until_ours(process.pid)
    elif moment == "made":
        while cli.names() == before:
            assert process.poll() is None
    else:
        assert process.stdout.readline() == b"on\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode in (130, -signal.SIGINT)
    assert cli.names() == before


def test_an_interrupted_exec_ends_its_command(cli, box):
    process = cli.start("exec", box, "--", "sh", "-c", "echo go; sleep 1000")
    assert process.stdout.readline() == b"go\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert cli.answer("ps", box)["commands"] == []


@pytest.mark.proves("E5")
def test_a_terminal_is_interactive_and_has_our_size(cli, box, screen):
    shell = screen("exec", "-it", box, "--", "sh")
    shell.until(r"[#$] ?$")
    shell.type("stty size; echo $((40 + 2))\n")
    shell.until(r"\b42\b")
    shell.type("exit 7\n")
    shell.rest()
    assert shell.process.wait(20) == 7


@pytest.mark.proves("C7", "N6")
def test_a_snapshot_of_a_name_is_taken_once_unless_forced(cli, box):
    first = cli.answer("snapshot", "create", box, "--name", "shot")
    assert first["made"]
    again = cli.answer("snapshot", "create", box, "--name", "shot")
    assert (again["id"], again["made"]) == (first["id"], False)
    forced = cli.answer("snapshot", "create", box, "--name", "shot", "--force")
    assert forced["id"] != first["id"]
    assert [each["id"] for each in cli.answer("snapshot", "list")["snapshots"]] == [forced["id"]]
    copy = cli.text("create", "--snapshot", "shot").strip()
    assert cli.text("rm", copy) == f"{copy} removed\n"
    assert cli.text("snapshot", "rm", "shot") == "shot removed\n"
    assert cli("snapshot", "rm", "shot").returncode == 1


@pytest.mark.proves("C7", "N6")
def test_a_snapshot_of_another_sandbox_is_neither_taken_for_ones_own_nor_replaced(cli, box):
    kept = cli.answer("snapshot", "create", box, "--name", "shared")["id"]
    other = cli.text("fork", box).strip()
    for words in ((), ("--force",)):
        refused = cli("snapshot", "create", other, "--name", "shared", *words)
        assert refused.returncode == 1
        assert f"a snapshot of another sandbox, {box}" in refused.stderr.decode()
        assert (
            "fix: choose another name, or `paddock snapshot rm shared`" in refused.stderr.decode()
        )
    assert cli.answer("snapshot", "inspect", "shared")["id"] == kept
    cli.text("rm", "-f", other)
    cli.text("snapshot", "rm", "shared")


def test_a_fork_goes_its_own_way(cli, box):
    cli.text("exec", box, "--", "sh", "-c", "echo one > note")
    copy = cli.text("fork", box, "--name", "forked").strip()
    assert cli.text("exec", copy, "--", "cat", "note") == "one\n"
    cli.text("rm", copy)


def test_files_and_directories_are_copied_both_ways(cli, box, tmp_path):
    home = cli.text("exec", box, "--", "pwd").strip()
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "a").write_text("a")
    (tmp_path / "one").write_bytes(b"\0" * 3_000_000)
    assert cli.text("cp", str(tmp_path / "one"), f"{box}:{home}/two").startswith("1 file, ")
    cli.text("cp", str(tmp_path / "one"), f"{box}:{home}")
    cli.text("cp", str(tmp_path / "tree"), f"{box}:{home}")
    cli.text("cp", f"{tmp_path}/tree/.", f"{box}:{home}/content")
    listed = cli.text("exec", box, "--", "find", ".", "-type", "f").split()
    assert {"./two", "./one", "./tree/sub/a", "./content/sub/a"} <= set(listed)
    (tmp_path / "back").mkdir()
    cli.text("cp", f"{box}:{home}/tree", str(tmp_path / "back"))
    assert (tmp_path / "back" / "tree" / "sub" / "a").read_text() == "a"
    cli.text("cp", f"{box}:{home}/two", str(tmp_path / "there"))
    assert (tmp_path / "there").stat().st_size == 3_000_000
    missing = cli("cp", f"{box}:{home}/nothing", str(tmp_path / "x"))
    assert missing.returncode == 1
    assert not (tmp_path / "x").exists()


def test_ports_have_links(cli, box):
    assert cli.text("ports", box).startswith("PORT")
    link = cli.text("open", "--print", "--for", "5m", box, "8000").strip()
    assert link.startswith("http://8000-sbx-")


@pytest.mark.proves("U2")
def test_tokens_and_teams_are_made_used_listed_and_revoked(cli, running):
    made = cli.answer("token", "create", "ci", "--role", "viewer", "--expires", "1h")
    viewer = Cli(running.url, made["token"])
    assert viewer("ls").returncode == 0
    refused = viewer("create", "--template", "plain")
    assert refused.returncode == 1
    assert made["id"] in cli.text("token", "list")
    assert cli.text("token", "revoke", made["id"]) == f"{made['id']} revoked\n"
    assert viewer("ls").returncode == 1
    other = Cli(running.url, cli.text("team", "create", "others").strip())
    assert "others" in cli.text("team", "list")
    mine = cli.text("create", "--template", "plain").strip()
    assert b"there is no sandbox" in other("inspect", mine).stderr
    cli.text("rm", mine)


def test_events_and_audit_say_what_happened(cli, box):
    lines = [json.loads(line) for line in cli.text("events", "-o", "json", box).splitlines()]
    assert [each["kind"] for each in lines][:2] == ["sandbox.creating", "sandbox.running"]
    assert "sandbox.running" in cli.text("events", box)
    assert "sandbox.create" in cli.text("audit")
    entries = [json.loads(line) for line in cli.text("audit", "--export").splitlines()]
    assert all(len(each["hash"]) == len(each["previous"]) == 64 for each in entries)
    for arguments in ((), ("--all",)):
        assert "The log holds" in cli.text("audit", "verify", *arguments)
    head = cli.answer("audit", "verify")["head"]
    assert cli("audit", "verify", "--expect", f"{head['seq']}:{'0' * 64}").returncode == 1
    assert "audit     holds" in cli.text("status")
    kinds = ("--kind", "sandbox.running", "--kind", "sandbox.stopped")
    following = cli.start("events", "-f", *kinds, box)
    assert b"sandbox.running" in following.stdout.readline()
    cli.text("stop", box)
    assert b"sandbox.stopped" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=20)


@pytest.mark.proves("U12")
def test_an_app_is_told_of_and_purged(cli):
    box = cli.text("create", "--template", "plain", "--app", "cli-shop").strip()
    cli.text("config", "set", "--app", "cli-shop", "COLOUR=red")
    told = cli.text("events", "--app", "cli-shop")
    assert "sandbox.running" in told
    assert "secret.set" in told
    assert cli.text("events", "--app", "cli-nobody") == ""
    for wrong in ((), ("somebody", "--app", "cli-shop")):
        refused = cli("purge", *wrong)
        assert (refused.returncode, b"--app" in refused.stderr) == (2, True)
    assert "would go  1 sandboxes" in cli.text("purge", "--app", "cli-shop", "--dry-run")
    done = cli.text("purge", "--app", "cli-shop", "--yes")
    assert "removed   1 secrets" in done
    assert cli("inspect", box).returncode == 1
    assert cli.answer("config", "list", "--app", "cli-shop") == {"config": []}


def test_a_purge_asks_first_and_shows_what_goes(cli, screen):
    cli.text("config", "set", "--app", "cli-asked", "COLOUR=red")
    done = cli("purge", "--app", "cli-asked")
    assert (done.returncode, b"--yes" in done.stderr) == (2, True)
    no = screen("purge", "--app", "cli-asked")
    assert "would go  1 secrets" in no.until(r"Remove this for good\? \[y/N\]")
    no.type("n\n")
    assert (no.rest() != "", no.process.wait(20)) == (True, 1)
    assert len(cli.answer("config", "list", "--app", "cli-asked")["config"]) == 1
    yes = screen("purge", "--app", "cli-asked")
    yes.until(r"\[y/N\]")
    yes.type("y\n")
    assert "removed   1 secrets" in yes.rest()
    assert cli.answer("config", "list", "--app", "cli-asked") == {"config": []}


@pytest.mark.parametrize("words", [("ls",), ("version",), ("settings",)], ids=" ".join)
def test_a_settings_file_that_does_not_exist_is_an_error_for_every_command(cli, tmp_path, words):
    done = cli("--config", str(tmp_path / "missing.toml"), *words)
    assert done.returncode == 2
    assert b"missing.toml does not exist" in done.stderr


def test_no_server_is_said_with_what_to_do(cli):
    done = Cli("http://127.0.0.1:9", "x")("ls")
    assert done.returncode == 1
    assert b"no server answers at http://127.0.0.1:9" in done.stderr
    assert b"paddock up" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_names(cli, shell):
    assert "_PADDOCK_COMPLETE" in cli.text("completion", shell)


def test_names_are_completed(cli, box):
    words = {"COMP_WORDS": f"paddock stop {box[:3]}", "COMP_CWORD": "2"}
    environment = {**cli.environment, **words, "_PADDOCK_COMPLETE": "bash_complete"}
    done = subprocess.run(
        PADDOCK, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert f"plain,{box}" in done.stdout, done.stderr
