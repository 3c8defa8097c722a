"""How a guest gets going: packed, on old Pythons, and without what it must not need."""

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import cache
from pathlib import Path

import h11
import pytest

from paddock.domain.errors import Forbidden, Unavailable
from paddock.domain.guest import GuestAddress
from paddock.guest import pack
from paddock.guest_client import Guest
from tests.conftest import Need
from tests.guest.conftest import StartPacked

pytestmark = pytest.mark.timeout(60)

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def _start(
    python: str, archive: Path, where: Path, user: int | None = None
) -> tuple[subprocess.Popen[bytes], float]:
    """The guest and how long it took until it answered."""
    path = where / "s"
    path.unlink(missing_ok=True)
    command = [
        python,
        "-I",
        "-S",
        str(archive),
        "--socket",
        str(path),
        "--state-dir",
        str(where / "state"),
    ]
    began = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, user=user)
    while time.perf_counter() - began < 10:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
            except OSError:
                time.sleep(0.0005)
                continue
            client.sendall(b"GET /health HTTP/1.1\r\nhost: g\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 204")
            return process, time.perf_counter() - began
    process.kill()
    raise AssertionError((process.communicate()[1] or b"").decode())


def _end(process: subprocess.Popen[bytes]) -> str:
    process.terminate()
    _, said = process.communicate(timeout=10)
    return said.decode()


@cache
def _pythons() -> dict[str, str]:
    """Interpreters of this machine that really start, by version."""
    found = {}
    for version in PYTHONS:
        managed = Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python")
        for path in (*map(str, managed), shutil.which(f"python{version}")):
            if (
                path
                and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
                == 0
            ):
                found[version] = path
                break
    return found


@pytest.mark.parametrize("version", PYTHONS)
async def test_the_packed_guest_runs_on_every_python_it_is_promised_for(
    version: str, tmp_path: Path, need: Need
) -> None:
    python = _pythons().get(version)
    if python is None:
        need(f"python{version}", "not installed")
    archive = Path(pack.build(str(tmp_path / "guest.zip"), compiled=False))
    process, _ = _start(python, archive, tmp_path)
    try:
        async with Guest(GuestAddress(socket=str(tmp_path / "s"))) as guest:
            assert (await guest.exec(["echo", "hi"])).text == "hi\n"
            await guest.files.write(str(tmp_path / "file"), b"data")
            assert [e.name for e in await guest.files.list(str(tmp_path)) if e.name == "file"]
            await guest.runs.start("r", ["sh", "-c", "echo run"])
            assert len([event async for event in guest.runs.tail("r")]) == 2
            assert (
                len([event async for event in guest.start(["echo", "x"], terminal=(80, 24))]) == 3
            )
            await guest.processes.put("p", ["sleep", "60"])
            assert (await guest.processes.start("p")).pid
            result = await guest.exec(["sh", "-c", "sleep 60 & sleep 60"], timeout=0.2)
            assert result.exit_code == 124
            await guest.ports()
            await guest.usage()
    finally:
        said = await asyncio.to_thread(_end, process)
    assert said == ""


async def test_a_guest_that_is_not_root_runs_commands_as_itself(tmp_path: Path, need: Need) -> None:
    """Some vendors' containers have no root; what cannot be is refused, the rest works."""
    if os.geteuid() != 0:
        need("root", "to become somebody else")
    where = Path(tempfile.mkdtemp(prefix="paddock-guest-", dir="/var/tmp"))
    try:
        archive = Path(pack.build(str(where / "guest.zip")))
        os.chown(where, 65534, 65534)
        process, _ = _start("/usr/bin/python3", archive, where, user=65534)
        async with Guest(GuestAddress(socket=str(where / "s"))) as guest:
            assert (await guest.exec(["id", "-un"], cwd="/")).text == "nobody\n"
            assert (await guest.usage()).default_user_missing
            with pytest.raises(Forbidden, match="cannot become root"):
                await guest.exec(["id"], user="root", cwd="/")
            await guest.files.write(str(where / "f"), b"mine")
            assert await guest.files.read(str(where / "f")) == b"mine"
            result = await guest.exec(
                ["sh", "-c", "setsid sleep 60 & sleep 60"], timeout=0.2, cwd="/"
            )
            assert result.exit_code == 124
            await guest.runs.start("r", ["echo", "x"], cwd="/")
            assert len([event async for event in guest.runs.tail("r")]) == 2
        said = await asyncio.to_thread(_end, process)
        assert said == ""
    finally:
        shutil.rmtree(where)


