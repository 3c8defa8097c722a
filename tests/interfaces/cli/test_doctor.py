"""`paddock doctor`: what it finds, what it advises, and what its exit code means."""

import json
import os
import subprocess
import sys

import pytest

from paddock.adapters.providers.local.storage.pool import image_of
from paddock.interfaces.cli.app import run
from paddock.interfaces.cli.toolbox import Toolbox, Verdict
from tests.interfaces.cli.conftest import PADDOCK, clean_environment

NOBODY = 65534
USERS_PATH = "/usr/local/bin:/usr/bin:/bin"
"""What a login gives to a user who is not root."""


@pytest.mark.proves("I3")
def test_a_host_that_can_run_sandboxes_is_reported_with_0(cli):
    done = cli("doctor", "--provider", "local")
    text = done.stdout.decode()
    assert done.returncode == 0, text
    assert "local: usable, used" in text
    assert "sandboxes can run here" in text
    for name in ("kernel", "runtime", "cgroups", "user namespaces", "storage", "disk", "engine"):
        assert f"  {name}  " in text


@pytest.mark.proves("C4", "I3")
def test_json_has_the_same_content_and_exit_code(cli):
    text, as_json = cli("doctor"), cli("doctor", "--json")
    report = json.loads(as_json.stdout)
    assert as_json.returncode == text.returncode == 0
    assert report["usable"] is True
    assert [section["provider"] for section in report["sections"]] == ["local", "docker"]
    for section in report["sections"]:
        for finding in section["findings"]:
            assert set(finding) == {"name", "status", "found", "fix"}
            assert finding["status"] == "ok" or finding["fix"], finding
            assert finding["name"].encode() in text.stdout


@pytest.mark.proves("I3")
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_something_that_is_needed_and_missing_ends_with_1(cli, form):
    cli.changes = {"PADDOCK_LOCAL__INIT": "/no/such/init"}
    done = cli("doctor", "--provider", "local", *form)
    assert done.returncode == 1
    assert b"/no/such/init" in done.stdout
    assert b"set local.init to a static init" in done.stdout


def test_what_only_another_provider_lacks_does_not_matter(cli):
    cli.changes = {"PADDOCK_DOCKER__HOST": "unix:///no/such/socket"}
    done = cli("doctor")
    assert done.returncode == 0
    assert b"no Docker engine answers at unix:///no/such/socket" in done.stdout
    assert cli("doctor", "--provider", "docker").returncode == 1


@pytest.mark.proves("I3")
def test_a_provider_that_does_not_open_is_missing_something(cli, tmp_path):
    image_of(tmp_path).touch()
    cli.changes = {"PADDOCK_LOCAL__DATA_DIR": str(tmp_path), "PADDOCK_LOCAL__STORAGE": "copy"}
    done = cli("doctor")
    assert done.returncode == 1
    assert b"missing   opening" in done.stdout
    assert b"the driver 'copy' does not read" in done.stdout
    assert b"fix: use the driver 'auto' or 'btrfs'" in done.stdout


def as_nobody(
    need, *arguments: str, engine: str = "unix:///no/such/socket"
) -> subprocess.CompletedProcess[str]:
    """The program as a user without any rights; without an engine, unless one is named."""
    if os.geteuid() != 0:
        need("root", "only root can become nobody")
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    environment = clean_environment(PADDOCK_DOCKER__HOST=engine, USER="nobody")
    able = subprocess.run([*command, sys.executable, "-c", ""], check=False, capture_output=True)
    if able.returncode:
        need("a Python that other users may run", f"{sys.executable} is closed to them")
    return subprocess.run(
        [*command, *PADDOCK, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.proves("I3")
def test_an_unprivileged_user_without_an_engine_is_told_exactly_what_to_do(need):
    done = as_nobody(need, "doctor")
    assert done.returncode == 1
    assert f"missing   privileges          uid {NOBODY}" in done.stdout
    advice = done.stdout[done.stdout.index("sandboxes cannot run here") :]
    assert "one of these is enough:" in advice
    assert "local: run as root (sudo)" in advice
    assert "docker: start it (`systemctl start docker`" in advice


def test_tools_that_only_roots_path_has_are_found_for_other_users_too(cli):
    cli.changes = {"PATH": USERS_PATH}
    done = cli("doctor", "--json")
    found = {
        finding["name"]: finding["status"]
        for section in json.loads(done.stdout)["sections"]
        for finding in section["findings"]
    }
    assert (found["storage tools"], found["network tools"]) == ("ok", "ok")


def test_an_unprivileged_user_gets_the_same_advice_when_running_something(need):
    done = as_nobody(need, "sandbox", "run", "--json", "--", "true")
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"]) == (1, "provider_unavailable")
    assert "no provider works here: local: privileges (uid 65534); docker: " in error["message"]
    assert "run as root (sudo)" in error["remediation"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_conformance_suite_runs_against_a_real_provider_and_failures_end_with_1(cli):
    """With a template that lacks Python: what needs it fails, and everything else holds."""
    asked = ("doctor", "--conformance", "local", "--template", "tiny", "--image", "oci:/nowhere")
    done = cli(*asked, "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["conforms"] is False
    assert all(len(report["checks"]) == check["total"] for check in report["checks"])
    holding = [check["name"] for check in report["checks"] if not check["fault"]]
    assert "a_command_ends_with_its_own_exit_code" in holding
    failing = [check["fault"] for check in report["checks"] if check["fault"]]
    assert all("python3" in fault or "image" in fault for fault in failing), failing


GOOD = Verdict("a", "It works.", 0.12, total=2)
BAD = Verdict("b", "It ends.", 61.0, total=2, fault="Broken: it\ndid not")


def conformance(*verdicts: Verdict, options: tuple[str, ...] = ()) -> int:
    """The command in this process, with a suite that ends like this."""

    async def conform(_provider, _terms, *, hear, progress):
        for verdict in verdicts:
            hear(verdict)

    async def unused(*_):
        raise AssertionError("nobody asked")

    toolbox = Toolbox(unused, unused, conform, unused, unused, unused)
    return run(lambda *_: toolbox, ["doctor", "--conformance", "mine", *options])


def test_verdicts_are_printed_one_by_one_with_a_summary(capsys):
    assert conformance(GOOD, BAD) == 1
    assert capsys.readouterr().out.splitlines() == [
        "1/2 ok        0.1 s  It works",
        "2/2 FAILED   61.0 s  It ends",
        "                     Broken: it",
        "                     did not",
        "1 of 2 checks hold for mine",
    ]


@pytest.mark.parametrize(
    ("verdicts", "code", "conforms"),
    [((GOOD, GOOD), 0, True), ((GOOD, BAD), 1, False), ((), 1, True)],
    ids=["good", "bad", "none"],
)
def test_verdicts_decide_the_exit_code_and_are_there_as_json(capsys, verdicts, code, conforms):
    assert conformance(*verdicts, options=("--json",)) == code
    said = json.loads(capsys.readouterr().out)
    assert (said["conforms"], said["provider"]) == (conforms, "mine")
    assert [check["fault"] for check in said["checks"]] == [each.fault for each in verdicts]
