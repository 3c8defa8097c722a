"""E2B's JavaScript SDK as npm has it, in the build directory, by the lock file beside this."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import Need
from tests.harness.disk import CACHE

SOURCES = Path(__file__).with_name("js")
_LOCK_FILE = (SOURCES / "package-lock.json").read_bytes()
_PLACE = CACHE / f"e2b-js-{hashlib.sha256(_LOCK_FILE).hexdigest()[:12]}"


def installed(need: Need) -> Path:
    """Where the programs and what they import are."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            need(program, "not installed")
    _PLACE.mkdir(parents=True, exist_ok=True)
    with (_PLACE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install()
    return _PLACE


def _install() -> None:
    wanted = hashlib.sha256(_LOCK_FILE).hexdigest()
    stamp = _PLACE / ".installed"
    for source in SOURCES.iterdir():
        shutil.copy(source, _PLACE)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=_PLACE, capture_output=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr.decode()
    stamp.write_text(wanted)


def node(place: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """Run to its end, with nothing of E2B's from this process's environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    return subprocess.run(
        ["node", *words],
        cwd=place,
        env={**kept, **variables},
        capture_output=True,
        timeout=110,
        check=False,
    )