def test_the_zip_can_be_built_inside_an_image_with_its_own_byte_code(tmp_path: Path) -> None:
    here = Path(pack.__file__).parent
    package = Path(h11.__file__).parent
    target = tmp_path / "guest.zip"
    for python in _pythons().values():
        script = str(here / "pack.py")
        subprocess.run(
            [python, "-I", "-S", script, str(target), str(here), str(package)], check=True
        )
        with zipfile.ZipFile(target) as archive:
            names = archive.namelist()
        assert "paddock/guest/main.pyc" in names
        process, _ = _start(python, target, tmp_path)
        assert _end(process) == ""


def test_the_same_sources_give_the_same_zip(tmp_path: Path) -> None:
    one = Path(pack.build(str(tmp_path / "one"))).read_bytes()
    assert Path(pack.build(str(tmp_path / "two"))).read_bytes() == one


def test_another_guest_has_another_name_and_the_old_one_stays(tmp_path: Path) -> None:
    before = Path(pack.ensure(str(tmp_path)))
    assert pack.ensure(str(tmp_path)) == str(before)
    changed = tmp_path / "upgraded" / "paddock"
    shutil.copytree(Path(pack.__file__).parents[1] / "guest", changed / "guest")
    (changed / "__init__.py").touch()
    with (changed / "guest" / "config.py").open("a") as file:
        file.write("NEW = True\n")
    path = f"{changed.parent}:{Path(h11.__file__).parents[1]}"
    after = Path(_ensure_elsewhere(tmp_path, path).communicate(timeout=30)[0])
    assert after.parent == before.parent
    assert after != before
    with zipfile.ZipFile(after) as archive:
        assert b"NEW = True" in archive.read("paddock/guest/config.py")
    assert before.exists()


def test_many_may_build_the_same_zip_at_once(tmp_path: Path) -> None:
    path = f"{Path(pack.__file__).parents[2]}:{Path(h11.__file__).parents[1]}"
    builders = [_ensure_elsewhere(tmp_path, path) for _ in range(6)]
    built = {builder.communicate(timeout=60)[0] for builder in builders}
    assert [str(path) for path in tmp_path.iterdir()] == list(built)
    with zipfile.ZipFile(built.pop()) as archive:
        assert archive.testzip() is None


def _ensure_elsewhere(directory: Path, path: str) -> "subprocess.Popen[str]":
    program = (
        f"import sys; sys.path[:0] = {path!r}.split(':'); "
        f"from paddock.guest import pack; print(pack.ensure({str(directory)!r}), end='')"
    )
    return subprocess.Popen([sys.executable, "-I", "-c", program], stdout=-1, text=True)


@pytest.mark.slow
@pytest.mark.alone
def test_a_packed_guest_answers_soon_after_it_was_started(tmp_path: Path) -> None:
    archive = Path(pack.build(str(tmp_path / "guest.zip")))
    times = []
    for _ in range(20):
        process, took = _start(sys.executable, archive, tmp_path)
        times.append(took)
        process.kill()
        process.communicate()
    plain = [_import_time() for _ in range(10)]
    print(f"start to health: {statistics.median(times) * 1e3:.1f} ms")
    # asyncio and h11 alone are most of it; the guest adds little.
    assert statistics.median(times) < statistics.median(plain) * 1.6


