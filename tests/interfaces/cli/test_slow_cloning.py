"""Cloning from a host that is slow or stalls: tried once more, then given up with what is known."""

import random
import re
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from paddock.domain.errors import Unavailable
from paddock.interfaces.cli.cloning import _TOLD_AFTER_S, Repository, cloned
from paddock.interfaces.cli.git import Patience
from tests.interfaces.cli.conftest import PADDOCK, clean_environment
from tests.interfaces.cli.test_cloning import git

FILES, FILE_BYTES = 40, 50_000
PIECE, PAUSE_S = 16_384, 0.02
STALL_AT = 800_000


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Two megabytes that cannot be compressed."""
    place = tmp_path_factory.mktemp("slow")
    git(place, "init", "--quiet", "--initial-branch=main", "project")
    work = place / "project"
    for number in range(FILES):
        (work / f"file-{number}").write_bytes(random.Random(number).randbytes(FILE_BYTES))
    git(work, "add", ".")
    git(work, "commit", "--quiet", "--message", "large")
    return work


class Host:
    """git's own server, which `may_send` so many bytes of each visit's answer before it stalls."""

    def __init__(self, project: Path, may_send: Callable[[int], float]) -> None:
        self.project, self.may_send = project, may_send
        self.visits = 0
        self.is_over = threading.Event()
        self.url = ""

    def serve(self, visitor: socket.socket) -> None:
        self.visits += 1
        left = self.may_send(self.visits)
        ours, theirs = socket.socketpair()
        base = f"--base-path={self.project.parent}"
        daemon = subprocess.Popen(
            ["git", "daemon", "--inetd", "--export-all", base, str(self.project.parent)],
            stdin=theirs,
            stdout=theirs,
        )
        theirs.close()
        asking = threading.Thread(target=self._asked, args=(visitor, ours))
        asking.start()
        try:
            self._answer(ours, visitor, left)
        finally:
            for each in (ours, visitor):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            asking.join()
            daemon.kill()
            daemon.wait()
            ours.close()

    def _asked(self, visitor: socket.socket, ours: socket.socket) -> None:
        with suppress(OSError):
            while piece := visitor.recv(PIECE):
                ours.sendall(piece)
        with suppress(OSError):
            ours.shutdown(socket.SHUT_WR)  # the daemon would wait for a visitor that has left

    def _answer(self, ours: socket.socket, visitor: socket.socket, left: float) -> None:
        with suppress(OSError):
            while piece := ours.recv(PIECE):
                if left < len(piece):
                    self.is_over.wait()
                    return
                left -= len(piece)
                visitor.sendall(piece)
                if left != float("inf"):
                    self.is_over.wait(PAUSE_S)


@contextmanager
def hosted(project: Path, may_send: Callable[[int], float]) -> Iterator[Host]:
    host = Host(project, may_send)

    class Visit(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            host.serve(self.request)

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Listener(("127.0.0.1", 0), Visit) as listener:
        serving = threading.Thread(target=listener.serve_forever, args=(0.05,))
        serving.start()
        host.url = f"git://127.0.0.1:{listener.server_address[1]}/project"
        try:
            yield host
        finally:
            host.is_over.set()
            listener.shutdown()
            serving.join()


def stalls(_visit: int) -> float:
    return STALL_AT


def stalls_at_first(visit: int) -> float:
    return STALL_AT if visit == 1 else float("inf")


@contextmanager
def mute() -> Iterator[str]:
    """A host that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}/x.git"


def remains_of(place: Path) -> list[str]:
    """Programs that were started with this directory for temporary files."""
    marker = f"TMPDIR={place}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text())
    return found


def size_in(text: str, before: str) -> float:
    """MiB of a size that stands after these words."""
    found = re.search(rf"{before}(\d+(?:\.\d+)?) (KiB|MiB)", text)
    assert found, text
    return float(found[1]) / (1024 if found[2] == "KiB" else 1)


