"""`paddock connect e2b`: what it prints is what the SDK takes."""

import os
import subprocess
import sys

import pytest

from tests.interfaces.cli.conftest import clean_environment

pytestmark = [pytest.mark.timeout(60)]
SCRIPT = "from e2b import Sandbox; print(len(Sandbox.list().next_items()))"


def test_a_shell_that_evaluates_it_has_the_sdk_here(cli):
    lines = cli.text("connect", "e2b")
    assert f"export E2B_API_URL={cli.url}\n" in lines
    assert f"export E2B_SANDBOX_URL={cli.url}\n" in lines
    assert f"export E2B_VOLUME_API_URL={cli.url}\n" in lines
    assert f"export E2B_API_KEY={cli.token}\n" in lines
    done = subprocess.run(
        ["sh", "-c", f'eval "$LINES_OF_IT"; exec "{sys.executable}" -c "$SCRIPT"'],
        env={**clean_environment(), "LINES_OF_IT": lines, "SCRIPT": SCRIPT, "HOME": os.devnull},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.strip().isdigit()


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
