"""Warm pools, restarts of host and control plane, networks, and what the host shares."""

import asyncio
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.adapters.providers.host import netns
from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.local import host_layer
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.reconcile import settle_snapshot
from paddock.domain.egress import OPEN
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.local.conftest import Installation

pytestmark = pytest.mark.timeout(120)
TINY = SandboxSpec(template="tiny")


async def test_a_warm_sandbox_becomes_exactly_what_was_asked_for(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        await provider.keep_warm("tiny", 2)
        await provider.warmed()
        assert [seen async for seen in provider.find({})] == []
        spec = SandboxSpec(
            template="tiny",
            env={"COLOUR": "green"},
            labels={"team": "a"},
            resources=Resources(cpus=0.5, memory_mib=200, pids=50),
        )
        started = time.monotonic()
        seen = await provider.create("k", spec)
        assert time.monotonic() - started < 1
        assert seen.labels == {"team": "a"}
        async with Guest(await provider.guest(seen.ref)) as guest:
            assert (await guest.exec(["sh", "-c", "echo $COLOUR"])).stdout == b"green\n"
        cgroup = provider._life.machines.cgroup(seen.ref.id)
        assert cgroup.read_counter("pids", "pids.max", "pids.max") == 50
        limit = cgroup.read_counter("memory", "memory.limit_in_bytes", "memory.max")
        assert limit == 200 << 20
        assert (await provider.create("k", spec)).ref == seen.ref
        await provider.warmed()
    # What nobody claimed went with the control plane; what was claimed stays.
    async with installation.opened() as provider:
        assert [seen.key async for seen in provider.find({})] == ["k"]
        await installation.empty(provider)
    installation.assert_no_traces()


_SEEN = "nproc; grep -c ^processor /proc/cpuinfo; sed -n 's/^MemTotal: *//p' /proc/meminfo"


async def test_programs_see_the_limits_of_their_sandbox_cold_and_warm(
    installation: Installation,
) -> None:
    async def seen_with(provider: LocalProvider, key: str, resources: Resources) -> list[str]:
        made = await provider.create(key, SandboxSpec(template="tiny", resources=resources))
        async with Guest(await provider.guest(made.ref)) as guest:
            done = await guest.exec(["sh", "-c", _SEEN])
        return done.stdout.decode().splitlines()

    two = str(min(2, len(os.sched_getaffinity(0))))
    async with installation.opened() as provider:
        small, large = Resources(cpus=0.5, memory_mib=200), Resources(cpus=2, memory_mib=300)
        assert await seen_with(provider, "cold", small) == ["1", "1", "204800 kB"]
        await provider.keep_warm("tiny", 2)
        await provider.warmed()
        assert await seen_with(provider, "as is", Resources()) == ["1", "1", "1048576 kB"]
        assert await seen_with(provider, "larger", large) == [two, two, "307200 kB"]
        await installation.empty(provider)


async def test_a_burst_larger_than_the_pool_is_served_too(installation: Installation) -> None:
    async with installation.opened() as provider:
        await provider.keep_warm("tiny", 3)
        await provider.warmed()
        made = await asyncio.gather(*(provider.create(f"b{n}", TINY) for n in range(8)))
        assert len({seen.ref for seen in made}) == 8
        await installation.empty(provider)


async def test_concurrent_creates_with_one_key_make_one_sandbox(
    installation: Installation,
) -> None:
    async with installation.opened() as provider, installation.opened() as second:
        made = await asyncio.gather(
            *(provider.create("same", TINY) for _ in range(5)),
            *(second.create("same", TINY) for _ in range(5)),
        )
        assert len({seen.ref for seen in made}) == 1
        await installation.empty(provider)
    installation.assert_no_traces()


@pytest.mark.proves("L11")
async def test_a_reboot_of_the_host_turns_running_into_stopped_and_loses_nothing(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        running = await provider.create("running", TINY)
        paused = await provider.create("paused", TINY)
        await provider.pause(paused.ref)
        async with Guest(await provider.guest(running.ref)) as guest:
            await guest.files.write("/home/user/kept", b"kept")
        for ref in (running.ref, paused.ref):
            # What a reboot leaves: the record of another boot, and no machine.
            record = provider._life.records.read(ref.id)
            assert record is not None
            assert record.machine is not None
            await provider._life.machines.end(record)
            old = replace(record.machine, boot_id="another boot")
            provider._life.records.write(replace(record, machine=old))
    async with installation.opened() as provider:
        states = {seen.key: (seen.state, seen.reason) async for seen in provider.find({})}
        assert states == {
            "running": (SandboxState.STOPPED, Reason.PROVIDER_LOST),
            "paused": (SandboxState.STOPPED, Reason.PROVIDER_LOST),
        }
        await provider.start(running.ref)
        async with Guest(await provider.guest(running.ref)) as guest:
            assert await guest.files.read("/home/user/kept") == b"kept"


async def test_supervised_processes_come_back_with_the_sandbox(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", replace(TINY, env={"WORD": "hello"}))
        async with Guest(await provider.guest(seen.ref)) as guest:
            await guest.processes.put(
                "ticker", ["sh", "-c", "echo $WORD >> /home/user/log; exec sleep 1000"]
            )
            await guest.processes.start("ticker")
            await _until(guest, "[ $(wc -l < /home/user/log) = 1 ]")
        await provider.stop(seen.ref)
        await provider.start(seen.ref)
        async with Guest(await provider.guest(seen.ref)) as guest:
            await _until(guest, "[ $(wc -l < /home/user/log) = 2 ]")
            assert await guest.files.read("/home/user/log") == b"hello\nhello\n"


async def _until(guest: Guest, condition: str) -> None:
    for _ in range(100):
        if (await guest.exec(["sh", "-c", condition])).exit_code == 0:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never true: {condition}")


async def test_the_control_plane_can_listen_inside_and_connect_inside(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", TINY)
        endpoint = await provider.endpoint(seen.ref, 8080)
        assert endpoint.netns_pid is not None
        assert endpoint.netns_started is not None
        inside = Process(endpoint.netns_pid, endpoint.netns_started)
        served = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"from outside\n")
            await writer.drain()
            writer.close()
            served.set()

        listener = await netns.listen(inside, "127.0.0.1", 3128)
        async with await asyncio.start_server(answer, sock=listener):
            async with Guest(await provider.guest(seen.ref)) as guest:
                result = await guest.exec(["nc", "127.0.0.1", "3128"], timeout=5)
                assert result.stdout == b"from outside\n"
                assert served.is_set()
                await guest.exec(
                    ["sh", "-c", "echo from inside | nc -l -p 8080 > /dev/null 2>&1 &"]
                )
                await asyncio.sleep(0.2)
                connection = await netns.connect(inside, "127.0.0.1", 8080)
                reader, writer = await asyncio.open_connection(sock=connection)
                assert await reader.readline() == b"from inside\n"
                writer.close()


async def test_the_hosts_certificates_are_inside_and_not_in_snapshots(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", TINY)
        async with Guest(await provider.guest(seen.ref)) as guest:
            inside = await guest.files.read(host_layer.CERTIFICATES)
            hosts = Path(host_layer.CERTIFICATES).read_bytes()
            assert inside.startswith(hosts)
            assert inside[len(hosts) :].count(b"BEGIN CERTIFICATE") == 1, "the installation's own"
            replaced = await guest.exec(
                ["sh", "-c", f"echo own > /x && mv /x {host_layer.CERTIFICATES}"], user="root"
            )
            assert replaced.exit_code == 0, replaced.stderr
        other = await provider.create("other", TINY)
        snapshot = await provider.snapshot(other.ref, "s")
        upper = provider._life.storage.pool / "snapshots" / snapshot.ref.id / "upper"
        assert not (upper / host_layer.CERTIFICATES.lstrip("/")).exists()


@pytest.mark.slow
@pytest.mark.proves("P16")
async def test_an_open_sandbox_reaches_no_host_no_neighbour_and_no_metadata(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        first = await provider.create("first", replace(TINY, egress=OPEN))
        second = await provider.create("second", replace(TINY, egress=OPEN))
        network = provider._life.network
        record = provider._life.records.read(second.ref.id)
        assert record is not None
        assert record.network is not None
        neighbour = network.address(record.network)
        async with (
            Guest(await provider.guest(first.ref)) as guest,
            Guest(await provider.guest(second.ref)) as other,
        ):
            await other.exec(["sh", "-c", "nc -l -p 9000 -e echo hi > /dev/null 2>&1 &"])
            server = await asyncio.start_server(lambda r, w: w.close(), "0.0.0.0", 0)
            port = server.sockets[0].getsockname()[1]
            for address, number in (
                (str(network.gateway), port),
                (str(neighbour), 9000),
                ("169.254.169.254", 80),
            ):
                result = await guest.exec(["nc", "-w", "2", address, str(number)], timeout=10)
                assert result.exit_code != 0, address
            server.close()
        await installation.empty(provider)
    installation.assert_no_traces()


async def test_a_template_of_a_snapshot_starts_with_its_files(installation: Installation) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", TINY)
        async with Guest(await provider.guest(seen.ref)) as guest:
            await guest.files.write("/home/user/seed", b"seed")
        snapshot = await provider.snapshot(seen.ref, "s")
        provider.templates.add(
            Template("grown", TemplateSource(SourceKind.SNAPSHOT, snapshot.ref.id))
        )
        grown = await provider.create("g", SandboxSpec(template="grown"))
        await provider.delete_snapshot(snapshot.ref)
        async with Guest(await provider.guest(grown.ref)) as guest:
            assert await guest.files.read("/home/user/seed") == b"seed"


async def test_records_can_be_read_by_people(installation: Installation) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", replace(TINY, labels={"team": "a"}))
    path = installation.layout.record(seen.ref.id)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["labels"] == {"team": "a"}


async def test_a_template_is_not_kept_mounted_and_can_be_deleted(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", TINY)
        await provider.destroy(seen.ref)
        (build,) = provider.templates.builds()
        launcher = provider._parts.launch._process
        assert launcher is not None
        table = Path(f"/proc/{launcher.pid}/mountinfo")
        assert build.digest not in table.read_text()
        await provider.templates.delete(build.digest)
        # Built again in the same place, it is the new one that sandboxes stand on.
        again = await provider.create("again", TINY)
        async with Guest(await provider.guest(again.ref)) as guest:
            assert (await guest.exec(["true"])).exit_code == 0


async def test_a_snapshot_that_was_finished_since_it_was_listed_is_kept(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        taken = await provider.snapshot(seen.ref, "s")
        record = provider._life.records.read_snapshot(taken.ref.id)
        assert record is not None
        await settle_snapshot(provider._life, replace(record, ready=False, owner="gone"))
        assert [found.ref async for found in provider.snapshots()] == [taken.ref]
        await provider.delete_snapshot(taken.ref)
