"""Packages are installed without starting or enabling the services that they bring."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.repository.checkout import ROOT

SCRIPT = ROOT / "scripts" / "apt-install.sh"
POLICY = "usr/sbin/policy-rc.d"
SYSTEM_PRESET = "run/systemd/system-preset/00-paddock.preset"
USER_PRESET = "run/systemd/user-preset/00-paddock.preset"
NO_CLUSTER = "etc/postgresql-common/createcluster.d/paddock.conf"

# Calls the hook as apt does once it holds dpkg's lock, then does what the test wants.
APT_GET = """#!/bin/sh
for argument; do
    case $argument in
        DPkg::Pre-Invoke::=*) sh -c "${argument#*=}" ;;
    esac
done
echo "$@" >"$DPKG_ROOT/arguments"
eval "$DURING"
"""
SYSTEMCTL = """#!/bin/sh
[ -e "$DPKG_ROOT/$2/$3" ]
"""


@dataclass
class Host:
    """A directory that the script takes for the system, with an apt-get and a systemctl."""

    root: Path
    programs: Path

    def start(self, during: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "DPKG_ROOT": str(self.root),
            "DURING": during,
        }
        return subprocess.Popen(
            [SCRIPT, "docker.io", "nginx"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def install(self, during: str) -> tuple[int, str]:
        with self.start(during) as process:
            output, _ = process.communicate(timeout=30)
        return process.returncode, output

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): f"{path.stat().st_mode:o} {path.read_text()}"
            for path in self.root.rglob("*")
            if path.is_file() and path.name != "arguments"
        }


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path / "root", tmp_path / "bin")
    for directory in ("usr/sbin", "run/systemd/system", "is-enabled", "is-active"):
        (made.root / directory).mkdir(parents=True)
    made.programs.mkdir()
    for name, text in (("apt-get", APT_GET), ("systemctl", SYSTEMCTL)):
        (made.programs / name).write_text(text)
        (made.programs / name).chmod(0o755)
    (made.root / "is-enabled" / "cron.service").touch()
    (made.root / "is-active" / "ssh").touch()
    return made


def ask(*arguments: str) -> str:
    """What the policy says, as maintainer scripts ask it."""
    return f'"$DPKG_ROOT/{POLICY}" {" ".join(arguments)}; echo $?; '


def test_a_service_that_comes_with_a_package_is_neither_started_nor_enabled(host: Host) -> None:
    presets = f'cat "$DPKG_ROOT/{SYSTEM_PRESET}" "$DPKG_ROOT/{USER_PRESET}"; '
    code, output = host.install(
        ask("docker.service", "start") + ask("--quiet", "nginx", "'(start)'", "5") + presets
    )
    assert (code, output.split("\n")) == (0, ["101", "101", "disable *", "disable *", ""])
    assert "install -y --no-install-recommends docker.io nginx" in (
        (host.root / "arguments").read_text()
    )


def test_a_service_of_the_host_is_restarted_as_ever(host: Host) -> None:
    _, output = host.install(ask("cron.service", "restart") + ask("--quiet", "ssh", "restart", "5"))
    assert output.split() == ["0", "0"]


def test_a_policy_of_the_host_still_decides_about_its_own_services(host: Host) -> None:
    policy = host.root / POLICY
    policy.write_text('#!/bin/sh\necho asked: "$@"\nexit 104\n')
    policy.chmod(0o755)
    before = host.files()
    _, output = host.install(ask("--quiet", "ssh", "restart") + ask("nginx", "start"))
    assert output.splitlines() == ["asked: --quiet ssh restart", "104", "101"]
    assert host.files() == before


def test_postgresql_gets_no_cluster(host: Host) -> None:
    (host.root / "run/systemd/system").rmdir()
    code, output = host.install(f'cat "$DPKG_ROOT/{NO_CLUSTER}"; ls "$DPKG_ROOT/usr/sbin"')
    assert (code, output) == (0, "create_main_cluster = false\n")


@pytest.mark.parametrize("during", ["exit 0", "exit 100", "kill -TERM $PPID"])
def test_nothing_stays_however_it_ends(host: Host, during: str) -> None:
    before = host.files()
    host.install(during)
    assert host.files() == before


def test_the_next_installation_removes_what_a_killed_one_has_left(host: Host) -> None:
    before = host.files()
    with host.start("echo ready; sleep 60") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGKILL)
    assert host.files() != before
    assert host.install("exit 0")[0] == 0
    assert host.files() == before