def called(place: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """`paddock` on its own: a clone that fails does so before anything else is needed."""
    environment = clean_environment(TMPDIR=str(place), PADDOCK_URL="http://127.0.0.1:1")
    command = [*PADDOCK, *arguments, "--", "true"]
    return subprocess.run(
        command, env=environment, capture_output=True, check=False, timeout=60, input=b""
    )


@pytest.mark.proves("S14", "H9")
@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (("run",), 2),
        (("run",), 4),
        (("sandbox", "run"), 4),
    ],
)
@pytest.mark.slow
def test_a_clone_that_takes_too_long_is_tried_once_more_and_then_told_with_its_size(
    project, tmp_path, command, seconds
):
    with hosted(project, stalls) as host:
        done = called(tmp_path, *command, "--repo", host.url, "--clone-timeout", str(seconds))
        said = done.stderr.decode()
        assert done.returncode == 1, said
        assert host.visits == 2
        assert list(tmp_path.iterdir()) == []
        assert remains_of(tmp_path) == []
    assert f"… cloning {host.url}\n" in said
    assert f"… cloning {host.url} once more, because it was not done within {seconds} s\n" in said
    assert f"{host.url} could not be cloned: it was not done within {seconds} s; " in said
    assert re.search(rf"tried twice, for {seconds}(\.\d)? s and {seconds}(\.\d)? s; ", said)
    if seconds == 4:  # git tells sizes every half second, and a busy machine is late
        assert 0.3 < size_in(said, "; ") <= size_in(said, "estimated at ") < 2.5
    assert f"--clone-timeout {2 * seconds}s" in said


@pytest.mark.slow
@pytest.mark.proves("S14", "H9")
async def test_a_clone_that_stalls_is_broken_off_long_before_its_time(project):
    with hosted(project, stalls) as host, pytest.raises(Unavailable) as failed:
        async with cloned(Repository(host.url, "main", Patience(60, 1.5)), "project"):
            raise AssertionError("it was cloned")
    assert host.visits == 2
    assert f"{host.url} at branch main could not be cloned: nothing came for 1.5 s" in str(
        failed.value
    )
    assert "estimated at" in failed.value.message
    assert failed.value.retryable


@pytest.mark.proves("S14", "H9")
async def test_the_second_attempt_is_as_good_as_the_first(project, capfd):
    with hosted(project, stalls_at_first) as host:
        async with cloned(Repository(host.url, "", Patience(60, 1)), "project") as (copy,):
            found = {path.name: path.stat().st_size for path in copy.source.glob("file-*")}
            assert found == {f"file-{number}": FILE_BYTES for number in range(FILES)}
    assert host.visits == 2
    assert not copy.source.parent.exists()
    assert f"cloning {host.url} once more, because nothing came for 1 s" in capfd.readouterr().err


@pytest.mark.proves("S14", "H9", "K9")
def test_where_git_told_nothing_the_size_is_unknown_and_the_password_is_not_said(tmp_path):
    with mute() as place:
        url = f"http://me:s3cr3t@{place}"
        done = called(tmp_path, "run", "--repo", url, "--clone-timeout", "1.5", "-o", "json")
    said = done.stderr.decode()
    assert done.returncode == 1
    assert "s3cr3t" not in said
    assert said.startswith('{"error": '), "programs read one thing on stderr"
    assert f"http://{place} could not be cloned" in said
    assert "nothing had been received, and its size is unknown" in said
    assert list(tmp_path.iterdir()) == []
    assert remains_of(tmp_path) == []


async def test_progress_is_not_shown_of_what_is_quick(project, capfd):
    said, seconds = "", float("inf")
    while seconds >= _TOLD_AFTER_S:  # a busy machine may make any clone slow
        began = time.monotonic()
        async with cloned(Repository(f"file://{project}"), "project") as (copy,):
            seconds = time.monotonic() - began
            assert (copy.source / "file-0").exists()
        said = capfd.readouterr().err
    assert said == ""


@pytest.mark.proves("S14")
def test_an_interrupt_leaves_nothing_of_git(project, tmp_path):
    environment = clean_environment(TMPDIR=str(tmp_path), PADDOCK_URL="http://127.0.0.1:1")
    with hosted(project, stalls) as host:
        command = [*PADDOCK, "run", "--repo", host.url, "--", "true"]
        running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        assert running.stderr is not None
        assert b"cloning" in running.stderr.readline()
        assert len(remains_of(tmp_path)) > 1
        running.terminate()
        assert running.wait(20) == 143
        running.stderr.close()
        assert remains_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("run",), ("sandbox", "run")])
def test_the_limit_and_its_default_are_in_the_help(command):
    shown = subprocess.run([*PADDOCK, *command, "--help"], capture_output=True, check=True)
    assert re.search(rb"--clone-timeout TIME\s+Most time for cloning.*10m", shown.stdout, re.S)
