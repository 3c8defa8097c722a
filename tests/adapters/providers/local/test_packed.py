"""The door of a packed guest: what a sandbox may put there, and where the host never goes."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.adapters.providers.local import door, packed
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.errors import Broken, InvalidRequest, Unavailable
from paddock.domain.ids import new_ulid
from paddock.domain.sandbox import Resources
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.guest_client import Guest
from paddock.ports.provider import Endpoint, Ref, SandboxSpec
from paddock.testing.conformance import reach
from tests.adapters.providers.local.conftest import Installation
from tests.adapters.providers.local.traces import look
from tests.engines import REPOSITORY, base_root, open_local

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """One whose path is longer than a socket's may be."""
    made = tmp_path / ("x" * 120) / "volume"
    (made / "door").mkdir(parents=True)
    (made / "door" / "token").write_text("secret")
    return made


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "a.sock"


def _listen(directory: Path, name: str) -> socket.socket:
    """Bound as one inside would: by a path that is short there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    place = os.open(directory, os.O_PATH)
    listener.bind(f"/proc/self/fd/{place}/{name}")
    os.close(place)
    listener.listen()
    return listener


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[socket.socket]:
    """Another service of the host, which nobody shall be led to."""
    with _listen(tmp_path, "docker.sock") as listener:
        yield listener


@pytest.mark.proves("P10")
async def test_the_guests_socket_is_taken_out_of_its_reach(volume: Path, address: Path) -> None:
    inside = os.open(volume / "door", os.O_PATH)
    with _listen(volume / "door", "guest.sock") as guest:
        await door.close_door(volume, address, lambda: True)
        guest.accept()[0].close()  # the look whether somebody listens
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(address))
            guest.accept()[0].close()
    assert not (volume / "door").exists()
    # Whoever still has the directory can make nothing in it, and so fill nothing.
    for make in (os.mkdir, lambda name, dir_fd: os.symlink("/x", name, dir_fd=dir_fd)):
        with pytest.raises(FileNotFoundError):
            make("more", dir_fd=inside)
    os.close(inside)


@pytest.mark.proves("P10", "S6")
async def test_a_link_to_another_socket_is_not_followed(
    volume: Path, address: Path, docker: socket.socket, tmp_path: Path
) -> None:
    (volume / "door" / "guest.sock").symlink_to(tmp_path / "docker.sock")
    with pytest.raises(Broken):
        await door.close_door(volume, address, lambda: True)
    assert not address.exists()
    with pytest.raises(BlockingIOError):
        docker.accept()


@pytest.mark.proves("P10")
@pytest.mark.parametrize("kind", ["file", "directory", "pipe"])
async def test_what_is_no_socket_is_refused(volume: Path, address: Path, kind: str) -> None:
    offered = volume / "door" / "guest.sock"
    make = {"file": offered.touch, "directory": offered.mkdir, "pipe": lambda: os.mkfifo(offered)}
    make[kind]()
    with pytest.raises(Broken):
        await door.close_door(volume, address, lambda: True)
    assert not address.exists()


async def test_a_sandbox_that_puts_more_there_does_not_start(volume: Path, address: Path) -> None:
    (volume / "door" / "filler").write_bytes(b"x")
    with _listen(volume / "door", "guest.sock"), pytest.raises(Broken):
        await door.close_door(volume, address, lambda: True)
    assert not address.exists()


async def test_a_guest_that_ends_is_not_waited_for(volume: Path, address: Path) -> None:
    with pytest.raises(Unavailable, match="ended before"):
        await door.close_door(volume, address, lambda: False)


def test_more_is_allowed_outside_than_was_asked_for() -> None:
    asked = Resources(cpus=1.0, memory_mib=256, pids=64)
    allowed = packed.with_kernel(asked)
    assert allowed.memory_mib > asked.memory_mib
    assert allowed.pids > 3 * asked.pids
    assert allowed.cpus == asked.cpus


@asynccontextmanager
async def _sandbox(**changes: object) -> AsyncIterator[tuple[LocalProvider, Ref]]:
    async with open_local(runtime="runsc") as provider:
        spec = SandboxSpec(template="base", **changes)  # type: ignore[arg-type]
        seen = await provider.create(f"packed-{os.urandom(8).hex()}", spec)
        try:
            yield provider, seen.ref
        finally:
            await provider.destroy(seen.ref)


@pytest.mark.proves("P10")
async def test_nothing_of_the_door_is_left_inside(runsc: str) -> None:
    async with _sandbox() as (provider, ref), Guest(await provider.guest(ref)) as guest:
        for user in ("user", "root"):
            find = "find /run/paddock-door /run/paddock /dev -name 'token*' -o -name '*.sock'"
            assert (await guest.exec(["sh", "-c", find], user=user)).stdout == b""
            made = await guest.exec(["touch", "/run/paddock-door/file"], user=user)
            assert made.exit_code != 0
            linked = ["ln", "-s", "/var/run/docker.sock", "/run/paddock-door/guest.sock"]
            assert (await guest.exec(linked, user=user)).exit_code != 0
        assert (await guest.exec(["echo", "on"])).text == "on\n"


@pytest.mark.proves("K9")
async def test_the_token_is_neither_in_the_environment_nor_on_the_command_line(runsc: str) -> None:
    async with _sandbox() as (provider, ref):
        address = await provider.guest(ref)
        async with Guest(address) as guest:
            told = await guest.exec(["cat", "/proc/1/environ", "/proc/1/cmdline"], user="root")
            assert address.token.encode() not in told.stdout
            names = await guest.exec(["sh", "-c", "tr '\\0' '\\n' </proc/1/environ | cut -d= -f1"])
            assert set(names.text.split()) <= {"PATH", "HOME", "LANG"}


@pytest.mark.slow
async def test_tmp_is_on_the_disk_as_everywhere_else(runsc: str) -> None:
    async with _sandbox() as (provider, ref):
        async with Guest(await provider.guest(ref)) as guest:
            await guest.files.write("/tmp/kept.txt", b"kept")
        await provider.stop(ref)
        await provider.start(ref)
        async with Guest(await provider.guest(ref)) as guest:
            assert await guest.files.read("/tmp/kept.txt") == b"kept"


@pytest.mark.slow
@pytest.mark.proves("P10")
async def test_roots_fork_bomb_leaves_the_sandbox_alive(runsc: str) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    limits = Resources(memory_mib=2048, pids=64)
    async with _sandbox(resources=limits) as (provider, ref):
        async with Guest(await provider.guest(ref)) as guest:
            result = await guest.exec(["python3", "-c", bomb], user="root", timeout=3)
            assert result.exit_code == 124
            assert (await guest.exec(["echo", "alive"], timeout=30)).text == "alive\n"


@pytest.mark.slow
async def test_one_made_ahead_is_not_given_to_who_wants_other_limits(runsc: str) -> None:
    async with _sandbox() as (provider, _):
        await provider.keep_warm("base", 1)
        await provider.warmed()
        small = SandboxSpec(template="base", resources=Resources(memory_mib=300))
        seen = await provider.create(f"small-{os.urandom(8).hex()}", small)
        async with Guest(await provider.guest(seen.ref)) as guest:
            limit = await guest.exec(["cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes"])
            assert int(limit.text) == 300 << 20
        await provider.destroy(seen.ref)


@pytest.mark.slow
async def test_a_way_to_a_port_ends_with_the_process_that_made_it(runsc: str) -> None:
    relays = "grep -l 'class [R]elay' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
    async with _sandbox() as (provider, ref), Guest(await provider.guest(ref)) as guest:
        serve = ["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"]
        await guest.runs.start("server", serve)
        async with open_local(runtime="runsc") as other:
            endpoint = await other.endpoint(ref, 8000)
            assert await _answers(endpoint)
            assert endpoint == await other.endpoint(ref, 8000)
            assert (await guest.exec(["sh", "-c", relays])).text.strip() == "1"
        for _ in range(100):
            if (await guest.exec(["sh", "-c", relays])).text.strip() == "0":
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the relay is still there")
        assert not await _answers(endpoint, tries=1)


@pytest.mark.proves("P10")
async def test_a_way_to_a_port_is_for_nobody_else_on_the_host(runsc: str) -> None:
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    async with _sandbox() as (provider, ref):
        endpoint = await provider.endpoint(ref, 8000)
        assert not endpoint.url
        for user, refused in ((0, False), (65534, True)):
            done = await asyncio.to_thread(
                subprocess.run,
                ["/usr/bin/python3", "-c", connect, endpoint.socket],
                user=user,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ("PermissionError" in done.stderr) == refused, done.stderr
            assert bool(done.returncode) == refused
        assert Path(endpoint.socket).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
async def test_a_way_that_a_killed_process_has_left_goes(runsc: str) -> None:
    async with _sandbox() as (provider, ref):
        endpoint = await provider.endpoint(ref, 8000)
        left = Path(endpoint.socket).with_name("0-8000")
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(left))
        async with open_local(runtime="runsc"):
            assert not left.exists()
            assert Path(endpoint.socket).exists()


@pytest.mark.slow
@pytest.mark.proves("L7")
async def test_dying_after_any_step_leaves_nothing_half_made(
    runsc: str, installation: Installation
) -> None:
    base = await base_root()
    async with installation.opened() as provider:
        source = TemplateSource(SourceKind.DIRECTORY, str(base))
        provider.templates.add(Template("base", source, user="user"))
        await provider.prepare("base")
    clean = look(installation.data_dir)
    env = {**os.environ, "PADDOCK_TEST_TEMPLATE": "base", "PADDOCK_TEST_RUNTIME": "runsc"}
    for step in range(100):
        order = (str(installation.data_dir), "create", str(step))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.adapters.providers.local.faulty", *order),
            cwd=REPOSITORY,
            env=env,
        )
        killed = await process.wait() == -signal.SIGKILL
        async with installation.opened() as provider:
            async for seen in provider.find({}):
                async with Guest(await provider.guest(seen.ref)) as guest:
                    assert (await guest.exec(["true"])).exit_code == 0
                await provider.destroy(seen.ref)
        assert look(installation.data_dir) == clean, step
        if not killed:
            break
    assert step >= 8


async def _answers(endpoint: Endpoint, tries: int = 100) -> bool:
    for _ in range(tries):
        with contextlib.suppress(OSError):
            return (await reach.get(endpoint))[0] == 200
        await asyncio.sleep(0.1)
    return False


@pytest.mark.proves("P10")
async def test_a_sandbox_cannot_empty_the_file_that_all_guests_start_from(runsc: str) -> None:
    """gVisor says that it cannot be written to, and has truncated it by then."""
    async with open_local(runtime=runsc) as provider:
        seen = await provider.create(new_ulid(), SandboxSpec(template="base"))
        try:
            archive = Path(packed.archive(provider._parts.storage.pool / "host"))
            before = archive.read_bytes()
            async with Guest(await provider.guest(seen.ref)) as guest:
                tried = await guest.exec(["sh", "-c", ": > /dev/.paddock-guest.zip"], user="root")
            assert tried.exit_code != 0
            assert archive.read_bytes() == before
        finally:
            await provider.destroy(seen.ref)


def test_a_python_is_looked_for_in_the_image_and_not_on_the_host(tmp_path: Path) -> None:
    """An image's own links lead through the image, absolute ones too."""
    elsewhere, image = tmp_path / "elsewhere", tmp_path / "image"
    (elsewhere / "bin").mkdir(parents=True)
    (elsewhere / "bin/python3").touch()
    image.mkdir()
    (image / "usr").symlink_to(elsewhere)
    with pytest.raises(InvalidRequest, match="no python3"):
        packed.find_python(image, "of a stranger")
    (image / "usr").unlink()
    (image / "opt/bin").mkdir(parents=True)
    (image / "opt/bin/python3").symlink_to("python3.13")
    (image / "usr").symlink_to("/opt")
    assert packed.find_python(image, "merged") == "/usr/bin/python3"
