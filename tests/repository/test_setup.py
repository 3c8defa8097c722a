"""The set-up script: quick when nothing is missing, clear when something is and cannot be had."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.repository.checkout import ROOT

NAMESPACE = ("unshare", "--mount", "--propagation=private")
LOOKED_AT = ("scripts/setup.sh", "pyproject.toml", "uv.lock")


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
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
    assert "python | run | test" in done.stderr


def test_it_is_quick_and_silent_when_nothing_is_missing(bare_checkout):
    files = [bare_checkout / name for name in LOOKED_AT]
    key = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    (bare_checkout / ".venv" / "bin").mkdir(parents=True)
    (bare_checkout / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (bare_checkout / ".venv" / ".paddock-setup").write_text(f"{bare_checkout} {key}  -\n")
    taken = []
    for _ in range(3):
        begun = time.monotonic()
        done = run("scripts/setup.sh", "python", cwd=bare_checkout)
        taken.append(time.monotonic() - begun)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert min(taken) < 0.3


def test_without_root_it_says_exactly_what_root_has_to_run(run_as_nobody):
    done = run_as_nobody("crun", "umoci")
    assert done.returncode == 1
    assert "Missing for 'run': crun umoci" in done.stderr
    assert "apt-get install -y --no-install-recommends crun umoci" in done.stderr


def test_elsewhere_than_on_debian_it_names_the_packages(run_as_nobody):
    done = run_as_nobody("crun", "apt-get")
    assert done.returncode == 1
    assert "neither Debian nor Ubuntu" in done.stderr
    assert "crun" in done.stderr.splitlines()[2]
