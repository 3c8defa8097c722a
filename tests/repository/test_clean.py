"""`make clean` removes what was built, and nothing that is only mounted there."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repository.checkout import ROOT

NAMESPACE = ("unshare", "--mount", "--propagation=private")


def run(script: str, cwd: Path, *prefix: str) -> subprocess.CompletedProcess[str]:
    command = [*prefix, "sh", "-c", script]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    made = tmp_path / "a checkout"
    for directory in ("build/data/pool", "scripts", "tests", "bench", "src/paddock/__pycache__"):
        (made / directory).mkdir(parents=True)
    (made / "build" / "built").touch()
    (made / "src" / "paddock" / "__pycache__" / "module.pyc").touch()
    (made / ".venv").mkdir()
    shutil.copy(ROOT / "scripts" / "clean.sh", made / "scripts")
    return made


def test_it_removes_what_was_built(checkout: Path) -> None:
    done = run("scripts/clean.sh", checkout)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    left = {str(path.relative_to(checkout)) for path in checkout.rglob("*")}
    scripts = {"scripts", "scripts/clean.sh"}
    assert left == scripts | {"tests", "bench", "src", "src/paddock", ".venv"}


@pytest.mark.parametrize("mount", ["mount -t tmpfs none", "mount --bind tests"])
def test_a_mount_below_it_survives_and_is_named(checkout: Path, need, mount: str) -> None:
    if run("true", checkout, *NAMESPACE).returncode != 0:
        need("mount namespaces", "the test mounts something")
    script = f"{mount} build/data/pool && touch build/data/pool/kept && scripts/clean.sh"
    done = run(f"{script}; echo $?; ls build/data/pool", checkout, *NAMESPACE)
    assert done.stdout == "1\nkept\n"
    assert f"umount {checkout}/build/data/pool".replace(" checkout", r"\040checkout") in done.stderr
    assert (checkout / "build" / "built").exists()