def _import_time() -> float:
    code = "import sys; sys.modules['ssl'] = None; import asyncio"
    began = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    return time.perf_counter() - began


async def test_an_idle_packed_guest_is_small(start_packed: StartPacked) -> None:
    form = await start_packed()
    async with Guest(form.address) as guest:
        await guest.exec(["true"])
    await asyncio.sleep(0.5)
    rollup = Path(f"/proc/{form.host_pid()}/smaps_rollup").read_text().splitlines()
    private = next(int(line.split()[1]) for line in rollup if line.startswith("Pss_Anon"))
    assert private < 12 << 10


def test_a_wrong_command_line_is_explained(tmp_path: Path) -> None:
    archive = pack.build(str(tmp_path / "guest.zip"))
    for arguments, said in (
        ([], "give one of --socket and --listen"),
        (["--what"], "--what is not an option"),
        (["--socket"], "--socket needs a value"),
        (["--listen", "here"], "takes HOST:PORT"),
    ):
        result = subprocess.run(
            [sys.executable, "-I", "-S", archive, *arguments], capture_output=True, check=False
        )
        assert result.returncode != 0
        assert said in result.stderr.decode()


def test_preloading_leaves_nothing_to_import(tmp_path: Path) -> None:
    """A joined guest has another root file system: an import after the join would fail."""
    script = f"""
import asyncio, os, socket, sys, threading
sys.path.insert(0, {str(Path(pack.__file__).parents[2])!r})
from paddock.guest.config import GuestConfig
from paddock.guest.server import preload, serve
preload()
before = set(sys.modules)
class Refuse:
    def find_spec(self, name, path=None, target=None):
        sys.stderr.write("IMPORT " + name + "\\n"); return None
sys.meta_path.insert(0, Refuse())
listener = socket.socket(socket.AF_UNIX); listener.bind({str(tmp_path / "s")!r}); listener.listen()
serve(GuestConfig(state_dir={str(tmp_path / "state")!r}), listener)
assert threading.active_count() == 1
print(sorted(set(sys.modules) - before))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        asyncio.run(_use_everything(GuestAddress(socket=str(tmp_path / "s"))))
        process.terminate()
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
    assert err == ""
    assert out.strip() == "[]"


async def _use_everything(address: GuestAddress) -> None:
    async with Guest(address) as guest:
        while True:
            try:
                await guest.health()
                break
            except Unavailable:
                await asyncio.sleep(0.01)
        await guest.init(env={"A": "ü"})
        assert (await guest.exec(["sh", "-c", "echo $A"])).text == "ü\n"
        await guest.exec(["sleep", "9"], timeout=0.1)
        directory = os.path.dirname(address.socket)
        await guest.files.write(f"{directory}/f", b"x")
        await guest.files.read(f"{directory}/f")
        await guest.files.list(directory)
        await guest.files.move(f"{directory}/f", f"{directory}/g")
        await guest.files.remove(f"{directory}/g")
        watch = guest.files.watch(directory)
        waiting = asyncio.create_task(anext(watch))
        changes = 0
        while not waiting.done():  # changes from before the watch has begun are not seen
            changes += 1
            await guest.files.make_dir(f"{directory}/d{changes}")
            await asyncio.wait([waiting], timeout=0.1)
        await waiting
        await watch.aclose()
        await guest.runs.start("r", ["cat"], stdin=b"in", terminal=None)
        assert [event async for event in guest.runs.tail("r")]
        await guest.runs.start("m", ["sleep", "9"])
        await guest.messages.put("m", "1", {"a": 1}, ttl=60)
        await guest.messages.list("m")
        assert [event async for event in guest.start(["true"], terminal=(80, 24))]
        await guest.processes.put("p", ["sleep", "9"])
        await guest.processes.start("p")
        assert [event async for event in guest.processes.logs("p")] == []
        await guest.ports()
        await guest.usage()
        await guest.shutdown(grace=0.1)
