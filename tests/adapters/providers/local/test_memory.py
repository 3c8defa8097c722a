"""Memory on disk with gVisor: what goes on, for whom, and what is refused without a loss."""

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from paddock.adapters.providers.local import door, memory, runtime
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.errors import (
    Broken,
    Conflict,
    InvalidRequest,
    PaddockError,
    Unavailable,
    Unsupported,
)
from paddock.domain.guest import GuestAddress
from paddock.domain.sandbox import Resources
from paddock.domain.snapshot import Snapshot
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.guest import door as inside
from paddock.guest_client import Guest
from paddock.ports.provider import Endpoint, Ref, SandboxSpec
from paddock.testing.conformance import reach
from tests.adapters.providers.local.conftest import Installation
from tests.adapters.providers.local.traces import look
from tests.conftest import Need
from tests.engines import REPOSITORY, base_root, open_local

pytestmark = [pytest.mark.timeout(180)]

COUNT = """
import time
number = 0
while True:
    number += 1
    with open("/home/user/numbers", "a") as file:
        file.write(f"{number}\\n")
    time.sleep(0.02)
"""


@dataclass
class Counting:
    """A sandbox in which a program counts, in memory."""

    provider: LocalProvider
    ref: Ref

    async def address(self) -> GuestAddress:
        return await self.provider.guest(self.ref)

    async def sh(self, command: str) -> str:
        async with Guest(await self.address()) as guest:
            return (await guest.exec(["sh", "-c", command])).text.strip()

    async def numbers(self) -> list[int]:
        return [int(line) for line in (await self.sh("cat numbers")).split()]

    async def remember(self) -> Snapshot:
        key = f"memory-{os.urandom(8).hex()}"
        return await self.provider.snapshot(self.ref, key, memory=True)

    async def assert_goes_on(self) -> None:
        before = len(await self.numbers())
        for _ in range(100):
            numbers = await self.numbers()
            if len(numbers) > before + 1:
                assert numbers == list(range(1, len(numbers) + 1))
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"it stands still at {before}")


async def begin(provider: LocalProvider, spec: SandboxSpec) -> Counting:
    seen = await provider.create(f"counting-{os.urandom(8).hex()}", spec)
    made = Counting(provider, seen.ref)
    async with Guest(await made.address()) as guest:
        await guest.runs.start("count", ["python3", "-c", COUNT])
    while await made.sh("test -s numbers && echo yes") != "yes":
        await asyncio.sleep(0.02)
    return made


async def recall(taken: Snapshot, made: Counting, **changes: object) -> Counting:
    spec = replace(SandboxSpec(snapshot=taken.ref), **changes)  # type: ignore[arg-type]
    seen = await made.provider.create(f"copy-{os.urandom(8).hex()}", spec)
    return Counting(made.provider, seen.ref)


@pytest.fixture
async def counting(recalling_runsc: str) -> AsyncIterator[Counting]:
    """With everything that was made of it gone at the end."""
    async with open_local(runtime=recalling_runsc) as provider:
        mark = os.urandom(8).hex()
        made = await begin(provider, SandboxSpec(template="base", labels={"mark": mark}))
        before = {snapshot.ref async for snapshot in provider.snapshots()}
        try:
            yield made
        finally:
            async for snapshot in provider.snapshots():
                if snapshot.ref not in before and snapshot.source == made.ref.id:
                    await provider.delete_snapshot(snapshot.ref)
            async for seen in provider.find({"mark": mark}):
                await provider.destroy(seen.ref)


def marked(made: Counting) -> dict[str, str]:
    record = made.provider._life.records.read(made.ref.id)
    assert record is not None
    return dict(record.labels)


async def test_each_copy_has_a_guest_with_a_token_of_its_own(counting: Counting) -> None:
    taken = await counting.remember()
    copies = [await recall(taken, counting, labels=marked(counting)) for _ in range(2)]
    boxes = [counting, *copies]
    for box in boxes:
        await box.assert_goes_on()
        assert await box.sh("echo $PADDOCK_SANDBOX_ID") == box.ref.id
    tokens = [(await box.address()).token for box in boxes]
    assert len(set(tokens)) == 3
    for box in boxes:
        for token in tokens:
            address = replace(await box.address(), token=token)
            if address == await box.address():
                continue
            async with Guest(address) as guest:
                with pytest.raises(PaddockError, match="access token"):
                    await guest.usage()


