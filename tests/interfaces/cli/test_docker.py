"""The same commands on a real Docker engine, and what an unprivileged user has of one."""

import contextlib
import json
import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from paddock.domain.ids import new_ulid
from tests.daemons import CannotStart, stop_watched
from tests.docker_engine import start_docker
from tests.interfaces.cli.test_doctor import as_nobody

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="session")
def engine(share, need) -> Iterator[str]:
    try:
        with share("docker-engine", start_docker, stop_watched) as value:
            yield value["address"]
    except CannotStart as error:
        need("docker", str(error))


@pytest.fixture
def docker(cli, engine) -> Iterator:
    """The command line, with an installation of its own on the engine."""
    with TemporaryDirectory(prefix="pdk-", dir="/tmp") as run_root:
        cli.changes = {
            "PADDOCK_PROVIDER": "docker",
            "PADDOCK_DOCKER__HOST": engine,
            "PADDOCK_DOCKER__INSTALLATION": f"cli-{new_ulid()}",
            "PADDOCK_DOCKER__RUN_ROOT": run_root,
        }
        yield cli
        for sandbox in cli.answer("sandbox", "list")["sandboxes"]:
            cli("sandbox", "rm", sandbox["ref"])
    _forget_images(engine)


def _forget_images(host: str) -> None:
    """Those that were imported here; the other tests mark theirs with `test-`."""
    command = ["docker", "--host", host, "images", "paddock/tiny", "--format", "{{.Tag}}"]
    tags = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    for tag in (tag for tag in tags if not tag.startswith("test-")):
        remove = ["docker", "--host", host, "rmi", f"paddock/tiny:{tag}"]
        subprocess.run(remove, capture_output=True, check=False)


@pytest.mark.proves("L14", "P6")
def test_a_disposable_sandbox_on_an_engine_behaves_the_same(docker):
    done = docker.run("--", "sh", "-c", "id -un; cat; echo err >&2; exit 7", stdin=b"\0\xff")
    assert (done.returncode, done.stdout) == (7, b"user\n\0\xff")
    assert done.stderr.endswith(b"err\n")
    assert docker.answer("sandbox", "list") == {"sandboxes": []}


@pytest.mark.proves("C1", "P6")
def test_a_sandbox_on_an_engine_is_listed_used_and_removed(docker):
    assert docker.run("--keep", "--", "true").returncode == 0
    (seen,) = docker.answer("sandbox", "list")["sandboxes"]
    assert seen["ref"].startswith("docker/")
    assert docker("sandbox", "exec", seen["ref"], "--", "echo", "hi").stdout == b"hi\n"
    assert docker("sandbox", "rm", seen["ref"]).returncode == 0


def test_doctor_tells_of_the_engine_and_how_the_guest_gets_in(docker):
    report = json.loads(docker("doctor", "--json").stdout)
    section = next(each for each in report["sections"] if each["provider"] == "docker")
    found = {finding["name"]: finding["found"] for finding in section["findings"]}
    assert section["needed"]
    assert section["usable"]
    assert found["engine"].startswith("Docker ")
    assert found["guest"].startswith(("joined", "packed"))


@pytest.fixture
def open_socket(engine) -> Iterator[str]:
    """A way to the engine that every user may take."""
    if not engine.startswith("unix://"):
        yield engine
        return
    with TemporaryDirectory(dir="/tmp") as name, socket.socket(socket.AF_UNIX) as listener:
        directory = Path(name)
        directory.chmod(0o755)
        listener.bind(str(directory / "s"))
        (directory / "s").chmod(0o666)
        listener.listen()
        threading.Thread(target=_relay_all, args=(listener, engine), daemon=True).start()
        yield f"unix://{directory}/s"
        listener.shutdown(socket.SHUT_RDWR)


def _relay_all(listener: socket.socket, engine: str) -> None:
    while True:
        try:
            here, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_relay, args=(here, engine), daemon=True).start()


def _relay(here: socket.socket, engine: str) -> None:
    with here, socket.socket(socket.AF_UNIX) as there, contextlib.suppress(OSError):
        there.connect(engine.removeprefix("unix://"))
        other = {here: there, there: here}
        while True:
            for ready in select.select([here, there], [], [])[0]:
                if not (data := ready.recv(65536)):
                    return
                other[ready].sendall(data)


@pytest.mark.proves("I3")
def test_an_unprivileged_user_gets_the_engine_by_itself(need, open_socket):
    done = as_nobody(need, "doctor", engine=open_socket)
    assert "docker: usable, used" in done.stdout, done.stdout
    assert "local: not usable\n" in done.stdout
    assert "packed" in done.stdout
    assert done.returncode == 0
