"""A control process that makes, uses and destroys many sandboxes: run as a program by a test.

    python -m tests.adapters.providers.local.leak_program DATA_DIR COUNT

It prints as JSON what it holds before and after. A process of its own, because a test process also
holds what other tests have opened.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.storage import ioctls
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.local.traces import look

AT_ONCE = 4
_SETTLE_S = 5.0


def _descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _children() -> dict[int, list[int]]:
    """Every process on this machine, under its parent."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    return children


def _descendants(pid: int) -> int:
    children = _children()
    found, waiting = 0, [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += len(below)
        waiting += below
    return found


def _held(provider: LocalProvider) -> dict[str, int]:
    launcher = provider._parts.launch._process
    assert launcher is not None
    return {
        "descriptors": _descriptors(),
        "descriptors of the launcher": _descriptors(launcher.pid),
        "processes of the launcher": _descendants(launcher.pid),
        "processes": len(_children().get(os.getpid(), [])),
    }


async def _use_one(provider: LocalProvider, number: int) -> None:
    seen = await provider.create(f"leak-{number}", SandboxSpec(template="tiny"))
    async with Guest(await provider.guest(seen.ref)) as guest:
        await guest.files.write("/home/user/file", b"x" * 10_000)
        result = await guest.exec(["sh", "-c", "sleep 300 & echo $((6 * 7))"])
        assert result.stdout == b"42\n"
    await provider.destroy(seen.ref)


async def _until(fits: Callable[[], bool]) -> None:
    """What ends or is given back a moment later has that moment."""
    until = asyncio.get_running_loop().time() + _SETTLE_S
    while not fits() and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.1)


async def main(data_dir: Path, count: int) -> dict[str, Any]:
    provider = await LocalProvider.open(LocalConfig(data_dir=data_dir))

    def used() -> int:
        with ioctls.opened(data_dir / "pool") as directory:
            ioctls.sync_filesystem(directory)
        disk = os.statvfs(data_dir / "pool")
        return (disk.f_blocks - disk.f_bfree) * disk.f_bsize

    try:
        await _use_one(provider, -1)
        traces, held, bytes_used = look(data_dir), _held(provider), used()
        own = {"descriptors": held["descriptors"]}
        numbers = iter(range(count))

        async def worker() -> None:
            for number in numbers:
                await _use_one(provider, number)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(worker())
        is_clean = look(data_dir) == traces
        # Its own descriptors are compared by the test: those of pooled threads come and stay.
        await _until(lambda: {**_held(provider), **own} == {**held, **own})
        await _until(lambda: abs(used() - bytes_used) < 32 << 20)
        return {
            "is clean": is_clean,
            "before": held,
            "after": _held(provider),
            "bytes": used() - bytes_used,
        }
    finally:
        await provider.aclose()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))))