@pytest.mark.slow
async def test_a_copy_keeps_the_runs_and_lives_as_any_other(counting: Counting) -> None:
    taken = await counting.remember()
    copy = await recall(taken, counting, labels=marked(counting))
    async with Guest(await copy.address()) as guest:
        assert [run.key for run in await guest.runs.list()] == ["count"]
        assert await guest.files.read("/home/user/numbers")
    again = await copy.remember()
    await copy.provider.destroy(copy.ref)
    third = await recall(again, counting, labels=marked(counting))
    await third.assert_goes_on()
    await counting.provider.delete_snapshot(again.ref)
    await third.provider.pause(third.ref)
    await third.provider.resume(third.ref)
    await third.assert_goes_on()
    await third.provider.stop(third.ref)
    await third.provider.start(third.ref)
    assert await third.sh("test -s numbers && echo there") == "there"


@pytest.mark.slow
async def test_what_its_callers_wait_for_goes_on_without_them(counting: Counting) -> None:
    async with Guest(await counting.address()) as guest:
        command = ["sh", "-c", "echo begun > begun; sleep 3; echo done > done"]
        waiting = asyncio.create_task(guest.exec(command))
        while await counting.sh("cat begun 2>/dev/null") != "begun":
            await asyncio.sleep(0.02)
        taken = await counting.remember()
        with pytest.raises(Unavailable):
            await waiting
    copy = await recall(taken, counting, labels=marked(counting))
    for box in (counting, copy):
        for _ in range(100):
            if await box.sh("cat done 2>/dev/null") == "done":
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail(f"what ran in {box.ref.id} was ended")


@pytest.mark.slow
async def test_a_way_to_a_port_is_there_again_afterwards(counting: Counting) -> None:
    async with Guest(await counting.address()) as guest:
        serve = ["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"]
        await guest.runs.start("server", serve)
    endpoint = await counting.provider.endpoint(counting.ref, 8000)
    assert await _answers(endpoint)
    taken = await counting.remember()
    assert await _answers(endpoint)
    copy = await recall(taken, counting, labels=marked(counting))
    assert await _answers(await copy.provider.endpoint(copy.ref, 8000))


async def _answers(endpoint: Endpoint) -> bool:
    for _ in range(50):
        with contextlib.suppress(OSError):
            return (await reach.get(endpoint))[0] == 200
        await asyncio.sleep(0.1)
    return False


LISTEN = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/a.sock')"
REMOVED = "import os, time; f = open('/tmp/gone', 'w'); os.unlink('/tmp/gone')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "why"),
    [
        (f"{LISTEN}; s.listen(); time.sleep(1000)", "listens on a unix socket on its disk"),
        (f"{REMOVED}; time.sleep(1000)", "has a file open that was removed"),
    ],
)
async def test_what_cannot_be_written_down_is_refused_and_the_sandbox_goes_on(
    counting: Counting, program: str, why: str
) -> None:
    async with Guest(await counting.address()) as guest:
        await guest.runs.start("obstacle", ["python3", "-c", program])
        await asyncio.sleep(0.5)
        with pytest.raises(Conflict, match=why):
            await counting.remember()
        await counting.assert_goes_on()
        await guest.runs.signal("obstacle", "SIGKILL")
        await asyncio.sleep(0.2)
    taken = await counting.remember()
    assert [path.name for path in _images(counting)].count(taken.ref.id) == 1


