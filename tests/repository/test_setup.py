"""The set-up script: quick when nothing is missing, clear when something is and cannot be had."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.repository.checkout import ROOT

NAMESPACE = ("unshare", "--mount", "--propagation=private")
LOOKED_AT = ("scripts/setup.sh", "pyproject.toml", "uv.lock")


def run(
    *command: str, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def bare_checkout():
    """What the script looks at, where everybody can read it, without anything installed."""
    with tempfile.TemporaryDirectory() as directory:
        checkout = Path(directory)
        checkout.chmod(0o755)
        (checkout / "scripts").mkdir(mode=0o755)
        for name in LOOKED_AT:
            shutil.copy(ROOT / name, checkout / name)
        yield checkout


@pytest.fixture
def run_as_nobody(bare_checkout, need):
    """Runs the script as somebody without rights, on a machine that lacks some programs."""
    if run(*NAMESPACE, "true").returncode != 0:
        need("mount namespaces", "hiding a program from a process takes one")

    def run_hiding(*programs: str) -> subprocess.CompletedProcess[str]:
        paths = [path for name in programs if (path := shutil.which(name))]
        hide = "".join(f"mount --bind /dev/null {path}; " for path in paths)
        drop = "setpriv --reuid=65534 --regid=65534 --clear-groups env -u DOCKER_HOST HOME=/nowhere"
        script = f"{hide} exec {drop} scripts/setup.sh run"
        return run(*NAMESPACE, "sh", "-c", script, cwd=bare_checkout)

    return run_hiding


def test_an_unknown_mode_is_refused():
    done = run("scripts/setup.sh", "everything")
    assert done.returncode == 2
    assert "python | run | test | soak" in done.stderr


def pretend_that_python_is_ready(checkout: Path) -> None:
    files = [checkout / name for name in LOOKED_AT]
    key = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (checkout / ".venv" / ".paddock-setup").write_text(f"{checkout} {key}  -\n")


def test_it_is_silent_when_nothing_is_missing(bare_checkout):
    pretend_that_python_is_ready(bare_checkout)
    programs = bare_checkout / "programs"
    programs.mkdir()
    for name in ("dirname", "cat", "sha256sum"):
        (programs / name).symlink_to(shutil.which(name))
    # Neither Python nor uv nor apt-get could be started.
    done = run(
        "env", f"PATH={programs}", "/bin/sh", "scripts/setup.sh", "python", cwd=bare_checkout
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_root_it_says_exactly_what_root_has_to_run(run_as_nobody):
    done = run_as_nobody("crun", "umoci")
    assert done.returncode == 1
    assert "Missing for 'run': crun umoci" in done.stderr
    assert "scripts/apt-install.sh crun umoci" in done.stderr


def test_elsewhere_than_on_debian_it_names_the_packages(run_as_nobody):
    done = run_as_nobody("crun", "apt-get")
    assert done.returncode == 1
    assert "neither Debian nor Ubuntu" in done.stderr
    assert "crun" in done.stderr.splitlines()[2]


@pytest.fixture
def set_up_for_tests(bare_checkout, tmp_path, need):
    """Runs the script on a machine that has all packages, with another way to get runsc."""
    programs = {"apt-get": "exit 1", "runsc": "exit 1", "sudo": "exit 1"}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    pretend_that_python_is_ready(bare_checkout)
    cache = bare_checkout / "cache"
    path = f"{tmp_path}:{os.environ['PATH']}"

    def set_up(get_runsc: str) -> subprocess.CompletedProcess[str]:
        script = bare_checkout / "scripts" / "get-runsc.sh"
        script.write_text(f"#!/bin/sh\n{get_runsc}\n")
        script.chmod(0o755)
        env = {**os.environ, "PATH": path, "PADDOCK_TEST_CACHE": str(cache)}
        done = run("scripts/setup.sh", "test", cwd=bare_checkout, env=env)
        if "Missing for" in done.stderr:
            need("system packages", done.stderr.splitlines()[0])
        return done

    return set_up


def test_runsc_is_fetched_once(set_up_for_tests):
    fetch = 'mkdir -p "${1%/*}" && touch "$1" && chmod 755 "$1"'
    first = set_up_for_tests(fetch)
    assert first.returncode == 0
    assert "Fetching runsc" in first.stderr
    second = set_up_for_tests("exit 1")
    assert (second.returncode, second.stderr) == (0, "")


def test_without_runsc_it_goes_on_and_says_why(set_up_for_tests):
    first = set_up_for_tests("echo no network; exit 1")
    assert first.returncode == 0
    assert "Tests that need runsc will not run: no network" in first.stderr
    second = set_up_for_tests("echo asked again; exit 1")
    assert second.returncode == 0
    assert "will not run: no network" in second.stderr
    assert "Fetching" not in second.stderr
