"""`paddock sandbox preflight`: what is missing is said, with 1 in every form of output."""

import json

import pytest


@pytest.mark.proves("I3", "C7")
def test_tools_that_are_there_pass_and_nothing_is_left(cli):
    before = cli.listed()
    done = cli("sandbox", "preflight", "--template", "tiny", "--tool", "sh", "--tool", "/bin/ls")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[0].split() == ["TOOL", "PATH"]
    assert cli.listed() == before


@pytest.mark.proves("I3", "C4")
@pytest.mark.parametrize("form", [(), ("-o", "json")])
def test_one_that_is_missing_is_1_in_every_form(cli, form):
    words = ("--template", "tiny", "--tool", "sh", "--tool", "no-such-tool")
    done = cli("sandbox", "preflight", *words, *form)
    assert done.returncode == 1
    if form:
        said = json.loads(done.stdout)
        assert (said["template"], said["passed"]) == ("tiny", False)
        assert [tool["found"] for tool in said["tools"]] == [True, False]
    else:
        assert "no-such-tool  missing" in done.stdout.decode()


def test_a_snapshot_is_looked_at_as_it_is(cli):
    kept = cli.run("--keep", "--", "sh", "-c", "echo '#!/bin/sh' > tool; chmod +x tool; pwd")
    place = kept.stdout.decode().strip()
    taken = cli("sandbox", "snapshot", "create", kept.stderr.decode().split()[-1])
    snapshot = taken.stdout.decode().strip()
    tools = ("--tool", f"{place}/tool", "--tool", f"{place}/other")
    done = cli("sandbox", "preflight", "--snapshot", snapshot, *tools, "-o", "json")
    assert done.returncode == 1, done.stderr
    assert [tool["found"] for tool in json.loads(done.stdout)["tools"]] == [True, False]
    assert cli("sandbox", "snapshot", "rm", snapshot).returncode == 0


def test_what_cannot_be_made_is_an_error_in_the_one_envelope(cli):
    done = cli("sandbox", "preflight", "--template", "no-such", "-o", "json")
    assert done.returncode == 1
    assert json.loads(done.stderr.splitlines()[-1])["error"]["remediation"]