@pytest.mark.slow
async def test_one_whom_somebody_else_has_entered_is_refused(counting: Counting) -> None:
    state = counting.provider._life.layout.runtime_state
    argv = runtime.choose("runsc").exec_argv(state, counting.ref.id)
    other = await asyncio.create_subprocess_exec(
        *argv, "cat", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        while "cat" not in await counting.sh("cat /proc/[0-9]*/comm"):
            await asyncio.sleep(0.05)
        with pytest.raises(Conflict, match="connected to a port"):
            await counting.remember()
    finally:
        assert other.stdin is not None
        other.stdin.close()
        await other.wait()
    await counting.assert_goes_on()


def test_a_process_from_outside_has_no_parent() -> None:
    head = "UID       PID       PPID      C         TTY       STIME     TIME      CMD"
    ours = [head, "0 1 0 0 ? 03:07 160ms python3", "1000 4 1 1 ? 03:18 10ms sh"]
    assert memory.from_outside("\n".join(ours)) == []
    assert memory.from_outside("\n".join([*ours, "0 9 0 0 ? 03:18 10ms cat"])) == [9]


def _images(made: Counting) -> list[Path]:
    return list((made.provider._life.storage.pool / "memories").iterdir())


@pytest.mark.slow
async def test_processes_keep_the_limits_they_began_with(counting: Counting) -> None:
    taken = await counting.remember()
    for changes in ({"memory_mib": 2048}, {"pids": 100}):
        with pytest.raises(InvalidRequest, match="limits they began with"):
            await recall(taken, counting, resources=Resources(**changes))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="hardened"):
        await recall(taken, counting, hardened=True)
    wider = await recall(
        taken, counting, resources=Resources(cpus=2.0, disk_mib=4096), labels=marked(counting)
    )
    await wider.assert_goes_on()


@pytest.mark.slow
async def test_a_guest_comes_back_to_a_full_disk(recalling_runsc: str, need: Need) -> None:
    async with open_local(runtime=recalling_runsc) as provider:
        if not provider.capabilities.disk_limit:
            need("disk limits", "on this storage no disk is ever full")
        spec = SandboxSpec(template="base", resources=Resources(disk_mib=64))
        made = Counting(provider, (await provider.create(f"full-{os.urandom(8).hex()}", spec)).ref)
        fill = "dd if=/dev/zero of=/home/user/$0 bs=64k 2>/dev/null; sync; echo full"
        try:
            for name in ("a", "b", "c"):
                assert await made.sh(fill.replace("$0", name)) == "full"
            taken = await made.remember()
            assert await made.sh("echo on") == "on"
            assert (
                await made.sh("dd if=/dev/zero of=more bs=1M count=40 2>&1 | grep -c uota") == "1"
            )
            await provider.delete_snapshot(taken.ref)
        finally:
            await provider.destroy(made.ref)


@pytest.mark.slow
async def test_memory_of_another_version_is_not_read(counting: Counting) -> None:
    taken = await counting.remember()
    records = counting.provider._life.records
    record = records.read_snapshot(taken.ref.id)
    assert record is not None
    assert record.memory is not None
    records.write_snapshot(replace(record, memory=replace(record.memory, runtime="runsc 1")))
    with pytest.raises(Conflict, match="was written by runsc 1"):
        await recall(taken, counting)


@pytest.mark.proves("P4")
@pytest.mark.slow
async def test_of_a_sandbox_with_another_runtime_it_is_refused(recalling_runsc: str) -> None:
    async with open_local(runtime=recalling_runsc) as provider:
        spec = SandboxSpec(template="base", runtime="crun")
        seen = await provider.create(f"crun-{os.urandom(8).hex()}", spec)
        try:
            with pytest.raises(Unsupported, match="runs with crun"):
                await provider.snapshot(seen.ref, f"no-{os.urandom(8).hex()}", memory=True)
        finally:
            await provider.destroy(seen.ref)


@pytest.mark.slow
async def test_a_guest_that_does_not_know_how_to_leave_stays(
    counting: Counting, tmp_path: Path
) -> None:
    """As one that was started before there was such a thing."""
    address = counting.provider._life.layout.socket(counting.ref.id)
    real = address.readlink()
    server = await asyncio.start_unix_server(_answer_as_an_old_one, tmp_path / "old.sock")
    async with server:
        address.unlink()
        address.symlink_to(tmp_path / "old.sock")
        try:
            with pytest.raises(Conflict, match="of a version that cannot be written down"):
                await counting.remember()
        finally:
            address.unlink()
            address.symlink_to(real)
    await counting.assert_goes_on()


async def _answer_as_an_old_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = json.dumps({"code": "not_found", "message": "there is no such method"}).encode()
    head = f"HTTP/1.1 404 Not Found\r\ncontent-length: {len(body)}\r\n"
    writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
    await writer.drain()
    writer.close()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    made = tmp_path / "volume"
    (made / "guest").mkdir(parents=True)
    return made


