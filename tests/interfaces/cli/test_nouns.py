"""`paddock sandbox`, `snapshot` and `template`: thin commands, straight on the provider."""

import json
import os
import pty
import subprocess

import pytest

from paddock.domain.ids import new_id
from tests.interfaces.cli.conftest import PADDOCK


@pytest.fixture
def kept(cli):
    """The name of a sandbox that is there."""
    assert cli.run("--keep", "--", "sh", "-c", "echo mine > file").returncode == 0
    (ref,) = cli.left()
    return ref


@pytest.mark.proves("C1", "C4")
def test_sandboxes_are_listed_by_label_in_both_forms(cli, kept):
    table = cli("sandbox", "list", "--label", cli.label).stdout.decode().splitlines()
    assert table[0].split() == ["SANDBOX", "STATE", "TEMPLATE", "AGE", "REASON", "SERVER-ID"]
    assert table[1].split()[:3] == [kept, "running", "tiny"]
    assert len(table) == 2
    (listed,) = cli.answer("sandbox", "list", "--label", cli.label)["sandboxes"]
    assert (listed["ref"], listed["state"], listed["template"]) == (kept, "running", "tiny")
    assert cli.answer("sandbox", "list", "--label", "test=other") == {"sandboxes": []}


@pytest.mark.proves("L4", "C1")
def test_a_sandbox_is_paused_resumed_stopped_and_started(cli, kept):
    def state() -> str:
        (seen,) = cli.answer("sandbox", "list", "--label", cli.label)["sandboxes"]
        return seen["state"]

    for verb, after in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
        done = cli("sandbox", verb, kept)
        assert done.returncode == 0, done.stderr
        assert state() == after
    refused = cli("sandbox", "exec", kept, "--", "true")
    assert refused.returncode == 1
    assert b"is stopped; only a running one can be talked to" in refused.stderr
    assert (
        cli("sandbox", "start", kept.removeprefix("local/")).stdout == f"{kept} started\n".encode()
    )
    assert cli("sandbox", "exec", kept, "--", "cat", "file").stdout == b"mine\n"


@pytest.fixture
def servers(cli):
    """The name of a sandbox that a server owns, and the server's own name for it."""
    known = new_id("sbx")
    labels = ("--label", "paddock.installation=elsewhere", "--label", f"paddock.sandbox={known}")
    assert cli.run("--keep", *labels, "--", "sh", "-c", "echo kept > file").returncode == 0
    (ref,) = cli.left()
    yield ref, known
    cli("sandbox", "rm", "--force", ref)


@pytest.mark.slow
@pytest.mark.proves("L6")
def test_commands_without_a_server_refuse_a_sandbox_that_a_server_owns(cli, servers):
    ref, known = servers
    (listed,) = cli("sandbox", "ls", "--label", cli.label).stdout.decode().splitlines()[1:]
    assert listed.split()[-1] == known
    refused = [cli("sandbox", verb, ref) for verb in ("rm", "stop", "pause", "fork", "snapshot")]
    refused.append(cli("sandbox", "exec", ref, "--", "true"))
    for done in refused:
        assert (done.returncode, done.stdout) == (1, b""), done
        assert f"{ref} belongs to a server, which knows it as {known}".encode() in done.stderr
        assert f"fix: ask that server: `paddock inspect {known}`".encode() in done.stderr
    (seen,) = cli.answer("sandbox", "ls", "--label", cli.label)["sandboxes"]
    assert seen["state"] == "running"


@pytest.mark.proves("E1", "C4")
def test_exec_passes_streams_and_codes_on(cli, kept):
    done = cli("sandbox", "exec", "-e", "A=b", kept, "sh", "-c", "cat; echo $A; exit 3", stdin=b"x")
    assert (done.returncode, done.stdout) == (3, b"xb\n")
    done = cli("sandbox", "exec", "--json", "--timeout", "1", kept, "--", "sleep", "60")
    record = json.loads(done.stdout)
    assert (done.returncode, record["exit_code"], record["reason"]) == (124, 124, "deadline")


