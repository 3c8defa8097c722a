"""The real `paddock` as a program, against a live control plane on the simulated provider."""

import fcntl
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.interfaces.cli.conftest import clean_environment, started
from tests.interfaces.client.conftest import Running, serving

PADDOCK = (sys.executable, "-m", "paddock")
DEADLINE_S = 60


@dataclass
class Cli:
    """Calls the program as somebody with a token."""

    url: str
    token: str

    @property
    def environment(self) -> dict[str, str]:
        return clean_environment(PADDOCK_URL=self.url, PADDOCK_TOKEN=self.token)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*PADDOCK, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=DEADLINE_S,
        )

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        streams = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, **more}
        return started(
            subprocess.Popen(
                [*PADDOCK, *arguments], env=self.environment, start_new_session=True, **streams
            )
        )

    def text(self, *arguments: str) -> str:
        """What a command that has to succeed prints."""
        done = self(*arguments)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def answer(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "-o", "json"))

    def names(self) -> set[str]:
        return {each["name"] for each in self.answer("ls")["sandboxes"]}


@dataclass
class Screen:
    """A program on a terminal of its own."""

    process: subprocess.Popen[bytes]
    master: int

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, pattern: str) -> str:
        seen = ""
        while not re.search(pattern, seen):
            piece = os.read(self.master, 65536)
            seen += piece.decode(errors="replace")
        return seen

    def shows(self, text: str, within_s: float = 0.2) -> bool:
        """Whether this appears soon."""
        seen, until = b"", time.monotonic() + within_s
        while text.encode() not in seen and (left := until - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0]:
                seen += os.read(self.master, 65536)
        return text.encode() in seen

    def rest(self) -> str:
        seen = b""
        try:
            while piece := os.read(self.master, 65536):
                seen += piece
        except OSError:
            pass
        return seen.decode(errors="replace")

    def close(self) -> None:
        os.close(self.master)
        self.process.kill()
        self.process.wait(10)


def take_terminal() -> None:
    """As a shell's foreground job has it; runs in the child."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def cli(running: Running) -> Cli:
    return Cli(running.url, running.token)


@pytest.fixture
def box(cli: Cli) -> Iterator[str]:
    name = cli.text("create", "--template", "plain").strip()
    yield name
    cli("rm", "-f", name)


@pytest.fixture
def screen(cli: Cli) -> Iterator[Any]:
    opened = []

    def begin(*arguments: str) -> Screen:
        master, slave = pty.openpty()
        process = cli.start(
            *arguments, stdin=slave, stdout=slave, stderr=slave, preexec_fn=take_terminal
        )
        os.close(slave)
        opened.append(Screen(process, master))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()
