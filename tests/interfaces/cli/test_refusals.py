"""What the command line refuses, how it says so, and that both forms end with the same code."""

import json
import re
import resource
import socket
import subprocess
from pathlib import Path

import pytest

from paddock.domain.errors import PaddockError, leaves
from paddock.interfaces.cli.failures import EXIT_CODES
from tests.interfaces.cli.conftest import PADDOCK, clean_environment


def plain(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Without any installation, and without a place for one: what is refused here needs none."""
    return subprocess.run(
        [*PADDOCK, *arguments],
        env=clean_environment(**{"PADDOCK_LOCAL__DATA_DIR": "/proc/nowhere", **environ}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def both_ways(command: str, *arguments: str) -> tuple[int, dict[str, object]]:
    """The exit code and the error of a call, after checking that text and JSON agree."""
    words = command.split()
    text, as_json = plain(*words, *arguments), plain(*words, "-o", "json", *arguments)
    error = json.loads(as_json.stderr)["error"]
    assert as_json.stdout == text.stdout == ""
    assert as_json.returncode == text.returncode
    assert text.stderr.startswith(f"error: {error['message']}\n  fix: ")
    assert set(error) == {"code", "message", "retryable", "remediation"}
    return text.returncode, error


@pytest.mark.proves("Q2")
def test_every_error_has_an_exit_code():
    assert set(leaves()) <= set(EXIT_CODES)
    assert set(EXIT_CODES) <= set(leaves(PaddockError))


@pytest.mark.proves("C4", "C5", "C6")
@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("sandbox run", (), "no command was given"),
        ("sandbox run", ("--",), "no command was given"),
        ("sandbox run", ("--memory", "0", "--", "true"), "memory_mib is 0"),
        ("sandbox run", ("--cpus", "0", "--", "true"), "cpus is 0.0"),
        ("sandbox run", ("--cpus", "nan", "--", "true"), "'nan' is no number"),
        ("sandbox run", ("--disk", "-1g", "--", "true"), "disk_mib is -1024"),
        ("sandbox run", ("--pids", "1", "--", "true"), "pids is 1"),
        ("sandbox run", ("--memory", "much", "--", "true"), "'much' is no size"),
        ("sandbox run", ("--memory", "1k", "--", "true"), "no whole number of MiB"),
        ("sandbox run", ("--timeout", "0", "--", "true"), "'0' is not more than 0"),
        ("sandbox run", ("--timeout", "soon", "--", "true"), "'soon' is no time"),
        ("sandbox run", ("--timeout",), "Option '--timeout' requires an argument"),
        ("sandbox run", ("--network", "half", "--", "true"), "'half' is not one of"),
        ("sandbox run", ("--env", "NAME", "--", "true"), "--env: NAME is not NAME=VALUE"),
        ("sandbox run", ("--env", "s3cr3t/x", "--", "true"), "--env: an entry of 8 characters"),
        ("sandbox run", ("--env-file", "/no", "--", "true"), "/no cannot be read"),
        ("sandbox run", ("--copy", "/nowhere:/x", "--", "true"), "/nowhere does not exist"),
        ("sandbox run", ("--copy", "/etc", "--", "true"), "'/etc' is not SRC:DST"),
        ("sandbox run", ("--nonsense", "--", "true"), "No such option '--nonsense'"),
        ("sandbox exec", ("local/x",), "no command was given"),
        ("sandbox rm", (), "Missing argument 'SANDBOX...'"),
        ("template add", ("x",), "one source; 0 were given"),
        ("template add", ("X", "--from-image", "y"), "template name 'X' is not usable"),
        ("doctor", ("--provider", "a", "--conformance", "b"), "name two providers"),
    ],
)
def test_what_makes_no_sense_is_refused_with_2_before_anything_is_done(command, arguments, says):
    code, error = both_ways(command, *arguments)
    assert code == 2
    assert error["code"] == "invalid_request"
    assert says in error["message"]
    assert "s3cr3t" not in json.dumps(error)


def test_an_unknown_command_names_the_one_that_was_meant():
    done = plain("sandbx")
    assert done.returncode == 2
    assert "Did you mean 'sandbox'?" in done.stderr


@pytest.mark.proves("G3")
def test_a_wrong_setting_is_refused_by_every_command_that_reads_them(tmp_path):
    file = tmp_path / "paddock.toml"
    file.write_text("[local]\ndata_dri = 'x'\n")
    for command in (("doctor",), ("sandbox", "list"), ("template", "list")):
        done = plain("--config", str(file), *command)
        assert done.returncode == 2
        assert f"{file}: there is no setting local.data_dri" in done.stderr
    done = plain("doctor", "--json", PADDOCK_LOCAL__RUNTIME="cron")
    assert done.returncode == 2
    assert "PADDOCK_LOCAL__RUNTIME is 'cron'" in json.loads(done.stderr)["error"]["message"]


@pytest.mark.proves("P3")
def test_an_unknown_provider_is_refused_and_the_known_ones_are_named():
    code, error = both_ways("sandbox list", "--provider", "moon")
    assert (code, error["code"]) == (1, "not_found")
    assert "no provider 'moon'; registered are: " in error["message"]


@pytest.mark.proves("C5", "L7")
def test_an_unknown_template_is_not_found_and_nothing_is_made(cli):
    done = cli("sandbox", "run", "--template", "nonesuch", "--label", cli.label, "--", "true")
    assert done.returncode == 1
    # Tests that run beside this one have templates of their own in the same installation.
    expected = rb"error: there is no template 'nonesuch'\n  fix: use one of base, .*\btiny\b"
    assert re.search(expected, done.stderr)
    assert cli.left() == []


@pytest.mark.proves("L7", "P13")
@pytest.mark.parametrize("limit", [("--memory", "900t"), ("--cpus", "5000"), ("--disk", "900t")])
def test_more_than_the_host_has_is_refused_and_nothing_is_made(cli, limit):
    done = cli.run(*limit, "--", "true")
    assert done.returncode == 2
    assert b"this host has only" in done.stderr
    assert cli.left() == []


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--", "nonesuch"), 127, b"command not found: nonesuch"),
        (("--", "/etc"), 126, b"/etc is not executable"),
        (("--workdir", "/none", "--", "true"), 2, b"working directory /none does not exist"),
        (("--user", "nonesuch", "--", "true"), 2, b"invalid username: 'nonesuch'"),
        (("-o", "json", "--", "nonesuch"), 127, b'"message": "command not found: nonesuch"'),
    ],
)
def test_what_is_not_inside_is_refused_and_the_sandbox_is_removed(cli, options, code, says):
    done = cli.run(*options)
    assert done.returncode == code
    assert says in done.stderr
    assert cli.left() == []


def test_a_runtime_that_is_not_there_is_said(cli):
    done = cli.run("--runtime", "nonesuch", "--", "true")
    assert done.returncode == 2
    assert b"no runtime called 'nonesuch'" in done.stderr


def test_help_answers_at_once():
    """By the processor's time, because the machine may have something else to do meanwhile."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    times = []
    for _ in range(5):
        before = used()
        assert plain("--help").returncode == 0
        times.append(used() - before)
    assert min(times) < 0.15, "is something imported that --help does not need?"


def test_a_group_alone_shows_its_help_and_is_still_no_success():
    done = plain("approvals")
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: paddock approvals"), done.stderr


@pytest.mark.parametrize(
    "words",
    [("snapshot", "list"), ("template", "ls"), ("task", "rm"), ("task", "inspect"), ("delete",)],
    ids=" ".join,
)
def test_a_command_goes_by_the_name_that_its_siblings_have(words):
    done = plain(*words, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_help_imports_nothing_heavy():
    program = (
        "import sys, paddock.__main__ as command; sys.argv[1:] = ['--help']; command.main(); "
        "print(*sys.modules)"
    )
    done = subprocess.run([PADDOCK[0], "-c", program], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "aiohttp", "msgspec", "rich", "paddock.wiring", "paddock.ports"}
    assert not heavy & set(done.stdout.split())


def test_the_listed_help_of_a_command_is_its_own():
    from paddock.interfaces.cli.app import COMMANDS

    for command in COMMANDS:
        assert command.load().get_short_help_str(100) == command.get_short_help_str(100)


@pytest.mark.proves("C4")
def test_the_version_is_told_in_both_forms():
    assert plain("version").stdout.startswith("paddock ")
    assert set(json.loads(plain("version", "-o", "json").stdout)) == {"version", "python"}
    assert plain("--version").stdout.strip() == plain("version").stdout.split()[1]


@pytest.mark.parametrize("before", [True, False])
def test_the_settings_file_of_the_server_is_named_before_or_after_the_verb(
    tmp_path: Path, before: bool
) -> None:
    settings = tmp_path / "paddock.toml"
    settings.write_text("[server]\nbogus = 1\n")
    config = ("--config", str(settings))
    refused = plain(*(*config, "up") if before else ("up", *config))
    assert refused.returncode == 2
    assert f"{settings}: there is no setting server.bogus" in refused.stderr


def test_a_port_that_is_taken_is_found_out_before_anything_is_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = plain("up", "--data-dir", str(data), "--port", port)
    assert refused.returncode not in (0, 2)
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "fix: is it running already?" in refused.stderr
    assert not data.exists()
