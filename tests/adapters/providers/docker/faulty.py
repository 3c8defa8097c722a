"""A control process that dies at a chosen step: run as a program by the fault tests.

    python -m tests.adapters.providers.docker.faulty HOST RUN_ROOT INSTALLATION GUEST OPERATION STEP

It ends itself with SIGKILL right after step number STEP of the operation (counted from 0), or ends
normally when the operation has fewer steps. The names of the steps go to standard output.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.domain.egress import CLOSED, OPEN, EgressPolicy, NetworkMode, SourcedRule
from paddock.ports.provider import Ref, SandboxSpec
from tests.adapters.providers.docker.conftest import BASE, TINY, Installation

FENCE = EgressPolicy(NetworkMode.ALLOWLIST, (SourcedRule("allowed.example"),))
SPECS = {
    "joined": SandboxSpec(template=TINY, egress=FENCE),
    "packed": SandboxSpec(template=BASE),
}


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


async def perform(provider: DockerProvider, operation: str, spec: SandboxSpec) -> None:
    found = {seen.key: seen.ref async for seen in provider.find({})}
    source: Ref | None = found.get("source")
    if operation == "create":
        await provider.create("victim", spec)
        return
    assert source is not None
    match operation:
        case "snapshot":
            await provider.snapshot(source, "victim")
        case "fork":
            await provider.fork(source, "victim", SandboxSpec(egress=spec.egress))
        case "destroy":
            await provider.destroy(source)
        case "stop":
            await provider.stop(source)
        case "start":
            await provider.start(source)
        case "enclose":
            await provider.set_egress(source, FENCE)
        case "release":
            await provider.set_egress(source, OPEN)
        case "close":
            await provider.set_egress(source, CLOSED)


async def main(host: str, run_root: str, name: str, guest: str, operation: str, step: str) -> None:
    countdown = Countdown(int(step))
    installation = Installation(host, Path(run_root), name)
    async with installation.opened(guest=guest, on_step=countdown) as provider:
        countdown.armed = True
        await perform(provider, operation, SPECS[guest])
        countdown.armed = False


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:7]))
