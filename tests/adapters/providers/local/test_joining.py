"""The joined guest: confined like everything else in the sandbox, and on its own."""

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from paddock.adapters.providers.host import capabilities
from paddock.adapters.providers.host.cgroups import host_hierarchies
from paddock.adapters.providers.local import id_ranges
from paddock.adapters.providers.local.machine import guest_config
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.errors import TimedOut
from paddock.guest_client import Guest
from paddock.ports.provider import Ref, SandboxSpec
from tests.adapters.providers.local.conftest import Installation

pytestmark = pytest.mark.timeout(120)


def pids(provider: LocalProvider, ref: Ref) -> tuple[int, int]:
    record = provider._life.records.read(ref.id)
    assert record is not None
    assert record.machine is not None
    return record.machine.init.pid, record.machine.guest.pid


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@pytest.mark.proves("P10")
async def test_the_guest_is_confined_like_the_sandboxs_first_process(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        init, guest = pids(provider, seen.ref)
        for namespace in ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup"):
            ours = os.readlink(f"/proc/self/ns/{namespace}")
            inside = os.readlink(f"/proc/{init}/ns/{namespace}")
            assert os.readlink(f"/proc/{guest}/ns/{namespace}") == inside
            assert inside != ours, namespace
        of_init, of_guest = status(init), status(guest)
        for field in (
            "CapEff",
            "CapPrm",
            "CapBnd",
            "CapInh",
            "Uid",
            "Gid",
            "NoNewPrivs",
            "Seccomp",
        ):
            assert of_guest[field] == of_init[field], field
        assert of_guest["Seccomp"] == "2"
        assert int(of_guest["Uid"].split()[0]) >= id_ranges.FIRST
        groups = {
            line.split(":")[1]: line.split(":")[2]
            for line in Path(f"/proc/{guest}/cgroup").read_text().splitlines()
        }
        for names, _ in host_hierarchies().v1:
            joined = groups.get(",".join(sorted(names)), groups.get(next(iter(names)), ""))
            assert seen.ref.id in joined, names


@pytest.mark.proves("P10")
async def test_the_guest_holds_no_descriptor_of_the_hosts(installation: Installation) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        _, guest = pids(provider, seen.ref)
        for name in os.listdir(f"/proc/{guest}/fd"):
            try:
                target = os.readlink(f"/proc/{guest}/fd/{name}")
            except FileNotFoundError:
                continue  # closed since it was listed
            kind, _, _ = target.partition(":")
            harmless = kind in ("socket", "anon_inode", "pipe") or target in (
                "/dev/null",
                f"/proc/{guest}/oom_score_adj",
                "/proc/3/oom_score_adj",
            )
            own_group = "/sys/fs/cgroup" in target or "memory." in target or "cpu" in target
            own_group = own_group or "pids.current" in target
            assert harmless or own_group or target.startswith("/run/paddock"), target
            if own_group:
                flags = Path(f"/proc/{guest}/fdinfo/{name}").read_text()
                assert int(flags.split("flags:")[1].split()[0], 8) & 3 == os.O_RDONLY
                assert not os.path.isdir(f"/proc/{guest}/fd/{name}")


@pytest.mark.proves("P10")
async def test_the_guest_shows_nothing_of_the_host_in_its_name(installation: Installation) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        async with Guest(await provider.guest(seen.ref)) as guest:
            listing = (await guest.exec(["ps"])).text
        assert "paddock-guest" in listing
        assert "python" not in listing
        assert str(Path(__file__).parents[4]) not in listing


async def test_the_guest_survives_the_launcher_and_the_control_plane(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        async with Guest(await provider.guest(seen.ref)) as guest:
            await guest.exec(["sh", "-c", "while sleep 0.05; do echo x >> /tmp/ticks; done &"])
        launcher = provider._parts.launch._process
        assert launcher is not None
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
        async with Guest(await provider.guest(seen.ref)) as guest:
            assert (await guest.exec(["echo", "still here"])).stdout == b"still here\n"
        # The next sandbox has a new launcher.
        other = await provider.create("other", SandboxSpec(template="tiny"))
        await provider.destroy(other.ref)
    async with installation.opened() as provider:
        assert (await provider.create("k", SandboxSpec(template="tiny"))).ref == seen.ref
        async with Guest(await provider.guest(seen.ref)) as guest:
            assert (await guest.exec(["sh", "-c", "wc -l < /tmp/ticks"])).exit_code == 0
        await provider.destroy(seen.ref)
    installation.assert_no_traces()


@pytest.mark.proves("P10")
async def test_sudo_works_in_a_user_namespace_and_not_when_hardened(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        plain = await provider.create("plain", SandboxSpec(template="tiny"))
        hardened = await provider.create("hardened", SandboxSpec(template="tiny", hardened=True))
        for seen, expected in ((plain, "0"), (hardened, "1")):
            async with Guest(await provider.guest(seen.ref)) as guest:
                result = await guest.exec(["grep", "NoNewPrivs", "/proc/self/status"])
                assert result.text.split()[1] == expected


async def _is_hardened(provider: LocalProvider, ref: Ref) -> bool:
    async with Guest(await provider.guest(ref)) as guest:
        result = await guest.exec(["grep", "NoNewPrivs", "/proc/self/status"])
        return result.text.split()[1] == "1"


async def test_hardening_goes_with_the_disk(installation: Installation) -> None:
    async with installation.opened() as provider:
        source = await provider.create("source", SandboxSpec(template="tiny", hardened=True))
        taken = await provider.snapshot(source.ref, "taken")
        copies = [
            await provider.fork(source.ref, "fork", SandboxSpec()),
            await provider.create("copy", SandboxSpec(snapshot=taken.ref)),
        ]
        for copy in copies:
            assert await _is_hardened(provider, copy.ref)
        soft = await provider.fork(source.ref, "soft", SandboxSpec(hardened=False))
        assert not await _is_hardened(provider, soft.ref)
        await provider.delete_snapshot(taken.ref)


@pytest.mark.proves("P10")
async def test_without_a_user_namespace_nobody_can_ask_for_less(
    installation: Installation,
) -> None:
    async with installation.opened(user_namespace="off") as provider:
        spec = SandboxSpec(template="tiny", hardened=False)
        source = await provider.create("source", spec)
        fork = await provider.fork(source.ref, "fork", SandboxSpec(hardened=False))
        taken = await provider.snapshot(source.ref, "taken")
        copy = await provider.create("copy", SandboxSpec(snapshot=taken.ref, hardened=False))
        for seen in (source, fork, copy):
            assert await _is_hardened(provider, seen.ref)
        await provider.delete_snapshot(taken.ref)


async def test_a_sandbox_ends_also_in_a_process_with_many_files_open(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
        try:
            assert (await provider.stop(seen.ref)).state == "stopped"
            await provider.start(seen.ref)
            await provider.destroy(seen.ref)
        finally:
            for descriptor in held:
                os.close(descriptor)


async def test_a_guest_that_was_killed_is_reported_and_the_disk_is_kept(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        async with Guest(await provider.guest(seen.ref)) as guest:
            await guest.files.write("/home/user/kept", b"kept")
        _, pid = pids(provider, seen.ref)
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists():
            pass
        after = await provider.observe(seen.ref)
        assert after.state == "stopped"
        assert after.reason == "crashed"
        again = await provider.start(seen.ref)
        assert again.state == "running"
        async with Guest(await provider.guest(seen.ref)) as guest:
            assert await guest.files.read("/home/user/kept") == b"kept"


async def test_a_launcher_whose_zygote_died_is_replaced(installation: Installation) -> None:
    async with installation.opened() as provider:
        await provider.create("first", SandboxSpec(template="tiny"))
        launcher = provider._parts.launch._process
        assert launcher is not None
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        zygote = next(pid for pid in children if status(int(pid))["Name"] == "paddock-zygote")
        os.kill(int(zygote), signal.SIGKILL)
        launcher.wait(10)
        assert (await provider.create("second", SandboxSpec(template="tiny"))).state == "running"


async def test_a_guest_that_cannot_get_in_is_given_up_on_and_holds_up_nobody(
    installation: Installation, tmp_path: Path
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        record = provider._life.records.read(seen.ref.id)
        assert record is not None
        assert record.machine is not None
        cgroup = provider._life.machines.cgroup(seen.ref.id)
        launch = provider._parts.launch
        assert launch._process is not None
        inside = cgroup.pids()
        descriptors = Path(f"/proc/{launch._process.pid}/fd")
        before = len(os.listdir(descriptors))
        await provider.pause(seen.ref)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "guest.sock"))
            listener.listen()
            started = time.monotonic()
            join = asyncio.create_task(
                launch.join(
                    listener,
                    record.machine.init,
                    cgroup,
                    timeout=0.5,
                    config=guest_config(record),
                    capabilities=capabilities.numbers(),
                    no_new_privs=False,
                )
            )
            await asyncio.sleep(0.1)
            assert (await launch.run(["true"], timeout=5)).code == 0
            other = await provider.create("other", SandboxSpec(template="tiny"))
            await provider.destroy(other.ref)
            with pytest.raises(TimedOut, match=r"did not get into .* within 0.5 s.* frozen"):
                await join
            assert time.monotonic() - started < 30
        assert len(os.listdir(descriptors)) == before
        # When it can go on it finds that nobody waits for it, and ends.
        await provider.resume(seen.ref)
        until = time.monotonic() + 10
        while cgroup.pids() != inside:
            assert time.monotonic() < until, f"{cgroup.pids()} instead of {inside}"
            await asyncio.sleep(0.01)
        await provider.destroy(seen.ref)
    installation.assert_no_traces()