@pytest.mark.proves("N4", "C7", "N2")
def test_a_fork_and_a_snapshot_have_what_was_on_the_disk(cli, kept):
    fork = cli.answer("sandbox", "fork", kept)["ref"]
    assert cli("sandbox", "exec", fork, "--", "cat", "file").stdout == b"mine\n"
    taken = cli("sandbox", "snapshot", kept).stdout.decode().strip()
    listed = {
        each["ref"]: each["memory"]
        for each in cli.answer("sandbox", "snapshot", "list")["snapshots"]
    }
    assert listed[taken] is False
    assert cli("sandbox", "snapshot", "rm", taken).stdout.decode() == f"{taken} removed\n"
    again = cli("sandbox", "snapshot", "rm", taken)
    assert again.returncode == 1
    assert b"there is no snapshot" in again.stderr


@pytest.mark.slow
@pytest.mark.proves("N1")
def test_what_a_template_lets_snapshots_leave_out_is_set_shown_and_said(cli):
    root = str(cli.data.parent / "root")
    name = f"rules-{cli.label.removeprefix('test=')[-8:]}"
    add = ("template", "add", name, "--from-dir", root)
    refused = cli(*add, "--snapshot-ignore", "out")
    assert refused.returncode == 2
    assert b"does not say where" in refused.stderr
    assert cli(*add, "--snapshot-ignore", "/home/user/out").returncode == 0
    listed = cli("template", "list").stdout.decode()
    assert any(line.endswith(" /home/user/out") for line in listed.splitlines())
    changed = cli("template", "ignore", name, "/home/user/out", "/home/user/*.tmp")
    assert changed.returncode == 0
    assert f"changed in {cli.data}/templates".encode() in changed.stderr
    rules = cli("template", "ignore", name).stdout.decode().split()
    assert rules == ["/home/user/out", "/home/user/*.tmp"]
    script = (
        "mkdir -p /home/user/out /home/user/src/out; cd /home/user; touch out/x src/out/x a.tmp"
    )
    run = ("sandbox", "run", "--keep", "--label", cli.label, "--template", name)
    assert cli(*run, "--", "sh", "-c", script).returncode == 0
    (ref,) = cli.left()
    taken = cli("sandbox", "snapshot", ref)
    assert b"left out by the template's rules" in taken.stderr
    assert b"/home/user/out, /home/user/a.tmp" in taken.stderr
    assert b"--everything" in taken.stderr
    whole = cli("sandbox", "snapshot", ref, "--everything")
    assert whole.stderr == b""
    shots = {each["ref"]: each for each in cli.answer("sandbox", "snapshot", "list")["snapshots"]}
    first, second = (shots[done.stdout.decode().strip()] for done in (taken, whole))
    assert (first["ignore"], first["left_out"]["count"]) == (rules, 2)
    assert (second["ignore"], second["left_out"]["count"]) == ([], 0)
    there = "cd /home/user; ls out/x a.tmp src/out/x"
    assert cli("sandbox", "exec", ref, "--", "sh", "-c", there).returncode == 0, "it keeps all"
    assert cli("template", "ignore", name, "--none").stdout.endswith(b"leave nothing out\n")
    both = cli("template", "ignore", name, "--none", "/x")
    assert both.returncode == 2
    for done in (taken, whole):
        cli("sandbox", "snapshot", "rm", done.stdout.decode().strip())
    cli("sandbox", "rm", ref)
    assert cli("template", "rm", name).returncode == 0