@pytest.mark.proves("P10", "S6")
async def test_the_place_of_return_leads_nowhere_else(volume: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (volume / "guest" / inside.PLACE).symlink_to(elsewhere)
    door.write_letter(volume, "token")
    assert not list(elsewhere.iterdir())
    letter = json.loads((volume / "guest" / inside.PLACE / inside.LETTER).read_text())
    assert letter == {"token": "token", "sandboxId": "volume"}

    door.write_letter(volume, "another")  # of one that did not come the first time
    (volume / "guest" / inside.PLACE / inside.LETTER).unlink()
    (volume / "guest" / inside.PLACE).rmdir()
    (volume / "guest" / inside.PLACE).symlink_to(elsewhere)
    with pytest.raises(Broken, match="keeps its guest from coming back"):
        await door.take_back(volume, tmp_path / "a.sock", lambda: True)
    assert not os.path.lexists(volume / "guest" / inside.PLACE)
    assert elsewhere.exists()


@pytest.mark.proves("P10", "S6")
async def test_a_link_is_no_socket_whatever_its_number(tmp_path: Path) -> None:
    """File systems give the number of a file that was removed to the next one."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    found = (tmp_path / "link").lstat()
    listening = os.stat_result((stat.S_IFSOCK | 0o600, *tuple(found)[1:10]))
    assert (found.st_dev, found.st_ino) == (listening.st_dev, listening.st_ino)
    assert door._identity(found) != door._identity(listening)


@pytest.mark.usefixtures("as_root")
async def test_what_resists_where_the_guest_leaves_is_explained(volume: Path) -> None:
    left = volume / "guest" / inside.LEFT
    left.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(left)], check=True)
    try:
        with pytest.raises(Broken, match=r"does not let its guest/left be removed"):
            await door.expect_to_leave(volume)
    finally:
        subprocess.run(["umount", str(left)], check=True)
    await door.expect_to_leave(volume)
    assert not left.exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("operation", ["remember", "recall"])
async def test_dying_after_any_step_leaves_nothing_half_made(
    recalling_runsc: str, installation: Installation, operation: str
) -> None:
    base = await base_root()
    async with installation.opened(runtime=recalling_runsc) as provider:
        source = TemplateSource(SourceKind.DIRECTORY, str(base))
        provider.templates.add(Template("base", source, user="user"))
        spec = SandboxSpec(template="base", labels={"role": "source"})
        counting = await begin(provider, spec)
        if operation == "recall":
            await provider.snapshot(counting.ref, "kept", memory=True)
    clean, names = look(installation.data_dir), []
    for step in range(100):
        killed, name = await _die(installation.data_dir, operation, step)
        names.append(name)
        async with installation.opened(runtime=recalling_runsc) as provider:
            counting = Counting(provider, counting.ref)
            await counting.assert_goes_on()
            await _remove_results(provider)
        left = look(installation.data_dir)
        assert replace(left, processes=clean.processes) == clean, f"killed after {name}"
        if not killed:
            break
    own = {"remember": "memory.written", "recall": "boot.runtime"}
    assert own[operation] in names
    async with installation.opened(runtime=recalling_runsc) as provider:
        await installation.empty(provider)
    installation.assert_no_traces()


async def _die(data_dir: Path, operation: str, step: int) -> tuple[bool, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.adapters.providers.local.faulty"),
        *(str(data_dir), operation, str(step)),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode != 0, (output.decode().split() or ["nothing"])[-1]


async def _remove_results(provider: LocalProvider) -> None:
    """Those that were finished are whole: a copy goes on, a snapshot can be made one."""
    async for snapshot in provider.snapshots():
        if snapshot.key == "victim":
            copy = await provider.create("victim", SandboxSpec(snapshot=snapshot.ref))
            await Counting(provider, copy.ref).assert_goes_on()
            await provider.delete_snapshot(snapshot.ref)
    async for seen in provider.find({}):
        if seen.key == "victim":
            await Counting(provider, seen.ref).assert_goes_on()
            await provider.destroy(seen.ref)
