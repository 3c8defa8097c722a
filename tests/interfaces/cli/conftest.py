"""The real `paddock` as a program, on an installation of its own with a template called `tiny`."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.providers.local.layout import Layout
from paddock.domain.ids import new_ulid
from tests.adapters.providers.local import tiny
from tests.harness import disk

PADDOCK = (sys.executable, "-m", "paddock")
RUN_ROOT = Path("/run/paddock-cli-tests")


def clean_environment(**changes: str) -> dict[str, str]:
    """Ours without any setting of Paddock's, so that a test sees what it sets itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    return {**kept, **changes}


_started: list[subprocess.Popen[bytes]] = []


def started(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Register a program that ends with the test, also when the test fails."""
    _started.append(process)
    return process


@pytest.fixture(autouse=True)
def _ends_programs() -> Iterator[None]:
    yield
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@dataclass
class Cli:
    """Calls the program. What it makes carries this object's label."""

    data: Path
    changes: dict[str, str] = field(default_factory=dict)
    label: str = field(default_factory=lambda: f"test={new_ulid()}")
    last: str = ""
    """The outcome of the last call; pytest prints it with a failure."""

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "PADDOCK_LOCAL__DATA_DIR": str(self.data),
            "PADDOCK_LOCAL__RUN_ROOT": str(RUN_ROOT),
        }
        return clean_environment(**{**own, **self.changes})

    def __call__(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [*PADDOCK, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=240,
        )
        self.last = f"exit {done.returncode}, stderr {done.stderr[-2000:]!r}"
        return done

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """`paddock sandbox run` in a sandbox of `tiny`."""
        return self(*self.run_arguments(*arguments), stdin=stdin)

    def run_arguments(self, *arguments: str) -> list[str]:
        return ["sandbox", "run", "--template", "tiny", "--label", self.label, *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """In a session of its own, as a terminal's foreground job would be."""
        pipe = subprocess.PIPE
        return started(
            subprocess.Popen(
                [*PADDOCK, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        )

    def answer(self, *arguments: str) -> Any:
        """The JSON of a command that has to succeed."""
        done = self(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def left(self) -> list[str]:
        """The sandboxes of this test that are still there."""
        return self.listed("--label", self.label)

    def listed(self, *options: str) -> list[str]:
        found = self.answer("sandbox", "list", "--provider", "local", *options)
        return [sandbox["ref"] for sandbox in found["sandboxes"]]


def _install() -> str:
    data = disk.new_directory()
    root = tiny.build(data / "root")
    cli = Cli(data / "data")
    for arguments in (("add", "tiny", "--from-dir", str(root)), ("build", "tiny")):
        done = cli("template", *arguments)
        assert done.returncode == 0, done.stderr.decode()
    return str(data)


def _uninstall(path: str) -> None:
    data = Path(path) / "data"
    cli = Cli(data)
    left = cli.listed()
    if left:
        cli("sandbox", "rm", *left)
    disk.remove(Path(path))
    shutil.rmtree(Layout.of(data, RUN_ROOT).run, ignore_errors=True)
    with contextlib.suppress(OSError):
        RUN_ROOT.rmdir()
    assert not left, "sandboxes were left behind"


@pytest.fixture(scope="session")
def installation(share, need) -> Iterator[Path]:
    if os.geteuid() != 0:
        need("root", "the local provider makes namespaces and mounts")
    if not Path(tiny.BUSYBOX).exists():
        need("busybox", "the template is made of it")
    with share("cli", _install, _uninstall) as path:
        yield Path(path) / "data"


@pytest.fixture
def cli(installation: Path) -> Iterator[Cli]:
    made = Cli(installation)
    yield made
    made.changes = {}
    for ref in made.left():
        made("sandbox", "rm", ref)
