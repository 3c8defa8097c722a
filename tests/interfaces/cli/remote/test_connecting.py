"""`paddock connect e2b`: what it prints is what the SDK takes."""

import json
import os
import subprocess
import sys

import pytest

from tests.interfaces.cli.conftest import clean_environment
from tests.interfaces.cli.remote.conftest import Cli

pytestmark = [pytest.mark.timeout(60)]
SCRIPT = "from e2b import Sandbox; print(len(Sandbox.list().next_items()))"


def test_a_shell_that_evaluates_it_has_the_sdk_here(cli):
    lines = cli.text("connect", "e2b")
    assert f"export E2B_API_URL={cli.url}\n" in lines
    assert f"export E2B_SANDBOX_URL={cli.url}\n" in lines
    assert f"export E2B_VOLUME_API_URL={cli.url}\n" in lines
    assert cli.token not in lines
    done = subprocess.run(
        ["sh", "-c", f'eval "$LINES_OF_IT"; exec "{sys.executable}" -c "$SCRIPT"'],
        env={**clean_environment(), "LINES_OF_IT": lines, "SCRIPT": SCRIPT, "HOME": os.devnull},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.strip().isdigit()


def test_an_admins_token_is_never_printed_but_one_made_for_it(cli):
    done = cli("connect", "e2b", "-o", "json")
    key = json.loads(done.stdout)["E2B_API_KEY"]
    made = [each for each in cli.answer("token", "list")["tokens"] if key.startswith(each["id"])]
    assert [(each["name"], each["role"]) for each in made] == [("e2b", "member")]
    assert f"paddock token revoke {made[0]['id']}" in done.stderr.decode()
    member = Cli(cli.url, key)
    assert member.answer("connect", "e2b")["E2B_API_KEY"] == key


def test_a_token_of_its_own_can_be_made_for_it(cli):
    found = cli.answer("connect", "e2b", "--token", "for e2b")
    assert found["E2B_API_KEY"] not in ("", cli.token)
    tokens = cli.answer("token", "list")["tokens"]
    assert [each["role"] for each in tokens if each["name"] == "for e2b"] == ["member"]


def test_without_a_server_nothing_is_printed(cli):
    done = subprocess.run(
        [sys.executable, "-m", "paddock", "connect", "e2b"],
        env=clean_environment(PADDOCK_URL="http://127.0.0.1:9", PADDOCK_TOKEN=cli.token),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == b""
    assert b"fix:" in done.stderr
