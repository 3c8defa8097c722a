"""gVisor for tests comes from Debian or from its source, and nothing is installed for it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.repository.checkout import ROOT

OURS = "http://debian.example/debian/"
RELEASE = '$(. /etc/os-release && echo "${VERSION_CODENAME:-}")'
PROGRAMS = {
    # Knows another vendor's source, Debian's and its updates. Only Debian's has the package.
    "apt-get": f"""#!/bin/sh
for configuration; do
    [ -e "$configuration" ] && break
done
case "$*" in
    indextargets*)
        echo "main {RELEASE} http://another.example/apt/"
        echo "main {RELEASE} {OURS}"
        echo "main {RELEASE}-updates http://updates.example/debian/"
        ;;
    *update)
        cat "$(dirname "$configuration")/sources.list" >>"$LOG"
        grep -q "$WORKING" "$LOG" || {{ echo "E: no such suite"; exit 100; }}
        ;;
    *'download runsc')
        touch runsc_1_amd64.deb
        ;;
esac
""",
    "dpkg-deb": """#!/bin/sh
mkdir -p "$3/usr/bin"
printf '#!/bin/sh\\necho "%s"\\n' "$FLAGS" >"$3/usr/bin/runsc"
chmod 755 "$3/usr/bin/runsc"
""",
    "go": """#!/bin/sh
echo "go $*" >>"$LOG"
[ -n "$GO_WORKS" ] || { echo "go: module lookup disabled" >&2; exit 1; }
mkdir -p "$GOBIN"
printf '#!/bin/sh\\necho "built, with systrap"\\n' >"$GOBIN/runsc"
chmod 755 "$GOBIN/runsc"
""",
}


class Attempt:
    """One call of the script, on a machine that has the programs above."""

    def __init__(self, directory: Path, **changes: str) -> None:
        programs, log = directory / "bin", directory / "log"
        programs.mkdir()
        for name, text in PROGRAMS.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.target = directory / "cache" / "bin" / "runsc"
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LOG": str(log),
            "TMPDIR": str(directory),
            "WORKING": OURS,
            "FLAGS": "-platform: systrap",
            "GO_WORKS": "",
            **changes,
        }
        done = subprocess.run(
            [ROOT / "scripts" / "get-runsc.sh", self.target],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.code, self.output, self.calls = done.returncode, done.stdout, log.read_text()
        self.left = {path.name for path in directory.iterdir()} - {"bin", "log", "cache"}


@pytest.fixture(autouse=True)
def debian(need) -> None:
    if not Path("/etc/os-release").exists():
        need("os-release", "the script asks it for the name of the release")


def test_it_comes_from_the_hosts_own_debian_mirror_and_is_checked_with_debians_keys(tmp_path):
    attempt = Attempt(tmp_path)
    assert (attempt.code, attempt.output) == (0, "")
    signed = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert attempt.calls.splitlines() == [
        f"{signed} http://another.example/apt/ trixie main",
        f"{signed} {OURS} trixie main",
    ]
    done = subprocess.run([attempt.target], capture_output=True, text=True, check=True)
    assert "systrap" in done.stdout
    assert [path.name for path in attempt.target.parent.iterdir()] == ["runsc"]
    assert not attempt.left


@pytest.mark.parametrize("problem", [{"WORKING": "nowhere"}, {"FLAGS": "-platform: ptrace"}])
def test_it_is_built_where_no_mirror_has_a_recent_one(tmp_path, problem):
    attempt = Attempt(tmp_path, GO_WORKS="yes", **problem)
    assert (attempt.code, attempt.output) == (0, "")
    assert attempt.calls.endswith("go install gvisor.dev/gvisor/runsc@latest\n")
    assert "built" in attempt.target.read_text()
    assert not attempt.left


def test_without_any_way_it_says_why(tmp_path):
    attempt = Attempt(tmp_path, WORKING="nowhere")
    assert attempt.code == 1
    assert "go: module lookup disabled" in attempt.output
    assert not attempt.target.exists()
    assert not attempt.left
