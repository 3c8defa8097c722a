"""`paddock person`, `login` and `session`, as a program against a live control plane."""

import json
import urllib.request

import pytest

from tests.interfaces.cli.remote.conftest import Cli


def sign_in(cli, link):
    """As a browser would: the cookie."""
    body = json.dumps({"link": link.partition("#")[2]}).encode()
    request = urllib.request.Request(
        f"{cli.url}/v1/session", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.headers["set-cookie"].partition(";")[0]


@pytest.mark.proves("U4")
def test_somebody_is_let_in_signs_in_and_leaves(cli):
    invitation = cli.text("person", "add", "Grace", "--email", "grace@example.org").strip()
    assert invitation.startswith(f"{cli.url}/signin#lnk_")
    sign_in(cli, invitation)
    listed = cli.text("person", "list")
    assert "Grace" in listed
    assert "grace@example.org" in listed
    key = cli.text("token", "create", "laptop", "--person", "grace@example.org").strip()
    graces = Cli(cli.url, key)
    sign_in(cli, graces.text("login", "--print").strip())
    sessions = graces.answer("session", "list")["sessions"]
    assert len(sessions) == 2
    assert "ended" in graces.text("session", "end", sessions[0]["id"])
    changed = cli.text("person", "change", "grace@example.org", "--role", "viewer")
    assert "Grace (viewer)" in changed
    assert graces("create", "--template", "plain").returncode == 1
    assert "Grace (usr_" in cli.text("audit")
    assert "removed" in cli.text("person", "rm", "grace@example.org", "--forget")
    refused = graces("ls")
    assert refused.returncode == 1
    assert b"was revoked" in refused.stderr


def test_a_token_that_is_nobodys_signs_nobody_in(cli):
    refused = cli("login", "--print")
    assert refused.returncode == 1
    assert b"--person" in refused.stderr
