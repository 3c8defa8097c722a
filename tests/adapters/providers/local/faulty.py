"""A control process that dies at a chosen step: run as a program by the fault tests.

    python -m tests.adapters.providers.local.faulty DATA_DIR OPERATION STEP

It ends itself with SIGKILL right after step number STEP of the operation (counted from 0), or ends
normally when the operation has fewer steps. The names of the steps go to standard output.
"""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.snapshot import SnapshotRef
from paddock.ports.provider import Ref, SandboxSpec

TEMPLATE = os.environ.get("PADDOCK_TEST_TEMPLATE", "base")
RUNTIME = os.environ.get("PADDOCK_TEST_RUNTIME", "")


class Countdown:
    """Counts steps once armed, and kills this process at the chosen one."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.armed = False
        self.count = 0

    def __call__(self, step: str) -> None:
        if not self.armed:
            return
        print(step, flush=True)
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1


async def perform(provider: LocalProvider, operation: str, source: Ref | None) -> None:
    match operation:
        case "create":
            await provider.create("victim", SandboxSpec(template=TEMPLATE, runtime=RUNTIME))
        case "destroy":
            assert source is not None
            await provider.destroy(source)
        case "snapshot":
            assert source is not None
            await provider.snapshot(source, "victim")
        case "snapshot-without":
            assert source is not None
            await provider.snapshot(source, "victim", ignore=("/home/user/.cache",))
        case "remember":
            assert source is not None
            await provider.snapshot(source, "victim", memory=True)
        case "recall":
            async for snapshot in provider.snapshots():
                await provider.create("victim", SandboxSpec(snapshot=snapshot.ref))
        case "fork":
            assert source is not None
            await provider.fork(source, "victim", SandboxSpec())
        case "delete-snapshot":
            async for snapshot in provider.snapshots():
                await provider.delete_snapshot(SnapshotRef("local", snapshot.ref.id))
        case "stop":
            assert source is not None
            await provider.stop(source)
        case "archive":
            assert source is not None
            await provider.archive(source)
        case "unarchive":
            assert source is not None
            await provider.start(source)


async def main(data_dir: str, operation: str, step: str) -> None:
    countdown = Countdown(int(step))
    config = LocalConfig(data_dir=Path(data_dir))
    if operation in ("remember", "recall"):
        config = replace(config, runtime="runsc")
    provider = await LocalProvider.open(config, on_step=countdown)
    source = None
    async for seen in provider.find({"role": "source"}):
        source = seen.ref
    countdown.armed = True
    await perform(provider, operation, source)
    countdown.armed = False
    await provider.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
