"""The sandbox as a whole: ports, usage, identity."""

import asyncio
import time

import pytest

from paddock.guest_client import Guest
from paddock.guest_client.commands import Started
from tests.guest.conftest import StartGuest, StartPacked
from tests.guest.raw import Raw

pytestmark = pytest.mark.timeout(30)

LISTEN = """
import socket, sys, time
a = socket.create_server(("127.0.0.1", int(sys.argv[1])))
b = socket.create_server(("::1", int(sys.argv[1])), family=socket.AF_INET6)
print("up", flush=True)
time.sleep(60)
"""


async def test_listening_ports_are_named_with_their_program(guest: Guest, free_port: int) -> None:
    async for event in guest.start(["python3", "-c", LISTEN, str(free_port)]):
        if isinstance(event, Started):
            pid = event.pid
            continue
        found = [port for port in await guest.ports() if port.port == free_port]
        assert [(p.address, p.pid, p.command) for p in found] == [
            ("127.0.0.1", pid, "python3"),
            ("::1", pid, "python3"),
        ]
        await guest.commands.kill(pid)
        break
    for _ in range(20):
        if not [port for port in await guest.ports() if port.port == free_port]:
            return
        await asyncio.sleep(0.1)
    pytest.fail("the port is still listed")


async def test_usage_says_what_runs_and_when_something_last_happened(guest: Guest) -> None:
    before = await guest.usage()
    assert before.default_user == "user"
    assert not before.default_user_missing
    assert before.disk_total_bytes > before.disk_used_bytes > 0
    assert before.pids >= 2
    await guest.runs.start("busy", ["sleep", "30"])
    events = guest.start(["sleep", "30"])
    started = await anext(events)
    assert isinstance(started, Started)
    during = await guest.usage()
    assert during.running_runs == before.running_runs + 1
    assert during.streams == before.streams + 1
    assert during.commands == before.commands + 2
    assert abs(during.last_activity_at - time.time()) < 5
    await guest.commands.kill(started.pid)
    await events.aclose()
    await guest.runs.end("busy", grace=0)


async def test_metrics_have_envds_form(raw: Raw) -> None:
    answer = await raw("GET", "/metrics")
    assert answer.headers["content-type"] == "application/json"
    metrics = answer.json()
    names = "ts cpu_count cpu_used_pct mem_total mem_used mem_cache disk_used disk_total".split()
    assert sorted(metrics) == sorted(names)
    assert all(isinstance(value, int | float) for value in metrics.values())


async def test_init_sets_the_user_the_directory_and_the_environment(
    start_packed: StartPacked,
) -> None:
    form = await start_packed()
    async with Guest(form.address) as guest, Raw(form.address) as raw:
        await guest.init(env={"A": "1"}, user="root", workdir="/tmp", sandbox_id="sbx_new")
        result = await guest.exec(["sh", "-c", "id -un; pwd; echo $A $PADDOCK_SANDBOX_ID"])
        assert result.text.split() == ["root", "/tmp", "1", "sbx_new"]
        await guest.init(env={"B": "2"})
        assert (await raw("GET", "/envs")).json() == {"A": "1", "B": "2"}
        assert (await raw("POST", "/init", body=b"{]")).status == 400
        assert (await raw("POST", "/init", body=b'{"envVars":{"A":1}}')).status == 400
        assert (await raw("GET", "/envs")).json() == {"A": "1", "B": "2"}


async def test_without_the_default_user_commands_run_as_root_and_it_is_said(
    start_guest: StartGuest,
) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        await guest.init(user="nobody-here")
        assert (await guest.exec(["id", "-u"])).text == "0\n"
        usage = await guest.usage()
        assert (usage.default_user, usage.default_user_missing) == ("root", True)


async def test_new_users_are_known_at_once(start_guest: StartGuest) -> None:
    form = await start_guest()
    async with Guest(form.address) as guest:
        await guest.exec(["useradd", "-m", "-G", "games", "newcomer"], user="root")
        result = await guest.exec(["sh", "-c", "id -un; id -Gn; pwd"], user="newcomer")
        assert result.text.split() == ["newcomer", "newcomer", "games", "/home/newcomer"]
        assert (await guest.exec(["id", "-u"], user="1234")).text == "1234\n"


async def test_orphans_are_reaped(guest: Guest) -> None:
    await guest.exec(["sh", "-c", "for i in $(seq 1 50); do (setsid sleep 0.2 &) ; done"])
    dead = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"
    async with asyncio.timeout(10):
        while (await guest.exec(["pgrep", "-f", "^sleep 0.2"])).exit_code == 0:
            await asyncio.sleep(0.05)
        while (await guest.exec(["sh", "-c", dead])).text.strip() != "0":
            await asyncio.sleep(0.05)


async def test_the_user_can_neither_signal_nor_read_the_guest(guest: Guest, shared: object) -> None:
    pid = shared.inner_pid  # type: ignore[attr-defined]
    for script in (
        f"kill -9 {pid}",
        f"cat /proc/{pid}/environ",
        f"ls /proc/{pid}/fd",
        f"cat /proc/{pid}/maps",
    ):
        assert (await guest.exec(["sh", "-c", script])).exit_code != 0, script
    await guest.health()