@pytest.mark.proves("P4", "C5")
def test_a_snapshot_with_memory_is_refused_where_it_cannot_be_had_and_nothing_is_made(cli, kept):
    def sources() -> list[str]:
        return [each["source"] for each in cli.answer("sandbox", "snapshot", "list")["snapshots"]]

    done = cli("sandbox", "snapshot", "--memory", kept, "--json")
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, done.stdout, error["code"]) == (1, b"", "unsupported")
    assert "snapshot with memory: its capability `checkpoint` is off" in error["message"]
    assert "keeps the disk" in error["remediation"]
    assert "keeps its memory in RAM" in error["remediation"]
    assert kept.removeprefix("local/") not in sources()
    assert cli("sandbox", "exec", kept, "--", "cat", "file").stdout == b"mine\n"


@pytest.mark.proves("L5")
def test_what_is_not_there_is_an_error_unless_forced_and_the_rest_is_removed(cli, kept):
    done = cli("sandbox", "rm", "01zzzzzzzzzzzzzzzzzzzzzzzz", kept)
    assert done.returncode == 1
    assert b"error: there is no sandbox 01zzz" in done.stderr
    assert done.stdout.decode() == f"{kept} removed\n"
    assert cli("sandbox", "rm", "--force", kept).returncode == 0


def test_templates_are_added_listed_built_and_removed(cli, tmp_path):
    (tmp_path / "bin").mkdir()
    name = f"t{tmp_path.stat().st_ino}"
    added = cli("template", "add", name, "--from-dir", str(tmp_path), "--setup", "true")
    assert (added.returncode, added.stdout.decode()) == (0, f"{name} added\n")
    found = {each["name"]: each for each in cli.answer("template", "list")["templates"]}
    assert {"base", "tiny", name} <= set(found)
    assert found[name]["source"]["reference"] == str(tmp_path)
    assert found[name]["setup"] == ["true"]
    assert cli("template", "rm", name).stdout.decode() == f"{name} removed\n"
    again = cli("template", "rm", name)
    assert again.returncode == 1
    assert f"there is no template '{name}'".encode() in again.stderr


@pytest.mark.proves("P11")
def test_a_template_is_built_with_its_set_up_commands(cli):
    root = str(cli.data.parent / "root")
    name = f"setup-{cli.label.removeprefix('test=')[-8:]}"
    assert (
        cli("template", "add", name, "--from-dir", root, "--setup", "echo hi > /hi").returncode == 0
    )
    built = cli("template", "build", name)
    assert built.returncode == 0, built.stderr
    done = cli("sandbox", "run", "--template", name, "--label", cli.label, "--", "cat", "/hi")
    assert done.stdout == b"hi\n"
    cli("template", "rm", name)


@pytest.mark.proves("P11")
def test_a_set_up_that_fails_says_which_command_and_how(cli):
    root = str(cli.data.parent / "root")
    name = f"broken-{cli.label.removeprefix('test=')[-8:]}"
    setup = "echo last words; exit 3"
    assert cli("template", "add", name, "--from-dir", root, "--setup", setup).returncode == 0
    done = cli("template", "build", name, "--json")
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (done.returncode, error["code"]) == (1, "provider_refused")
    assert "ended with 3" in error["message"]
    assert "last words" in error["remediation"]
    cli("template", "rm", name)


def test_progress_is_a_bar_on_a_terminal_and_never_on_stdout(cli):
    root = str(cli.data.parent / "root")
    name = f"bar-{cli.label.removeprefix('test=')[-8:]}"
    assert cli("template", "add", name, "--from-dir", root, "--setup", "sleep 1").returncode == 0
    master, slave = pty.openpty()
    command = [*PADDOCK, "template", "build", name]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=cli.environment, stdout=pipe, stderr=slave) as process:
        os.close(slave)
        drawn = _read_to_the_end(master)
        said = process.stdout.read().decode()
    assert (process.returncode, said) == (0, f"{name} built\n")
    assert "━".encode() in drawn
    assert drawn.endswith(b"\x1b[2K"), "it is not wiped away"
    cli("template", "rm", name)


def _read_to_the_end(terminal: int) -> bytes:
    pieces = []
    try:
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    except OSError:  # how the end of a terminal shows
        pass
    finally:
        os.close(terminal)
    return b"".join(pieces)
