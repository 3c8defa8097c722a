"""Limits for the whole jail in which image programs run."""

import asyncio
from pathlib import Path

import pytest

from paddock.adapters.providers.host.cgroups import host_hierarchies
from paddock.adapters.providers.local.templates.image_tools import ImageTools
from paddock.adapters.providers.local.templates.programs import ProgramFailed

pytestmark = pytest.mark.timeout(60)


async def run(*command: str) -> str:
    return (await ImageTools()._bounded(command)).decode()


def groups() -> list[Path]:
    roots = host_hierarchies().roots()
    return [each for root in roots for each in (root / "paddock" / "jails").glob("*-*")]


async def test_a_program_in_a_jail_has_a_system_call_filter_and_no_new_privileges():
    status = (await run("cat", "/proc/self/status")).splitlines()
    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status


async def test_a_program_in_a_jail_makes_no_namespaces():
    with pytest.raises(ProgramFailed) as failed:
        await run("unshare", "--user", "true")
    assert failed.value.mentions("unshare")


async def test_a_fork_bomb_in_a_jail_ends_at_its_limit_of_processes():
    bomb = "i=0; while [ $i -lt 400 ]; do sleep 30 & i=$((i+1)); done 2>&1; echo all"
    try:
        said = await run("sh", "-c", bomb)
    except ProgramFailed:
        said = "refused"
    assert "all" not in said.split()
    assert groups() == []


async def test_the_memory_and_cpus_of_a_jail_are_limited_and_its_groups_go_with_it():
    work = asyncio.ensure_future(run("sleep", "30"))
    try:
        async with asyncio.timeout(20):
            while not any((each / "cgroup.procs").read_text() for each in groups()):
                await asyncio.sleep(0.02)
        limits = {
            file.name: file.read_text().strip()
            for each in groups()
            for file in each.glob("*")
            if file.name
            in ("memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us", "pids.max")
        }
        assert limits["pids.max"] == "256"
        assert str(2 << 30) in limits.values()
        assert not {"-1", "max"} & {each.split()[0] for each in limits.values()}
        assert len(limits) == 3
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    assert groups() == []
