"""`paddock ssh`: nothing to set up, nothing to type, nothing to believe."""

import json
import os
import stat
import subprocess
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.settings import ServerConfig
from paddock.wiring.ssh import ssh_listening
from tests.harness.ports import free_port
from tests.interfaces.cli.remote.conftest import Cli
from tests.interfaces.client.conftest import serving

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def running():
    with serving() as made:
        config = ServerConfig(ssh_port=free_port(), data_dir=made.plane.place / "data")
        stack = AsyncExitStack()
        made.do(stack.enter_async_context(ssh_listening(config, made.plane.services)))
        yield made
        made.do(stack.aclose())


@pytest.fixture
def cli(running, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Cli(running.url, running.token)


def kept(tmp_path: Path) -> Path:
    return next((tmp_path / "paddock" / "ssh").glob("*/*"))


@pytest.mark.proves("E7", "C1")
def test_it_just_works(cli, box, tmp_path):
    done = cli("ssh", box, "--", "echo", "a  b", "$HOME")
    assert (done.returncode, done.stdout) == (0, b"a  b $HOME\n"), done.stderr
    assert cli("ssh", box, "echo $((6*7)); exit 3").returncode == 3
    done = cli("ssh", box, "--", "wc", "-c", stdin=b"x" * 70_000)
    assert done.stdout.split() == [b"70000"]
    assert done.stderr == b""
    assert stat.S_IMODE((kept(tmp_path) / "id_ed25519").stat().st_mode) == 0o600
    assert len(cli.answer("ssh", box, "--list")["accesses"]) == 1


@pytest.mark.proves("E7")
def test_on_a_terminal_one_gets_a_shell(cli, box, screen):
    shell = screen("ssh", box)
    shell.type("stty -echo; PS1=%; echo $((100+11))\n")
    shell.until("111")
    shell.type("exit 4\n")
    assert shell.process.wait(30) == 4


@pytest.mark.proves("E7")
def test_the_block_serves_other_tools_and_renews_itself(cli, box, tmp_path, running):
    config = tmp_path / "config"
    config.write_text(cli.text("ssh", box, "--config"))
    assert f"Host paddock-{box}" in config.read_text()
    (tmp_path / "file").write_bytes(os.urandom(100_000))
    there = f"paddock-{box}"
    for argv in (
        ["ssh", "-F", str(config), there, "echo in"],
        ["scp", "-F", str(config), str(tmp_path / "file"), f"{there}:/tmp/{box}"],
        ["scp", "-F", str(config), f"{there}:/tmp/{box}", str(tmp_path / "back")],
        ["ssh", "-F", str(config), there, f"rm /tmp/{box}"],
    ):
        done = subprocess.run(
            argv, env=cli.environment, capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()

    first = json.loads((kept(tmp_path) / "access.json").read_text())
    soon = first["expires_at"]

    def expire(tx):
        access = tx.ssh.get(first["id"])
        tx.ssh.replace(replace(access, expires_at=access.created_at + 1))

    running.do(running.plane.services.store.write(expire))
    done = subprocess.run(
        ["ssh", "-F", str(config), there, "echo again"],
        env=cli.environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, b"again\n"), done.stderr
    second = json.loads((kept(tmp_path) / "access.json").read_text())
    assert second["id"] != first["id"]
    assert second["expires_at"] > soon


def test_a_server_with_another_key_is_not_believed(cli, box, tmp_path):
    assert cli("ssh", box, "--", "true").returncode == 0
    hosts = kept(tmp_path) / "known_hosts"
    alias, kind, _ = hosts.read_text().split()
    other = "AAAAC3NzaC1lZDI1NTE5AAAAIE+fEJjhkWEEgS1+MSm2zh07oXHL0375V/SClRcCD8dg"
    hosts.write_text(f"{alias} {kind} {other}\n")
    done = cli("ssh", box, "--", "true")
    assert done.returncode == 255
    assert b"Host key verification failed" in done.stderr


@pytest.mark.proves("E7")
def test_a_token_is_printed_when_asked_for_and_revoked(cli, box):
    token = cli.text("ssh", box, "--token", "--expires", "5m").strip()
    listed = cli.answer("ssh", box, "--list")["accesses"]
    assert [each["proof"] for each in listed] == ["token"]
    assert token.partition(".")[2] not in cli.text("ssh", box, "--list")
    assert cli.text("ssh", box, "--revoke", listed[0]["id"]).strip().endswith("revoked")
    assert "revoked" in cli.text("ssh", box, "--list")
    assert cli("ssh", box, "--", "true").returncode == 0
    assert cli.text("ssh", box, "--revoke", "all").strip() == "1 revoked"
    # What was revoked is not tried again.
    assert cli("ssh", box, "--", "true").returncode == 0


def test_an_unknown_sandbox_is_told_before_anything_is_made(cli, tmp_path):
    done = cli("ssh", "nothing-here", "--", "true")
    assert done.returncode != 0
    assert b"there is no sandbox nothing-here" in done.stderr
    assert not (tmp_path / "paddock").exists()
